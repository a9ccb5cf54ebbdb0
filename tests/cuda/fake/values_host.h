/* SPDX-License-Identifier: Apache-2.0
 *
 * values_host.h - the first part of ext/cuda/values.h for kernels that are compiled for the host, and how they are run:
 * one thread after the other does its part.
 */
#ifndef VALUES_HOST_H
#define VALUES_HOST_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "fake.h"

static struct index {
    unsigned x;
} threadIdx, blockIdx, gridDim;

#define HC_ON_HOST 1
#define KERNEL(threads) static void
#define INLINE static inline
#define UNROLL
#define ROLLED

__extension__ typedef _Float16 float16;

INLINE float from_f16(unsigned short x) {
    float16 half;
    memcpy(&half, &x, sizeof half);
    return (float)half;
}
INLINE unsigned short f64_to_f16(double x) {
    float16 half = (float16)x;
    unsigned short bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
INLINE unsigned short f32_to_f16(float x) {
    return f64_to_f16((double)x);
}
INLINE float as_float(unsigned x) {
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
INLINE unsigned as_bits(float x) {
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}
/* A device faults on what is not aligned; so does this. */
INLINE void load4(unsigned *to, unsigned long long from) {
    assert(from % 4 == 0);
    memcpy(to, (const void *)(uintptr_t)from, 4);
}
INLINE void load_pair(unsigned *to, unsigned long long from) {
    assert(from % 8 == 0);
    memcpy(to, (const void *)(uintptr_t)from, 8);
}
INLINE void store4(unsigned long long to, const unsigned *from) {
    assert(to % 4 == 0);
    memcpy((void *)(uintptr_t)to, from, 4);
}
INLINE void store_pair(unsigned long long to, const unsigned *from) {
    assert(to % 8 == 0);
    memcpy((void *)(uintptr_t)to, from, 8);
}
INLINE void load16(unsigned *to, unsigned long long from) {
    assert(from % 16 == 0);
    memcpy(to, (const void *)(uintptr_t)from, 16);
}
INLINE void store16(unsigned long long to, const unsigned *from) {
    assert(to % 16 == 0);
    memcpy((void *)(uintptr_t)to, from, 16);
}
INLINE unsigned long long load8(unsigned long long from) {
    assert(from % 8 == 0);
    return *(const unsigned long long *)(uintptr_t)from;
}

#define RUN(name, job_type, threads)                                         \
    static void run_##name(const void *job, unsigned grid, unsigned block) { \
        assert(block == threads);                                            \
        gridDim.x = grid;                                                    \
        for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)                \
            for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)        \
                name(*(const job_type *)job);                                \
    }                                                                        \
    extern const fake_kernel kernel_##name;                                  \
    const fake_kernel kernel_##name = {sizeof(job_type), run_##name};

#endif
