/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_host.c - the pack kernels (ext/cuda/pack.cu) compiled for the host: one thread after the other does its part.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "fake.h"

static struct index {
    unsigned x;
} threadIdx, blockIdx, gridDim;

#define HC_PACK_ON_HOST 1
#define KERNEL static void
#define INLINE static inline
#define UNROLL
#define ROLLED

__extension__ typedef _Float16 float16;

static float from_f16(unsigned short x) {
    float16 half;
    memcpy(&half, &x, sizeof half);
    return (float)half;
}
static unsigned short f64_to_f16(double x) {
    float16 half = (float16)x;
    unsigned short bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
static unsigned short f32_to_f16(float x) {
    return f64_to_f16((double)x);
}
static float as_float(unsigned x) {
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static unsigned as_bits(float x) {
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}
/* A device faults on what is not aligned; so does this. */
static void load16(unsigned *to, unsigned long long from) {
    assert(from % 16 == 0);
    memcpy(to, (const void *)(uintptr_t)from, 16);
}
static void store16(unsigned long long to, const unsigned *from) {
    assert(to % 16 == 0);
    memcpy((void *)(uintptr_t)to, from, 16);
}
static unsigned long long load8(unsigned long long from) {
    assert(from % 8 == 0);
    return *(const unsigned long long *)(uintptr_t)from;
}

#include "cuda/pack.cu"

#define RUN(name)                                                            \
    static void run_##name(const void *job, unsigned grid, unsigned block) { \
        assert(block == HC_PACK_THREADS);                                    \
        gridDim.x = grid;                                                    \
        for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)                \
            for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)        \
                hc_pack_##name(*(const hc_pack_job *)job);                   \
    }                                                                        \
    extern const fake_kernel kernel_hc_pack_##name;                          \
    const fake_kernel kernel_hc_pack_##name = {sizeof(hc_pack_job), run_##name};

#define RUN_FROM(from) RUN(from##_f16) RUN(from##_bf16) RUN(from##_f32) RUN(from##_f64)
RUN_FROM(f16)
RUN_FROM(bf16)
RUN_FROM(f32)
RUN_FROM(f64)
RUN(copy1)
RUN(copy2)
RUN(copy4)
RUN(copy8)
