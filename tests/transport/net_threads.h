/* SPDX-License-Identifier: Apache-2.0
 *
 * net_threads.h - ranks as threads, random numbers and values, for the tests of net and hierarchy.
 */
#ifndef HC_NET_THREADS_H
#define HC_NET_THREADS_H

#include "transport/net/local.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_RANKS 16

#define CHECK(what, ...)                                               \
    do {                                                               \
        if (!(what)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #what); \
            fprintf(stderr, __VA_ARGS__);                              \
            fprintf(stderr, "\n");                                     \
            exit(1);                                                   \
        }                                                              \
    } while (0)

/* Seconds in which this thread has had a core. The limit of a wait that spins counts these, because a loaded machine
 * gives the threads that it awaits no more. */
static inline int64_t own_seconds(void) {
    struct timespec had;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had);
    return had.tv_sec;
}

/* splitmix64: the same numbers on every rank from the same seed. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline int64_t below(uint64_t *state, int64_t bound) {
    return (int64_t)(next_random(state) % (uint64_t)bound);
}

/* Lets the other threads go first, now and then for some microseconds. */
static inline void dawdle(uint64_t *state) {
    int64_t what = below(state, 64);
    if (what == 0)
        nanosleep(&(struct timespec){0, 20000 + below(state, 50000)}, NULL);
    else if (what < 16)
        sched_yield();
}

/* Floats in (-2, 2), other types any bits (bool: 0 or 1). */
static inline void fill_random(void *to, int dtype, int64_t n, uint64_t seed) {
    double *values = malloc((size_t)n * 2 * sizeof *values + 8);
    char *bytes = to;
    int64_t parts = dtype == HC_COMPLEX64 || dtype == HC_COMPLEX128 ? 2 * n : n;
    int real = dtype == HC_COMPLEX64 ? HC_FLOAT32 : dtype == HC_COMPLEX128 ? HC_FLOAT64 : dtype;
    if (real >= HC_FLOAT16 && real <= HC_FLOAT64) {
        for (int64_t i = 0; i < parts; i++)
            values[i] = (double)(int64_t)next_random(&seed) * 0x1p-62;
        hc_host_convert(to, real, values, HC_FLOAT64, parts, 1.0);
    } else {
        for (int64_t i = 0; i < n * (int64_t)hc_dtype_size(dtype); i++)
            bytes[i] = (char)(next_random(&seed) & (dtype == HC_BOOL ? 1 : 255));
    }
    free(values);
}

/* n threads, each with its number. */
static void *run_one(void *);
typedef struct thread_start {
    void (*body)(int32_t);
    int32_t rank;
} thread_start;

static void *run_one(void *at) {
    thread_start *start = at;
    start->body(start->rank);
    return NULL;
}

static inline void run_threads(int32_t n, void (*body)(int32_t)) {
    pthread_t threads[MAX_RANKS];
    thread_start starts[MAX_RANKS];
    for (int32_t r = 0; r < n; r++) {
        starts[r] = (thread_start){body, r};
        CHECK(pthread_create(&threads[r], NULL, run_one, &starts[r]) == 0, "thread %d", (int)r);
    }
    for (int32_t r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
}

/* Machine epsilon (half an ulp, relative) and the least subnormal, of a float type. */
static inline double half_ulp(int dtype) {
    return dtype == HC_FLOAT16 ? 0x1p-11 : dtype == HC_BFLOAT16 ? 0x1p-8 : dtype == HC_FLOAT32 ? 0x1p-24 : 0x1p-53;
}

#endif
