/* SPDX-License-Identifier: Apache-2.0
 *
 * sum_loop.h - one kernel of sum.cu: adds elements of type T as WIDE. WIDEN and NARROW convert; by default WIDE is T.
 * DIVIDE makes the mean.
 */
#ifndef WIDE
#define WIDE T
#define WIDEN(x) (x)
#define NARROW(x) (x)
#endif
#define NAME(part) JOIN(part, T)
#define LANES (16 / (int)sizeof(T))

typedef union {
    unsigned word[4];
    T x[LANES];
} NAME(vector_);

#define FOLD(MADE)                        \
    UNROLL for (int i = 0; i < n; i++) {  \
        WIDE a = sum[i], b = WIDEN(x[i]); \
        sum[i] = MADE(a, b);              \
    }

/* One branch per n elements; n is a constant. */
INLINE void NAME(fold_)(WIDE *sum, const T *x, int n, unsigned operation) {
    if (operation == HC_SUM_ADD) {
        FOLD(ADD)
    } else if (operation == HC_SUM_MULTIPLY) {
        FOLD(MULTIPLY)
    } else if (operation == HC_SUM_LEAST) {
        FOLD(LEAST)
    } else {
        FOLD(GREATEST)
    }
}

INLINE void NAME(vector_at_)(const hc_sum_job *job, unsigned long long v) {
    NAME(vector_) held;
    WIDE sum[LANES];
    load16(held.word, job->from[0] + v * sizeof held);
    UNROLL for (int i = 0; i < LANES; i++) sum[i] = WIDEN(held.x[i]);
    ROLLED for (unsigned q = 1; q < job->sources; q++) {
        load16(held.word, job->from[q] + v * sizeof held);
        NAME(fold_)(sum, held.x, LANES, job->operation);
    }
    UNROLL for (int i = 0; i < LANES; i++) held.x[i] = NARROW(DIVIDE(sum[i], (WIDE)job->divisor));
    store16(job->to + v * sizeof held, held.word);
}

INLINE void NAME(element_at_)(const hc_sum_job *job, unsigned long long i) {
    WIDE sum = WIDEN(((const T *)job->from[0])[i]);
    ROLLED for (unsigned q = 1; q < job->sources; q++)
        NAME(fold_)(&sum, (const T *)job->from[q] + i, 1, job->operation);
    ((T *)job->to)[i] = NARROW(DIVIDE(sum, (WIDE)job->divisor));
}

KERNEL(HC_SUM_THREADS) NAME(hc_sum_)(const hc_sum_job job) {
    unsigned long long first = (unsigned long long)blockIdx.x * HC_SUM_THREADS + threadIdx.x;
    unsigned long long stride = (unsigned long long)gridDim.x * HC_SUM_THREADS;
    ROLLED for (unsigned long long v = first; v < job.vectors; v += stride) NAME(vector_at_)(&job, v);
    ROLLED for (unsigned long long i = job.vectors * LANES + first; i < job.count; i += stride)
        NAME(element_at_)(&job, i);
}

#undef T
#undef WIDE
#undef WIDEN
#undef NARROW
#undef UNSIGNED
#undef NAME
#undef LANES
#undef FOLD
