/* SPDX-License-Identifier: Apache-2.0
 *
 * net_model.c - prints what the model chooses, and what it predicts, by members, type and bytes.
 */
#include "transport/net/algorithms.h"

#include <stdio.h>

int main(void) {
    static const int32_t members[] = {2, 3, 4, 8, 64, 4608};
    static const int types[] = {HC_FLOAT32, HC_FLOAT16};
    const hc__net_model model = {2e-5, 1e-9, 1e-10};
    printf("members type bytes choice whole");
    for (int a = 0; a < HC__ALGORITHM_COUNT; a++)
        printf(" %s", hc__algorithm_name(a));
    printf("   (microseconds)\n");
    for (size_t m = 0; m < sizeof members / sizeof *members; m++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (int64_t bytes = 64; bytes <= (int64_t)64 << 20; bytes *= 16) {
                int64_t shown = bytes > (int64_t)16 << 20 ? (int64_t)64 << 20 : bytes;
                int64_t count = shown / (int64_t)hc_dtype_size(types[t]);
                int choice = hc__net_choose(&model, members[m], count, types[t]);
                printf("%d %s %lld %s %s", members[m], hc_dtype_name(types[t]), (long long)shown,
                       hc__algorithm_name(choice),
                       hc__direct_whole(&model, members[m], count, types[t]) ? "whole" : "parts");
                for (int a = 0; a < HC__ALGORITHM_COUNT; a++)
                    printf(" %.0f", 1e6 * hc__net_cost(&model, a, members[m], count, types[t]));
                printf("\n");
            }
    return 0;
}
