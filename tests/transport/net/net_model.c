/* SPDX-License-Identifier: Apache-2.0
 *
 * net_model.c - prints what the model chooses, and what it predicts, by members, type and bytes.
 */
#include "transport/net/algorithms.h"

#include <stdio.h>

int main(void) {
    static const int32_t members[] = {2, 3, 4, 8, 64, 4608};
    static const int types[] = {HC_FLOAT32, HC_FLOAT16};
    static const int64_t sizes[] = {64, 4096, 262144, 67108864};
    const hc__net_model model = {2e-5, 1e-9, 1e-10};
    hc__splits splits;
    printf("members type bytes-of-float32 choice form microseconds\n");
    for (size_t m = 0; m < sizeof members / sizeof *members; m++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                hc__sum sum = {.count = sizes[i] / 4, .dtype = (uint8_t)types[t], .reduction = HC_SUM};
                hc__splits_of(members[m], 0, &splits);
                hc__choice choice = hc__net_choose(&model, &splits, HC__AUTO, &sum);
                printf("%d %s %lld %s %s %.0f", members[m], hc_dtype_name(types[t]), (long long)sizes[i],
                       hc__algorithm_name(choice.algorithm), choice.whole ? "whole" : "parts", 1e6 * choice.seconds);
                for (int32_t stage = 0; choice.stages && stage < choice.stages->depth; stage++)
                    printf(" %d", choice.stages->radix[stage]);
                printf("\n");
            }
    return 0;
}
