/* SPDX-License-Identifier: Apache-2.0
 *
 * arithmetic.h - arithmetic on the elements of tensors: on the host, and, between nodes, in any kind of memory.
 */
#pragma once

#include "core/hc.h"
#include "core/reserve.h"
#include "transport/progress.h"

/* ---- for host memory ---------------------------------------------------------------------------------- */

void *hc_result_new(size_t bytes); /* 64-byte aligned; NULL: out of memory. bytes 0: a valid pointer */
void *hc_work_new(size_t bytes);   /* the same for the library's internal memory; falls back on the reserve */
void hc_result_free(void *);       /* also takes memory of malloc() */

/* Copies between regions that do not overlap, in private or shared memory. */
void hc_host_copy(void *to, const void *from, size_t bytes);
/* Copies many bytes into memory that other ranks read. STREAM bypasses the caches, and is ordered before the caller's
 * next writes. AUTO is not a copy: the rank chooses one of the two. */
enum hc_stores { HC_STORES_PLAIN, HC_STORES_STREAM, HC_STORES_AUTO };
#define HC_STREAM_LEAST ((size_t)4 << 10) /* of fewer bytes the fence costs more than the stores */
void hc_shared_copy(void *to, const void *from, size_t bytes, enum hc_stores);
/* 1: ordinary copies of many bytes use the processor's string instruction, because that is its fastest copy. */
int hc_host_copies_strings(void);
/* 1: ordinary stores are fast at any distance of the readers while the same few lines are written again and again. */
int hc_host_rewrites_fast(void);
int hc_stores_named(const char *); /* "auto", "plain", "stream"; AUTO for any other word */
/* to[i] = (to_dtype)(scale * from[i]); one rounding. Scale 1.0 and equal dtypes: a copy. */
void hc_host_convert(void *to, int to_dtype, const void *from, int from_dtype, int64_t n, double scale);
/* to[i] = (to_dtype)(scale * reduce over q of from[q][i] / divisor), q in order 0..n_from-1, float16 and bfloat16
 * accumulated in float32 with one rounding at the end. `to` may be one of from[]. Only AVERAGE divides: floats after
 * the factor, in the type of the accumulation, which is float64 for float32 and twice the precision of float64 for
 * float64; integers towards zero. If the dtypes are equal, a mean, or a sum times a factor, that is in the range of its
 * type is correct even if the sum overflows. */
void hc_host_reduce(void *to, int to_dtype, const void *const *from, int n_from, int from_dtype, int reduction,
                    int64_t n, double scale, double divisor);
void hc_host_divide(void *data, int dtype, int64_t n, int64_t divisor); /* integers, towards zero */
void hc_host_neutral(void *to, int dtype, int reduction, int64_t n);    /* fills n elements */

/* 1: it makes even a single value 0 or 1. */
static inline int hc_reduction_is_logical(int reduction) {
    return reduction == HC_LAND || reduction == HC_LOR || reduction == HC_LXOR;
}
/* 1 where the combination is defined (docs/reductions, generated from this). */
int hc_reduction_defined(int reduction, int dtype);
/* Which vector code runs: "avx512", "avx2", "portable". The configuration reads HPCCOLL_SIMD and sets it here once. */
const char *hc_kernels_name(void);
int hc_kernels_select(const char *name); /* "auto" or a name; INVALID where the CPU lacks it. [before start] */

/* ---- between nodes -------------------------------------------------------------------------------- */

/* Memory of one kind and the arithmetic on it, for the algorithms of the net. An operation may return before it has
 * ended. Operations run in order; call ended() before the result is sent. */
typedef struct hc_arithmetic hc_arithmetic;
struct hc_arithmetic {
    const struct hc_arithmetic_ops *ops;
    uint64_t issued;        /* number of operations so far; always 0 if operations end before they return */
    uint8_t whole_messages; /* do not split messages from this memory into message_bytes of the net */
    uint8_t keeps_range;    /* a mean of values in range is correct even if their sum overflows */
};
struct hc_arithmetic_ops {
    void *(*alloc)(hc_arithmetic *, size_t bytes);
    void (*release)(hc_arithmetic *, void *); /* issued operations may still use it */
    /* As hc_host_convert() with scale 1: OK, or a status. */
    int (*convert)(hc_arithmetic *, void *to, int to_dtype, const void *from, int from_dtype, int64_t n);
    /* As hc_host_reduce() with scale 1 and equal dtypes. */
    int (*reduce)(hc_arithmetic *, void *to, const void *const *from, int n_from, int dtype, int reduction, int64_t n,
                  double divisor);
    /* HC_DONE: the first `issued` operations have ended; HC_IDLE: not yet; or a status. */
    int (*ended)(hc_arithmetic *, uint64_t issued);
};
extern hc_arithmetic hc_host_arithmetic; /* constant; shared by all threads */
