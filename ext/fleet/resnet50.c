/* SPDX-License-Identifier: Apache-2.0
 *
 * resnet50.c - the gradients of ResNet-50, derived from its architecture.
 */
#include "fleet/resnet50.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct list {
    resnet50 *of;
    int count;
    int64_t parameters;
} list;

static void add(list *l, int ndim, const int64_t *dims, const char *format, ...) {
    int i = l->count++;
    int64_t n = 1;
    va_list args;
    va_start(args, format);
    vsnprintf(l->of->names[i], sizeof l->of->names[i], format, args);
    va_end(args);
    for (int d = 0; d < ndim; d++)
        n *= l->of->dims[i][d] = dims[d];
    l->of->tensors[i] = (hc_tensor){.dtype = HC_FLOAT32, .ndim = (uint8_t)ndim, .dims = l->of->dims[i]};
    l->of->requests[i] = (fleet_request){l->of->names[i], 1, &l->of->tensors[i]};
    l->parameters += n;
}

/* A convolution and the two vectors of its batch normalisation. */
static void convolution(list *l, const char *at, const char *conv, const char *norm, int64_t out, int64_t in,
                        int64_t k) {
    add(l, 4, (int64_t[]){out, in, k, k}, "%s%s.weight", at, conv);
    add(l, 1, &out, "%s%s.weight", at, norm);
    add(l, 1, &out, "%s%s.bias", at, norm);
}

int64_t resnet50_gradients(resnet50 *model) {
    static const int blocks[] = {3, 4, 6, 3};
    list l = {model, 0, 0};
    int64_t in = 64;
    convolution(&l, "", "conv1", "bn1", 64, 3, 7);
    for (int stage = 0; stage < 4; stage++)
        for (int b = 0; b < blocks[stage]; b++) {
            int64_t width = 64 << stage;
            char at[32];
            snprintf(at, sizeof at, "layer%d.%d.", stage + 1, b);
            convolution(&l, at, "conv1", "bn1", width, in, 1);
            convolution(&l, at, "conv2", "bn2", width, width, 3);
            convolution(&l, at, "conv3", "bn3", 4 * width, width, 1);
            if (b == 0)
                convolution(&l, at, "downsample.0", "downsample.1", 4 * width, in, 1);
            in = 4 * width;
        }
    add(&l, 2, (int64_t[]){1000, in}, "fc.weight");
    add(&l, 1, (int64_t[]){1000}, "fc.bias");
    return l.count == RESNET50_GRADIENTS ? l.parameters : -1;
}
