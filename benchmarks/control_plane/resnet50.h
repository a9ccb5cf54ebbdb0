/* SPDX-License-Identifier: Apache-2.0
 *
 * resnet50.h - names and shapes of ResNet-50's 161 gradients, in the order of the forward pass.
 */
#ifndef RESNET50_H
#define RESNET50_H

#include <stdint.h>

enum { GRADIENTS = 161 };

typedef struct gradient {
    char name[48];
    int ndim;
    int64_t dims[4];
} gradient;

/* He et al. 2016, table 1 (50 layers, 1000 classes): 25,557,032 parameters. Returns how many. */
int64_t resnet50_gradients(gradient out[GRADIENTS]);

#endif
