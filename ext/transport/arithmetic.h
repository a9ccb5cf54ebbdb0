/* SPDX-License-Identifier: Apache-2.0
 *
 * arithmetic.h - what is computed from the elements of tensors: on the host at once, and between nodes on whatever
 * memory the data lies in.
 */
#ifndef HC_ARITHMETIC_H
#define HC_ARITHMETIC_H

#include "core/hc.h"
#include "core/reserve.h"
#include "transport/progress.h"

/* ---- the host's ---------------------------------------------------------------------------------- */

void *hc_result_new(size_t bytes); /* 64-byte aligned; NULL: out of memory. bytes 0: a valid pointer */
void *hc_work_new(size_t bytes);   /* the same for what only the library needs; the reserve has some */
void hc_result_free(void *);       /* also what is of malloc() */

/* Between regions that are apart, in private or in shared memory. */
void hc_host_copy(void *to, const void *from, size_t bytes);
/* The same into memory that other ranks read, many bytes. STREAM writes past the caches, and is ordered before what the
 * caller writes next. AUTO is none of the copies: a rank chooses between them. */
enum hc_stores { HC_STORES_PLAIN, HC_STORES_STREAM, HC_STORES_AUTO };
void hc_shared_copy(void *to, const void *from, size_t bytes, enum hc_stores);
int hc_stores_named(const char *); /* "auto", "plain", "stream"; AUTO for any other word */
/* to[i] = (to_dtype)(scale * from[i]); one rounding. Scale 1.0 and equal dtypes: a copy. */
void hc_host_convert(void *to, int to_dtype, const void *from, int from_dtype, int64_t n, double scale);
/* to[i] = (to_dtype)(scale * reduce over q of from[q][i] / divisor), q in order 0..n_from-1, float16 and bfloat16
 * accumulated in float32 with one rounding at the end. `to` may be one of from[].
 * AVERAGE alone divides: floats after the factor, in the type that they are added up in, which is float64 for float32,
 * and twice the precision of float64 for float64; integers towards zero.
 * Where the dtypes are equal, a result that is in the range of its type is not lost because the sum is not: a mean, and
 * a sum times a factor. */
void hc_host_reduce(void *to, int to_dtype, const void *const *from, int n_from, int from_dtype, int reduction,
                    int64_t n, double scale, double divisor);
void hc_host_divide(void *data, int dtype, int64_t n, int64_t divisor); /* integers, towards zero */
void hc_host_neutral(void *to, int dtype, int reduction, int64_t n);    /* fills n elements */

/* 1 where the combination is defined (docs/reductions, generated from this). */
int hc_reduction_defined(int reduction, int dtype);
/* Which vector code runs: "avx512", "avx2", "portable". The configuration reads HPCCOLL_SIMD and sets it here once. */
const char *hc_kernels_name(void);
int hc_kernels_select(const char *name); /* "auto" or a name; INVALID where the CPU lacks it. [before start] */

/* ---- between nodes -------------------------------------------------------------------------------- */

/* Memory of one kind and the arithmetic on it, for the algorithms of the net. An operation may only be begun when it
 * returns: each begins when the one before has ended, and what is sent waits for ended(). */
typedef struct hc_arithmetic hc_arithmetic;
struct hc_arithmetic {
    const struct hc_arithmetic_ops *ops;
    uint64_t begun;         /* operations so far; 0 where each has ended when it returns */
    uint8_t whole_messages; /* messages from this memory are not cut to the net's message_bytes */
    uint8_t keeps_range;    /* the mean of values in range is right, however large their sum */
};
struct hc_arithmetic_ops {
    void *(*alloc)(hc_arithmetic *, size_t bytes);
    void (*release)(hc_arithmetic *, void *); /* what was begun may still use it */
    /* As the host's, without a factor: OK, or a status. */
    int (*convert)(hc_arithmetic *, void *to, int to_dtype, const void *from, int from_dtype, int64_t n);
    /* From one dtype to itself. */
    int (*reduce)(hc_arithmetic *, void *to, const void *const *from, int n_from, int dtype, int reduction, int64_t n,
                  double divisor);
    /* The first `begun`: HC_DONE; HC_IDLE: they have not ended; or a status. */
    int (*ended)(hc_arithmetic *, uint64_t begun);
};
extern hc_arithmetic hc_host_arithmetic; /* never written to: shared by all threads */

#endif
