/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c - repeats one call of the host's memory functions; kernels.py holds the clock.
 */
#include "transport/transport.h"

void repeat_copy(int times, void *to, const void *from, size_t bytes) {
    while (times--)
        hc_host_copy(to, from, bytes);
}

void repeat_convert(int times, void *to, int to_dtype, const void *from, int from_dtype, int64_t n) {
    while (times--)
        hc_host_convert(to, to_dtype, from, from_dtype, n, 1.0);
}

void repeat_reduce(int times, void *to, int to_dtype, const void *const *from, int n_from, int from_dtype,
                   int reduction, int64_t n) {
    while (times--)
        hc_host_reduce(to, to_dtype, from, n_from, from_dtype, reduction, n, 1.0,
                       reduction == HC_AVERAGE ? n_from : 1.0);
}
