/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.h - the interface of one set of vector code; private to the kernels and to host_arithmetic.c.
 *
 * All sets compute equal bits; only the payload of a NaN made from two NaNs depends on the processor.
 */
#pragma once

#include "transport/arithmetic.h"

/* to = scale * reduce over from[0..n_from-1] / divisor, element by element, over `bytes` bytes of each. Only SUM and
 * AVERAGE of floats use `scale`, only AVERAGE of floats uses `divisor`. `to` may be one of from[]. */
typedef void hc__reduce_fn(void *to, const void *const *from, int n_from, int64_t bytes, double scale, double divisor);
/* to[i] = scale * from[i] for n elements. */
typedef void hc__convert_fn(void *to, const void *from, int64_t n, double scale);

/* Copies n bytes between regions that do not overlap. */
typedef void hc__copy_fn(void *to, const void *from, int64_t n);

typedef struct hc__kernels {
    const char *name;
    hc__copy_fn *copy[2];                                      /* by enum hc_stores */
    hc__reduce_fn *reduce[HC_REDUCTION_COUNT][HC_DTYPE_COUNT]; /* NULL: not defined */
    hc__convert_fn *convert[HC_DTYPE_COUNT][HC_DTYPE_COUNT];   /* [from][to]; NULL: not defined */
} hc__kernels;

extern const hc__kernels hc__kernels_portable;
#if defined(__x86_64__)
#define HC__KERNELS_X86 1
extern const hc__kernels hc__kernels_avx2, hc__kernels_avx512;
#endif

const hc__kernels *hc__kernels_chosen(void); /* [any thread] */
/* Copies 8 KiB and more by ordinary stores. [any thread] */
hc__copy_fn *hc__copy_of_many(void);
