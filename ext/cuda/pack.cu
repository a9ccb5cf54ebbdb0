/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.cu - gathers many tensors into the fusion buffer, with cast and scale, and spreads it again: one launch each.
 *
 * The work is cut into chunks of equal size whatever the tensors' sizes, and every block takes an equal run of them:
 * one search for the first, the next ones follow. (A fixed number of blocks a tensor, as is common, leaves most of the
 * device idle behind one large tensor.) Where both sides are aligned a thread moves 16 bytes at a time, several before it
 * stores any; else it moves elements, neighbouring threads neighbouring ones.
 *
 * Written in the part that C and CUDA share, without a header: the tests compile it for the host (tests/cuda/pack_host.c).
 * What is shipped is pack.ptx.inc, made from this by pack_ptx.py; a test compares.
 *     hc_pack_FROM_TO     f16 bf16 f32 f64: to = scale * from in float32, with a float64 in float64; one rounding
 *     hc_pack_copyN       elements of N bytes as they are
 */
#include "pack_job.h"

#ifndef HC_PACK_ON_HOST
#define KERNEL extern "C" __global__ void __launch_bounds__(HC_PACK_THREADS)
#define INLINE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1") /* the text is shipped, and compiled by the driver: keep it short */

INLINE float from_f16(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
INLINE unsigned short f32_to_f16(float x) {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
INLINE unsigned short f64_to_f16(double x) {
    unsigned short y;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y) : "d"(x));
    return y;
}
INLINE float as_float(unsigned x) {
    return __uint_as_float(x);
}
INLINE unsigned as_bits(float x) {
    return __float_as_uint(x);
}
/* 16 bytes in one access. */
INLINE void load16(unsigned *to, unsigned long long from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}
INLINE void store16(unsigned long long to, const unsigned *from) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}
/* Words of the table, whose address is not an argument's: asm, so that the two ways to an entry stay two. */
INLINE unsigned long long load8(unsigned long long from) {
    unsigned long long x;
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(x) : "l"(from));
    return x;
}
#endif

/* ---- values ----------------------------------------------------------------------------------------- */

typedef unsigned short f16, bf16;
typedef float f32;
typedef double f64;
typedef unsigned char copy1;
typedef unsigned short copy2;
typedef unsigned copy4;
typedef unsigned long long copy8;

INLINE float from_bf16(bf16 x) {
    return as_float((unsigned)x << 16);
}

/* To nearest, ties to even; a NaN stays one. */
INLINE bf16 f32_to_bf16(float x) {
    unsigned bits = as_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (bf16)(bits >> 16 | 0x40u);
    return (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* By way of float32 rounded to odd, which keeps what the second rounding must know (Boldo and Melquiond, 2008). */
INLINE bf16 f64_to_bf16(double x) {
    float near = (float)x;
    unsigned bits = as_bits(near);
    if ((double)near != x && x == x) {
        double size = x < 0 ? -x : x;
        if ((double)as_float(bits & 0x7fffffffu) > size)
            bits--; /* towards zero: infinity becomes the largest number */
        bits |= 1u;
    }
    return f32_to_bf16(as_float(bits));
}

INLINE float from_f32(float x) {
    return x;
}
INLINE double from_f64(double x) {
    return x;
}
INLINE f16 f16_of_float(float x) {
    return f32_to_f16(x);
}
INLINE f16 f16_of_double(double x) {
    return f64_to_f16(x);
}
INLINE bf16 bf16_of_float(float x) {
    return f32_to_bf16(x);
}
INLINE bf16 bf16_of_double(double x) {
    return f64_to_bf16(x);
}
INLINE f32 f32_of_float(float x) {
    return x;
}
INLINE f32 f32_of_double(double x) {
    return (float)x;
}
INLINE f64 f64_of_double(double x) {
    return x;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

INLINE unsigned first_chunk(const hc_pack_job *job, unsigned i) {
    if (job->table)
        return (unsigned)(load8(job->table + i * sizeof(hc_pack_entry) + 16) >> 32); /* place, first */
    return job->entry[i].first;
}

INLINE hc_pack_entry entry_of(const hc_pack_job *job, unsigned i) {
    if (job->table) {
        unsigned long long at = job->table + i * sizeof(hc_pack_entry), both = load8(at + 16);
        hc_pack_entry entry;
        entry.tensor = load8(at);
        entry.count = load8(at + 8);
        entry.place = (unsigned)both;
        entry.first = (unsigned)(both >> 32);
        return entry;
    }
    return job->entry[i];
}

/* The last entry that begins at `chunk` or before. */
INLINE unsigned entry_with(const hc_pack_job *job, unsigned chunk) {
    unsigned low = 0, high = job->entries;
    ROLLED while (high - low > 1) {
        unsigned middle = low + (high - low) / 2;
        if (first_chunk(job, middle) <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The first of the chunks that a block does: runs of equal length, to within one. */
INLINE unsigned share_of(unsigned chunks, unsigned block, unsigned blocks) {
    unsigned more = chunks % blocks;
    return chunks / blocks * block + (block < more ? block : more);
}

/* ---- the kernels: pack_loop.h once for each pair of types ------------------------------------------------ */

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

#define FROM f16
#define REAL float
#include "pack_to.h"
#define FROM bf16
#define REAL float
#include "pack_to.h"
#define FROM f32
#define REAL float
#include "pack_to.h"
#define FROM f64
#define REAL double
#include "pack_to.h"

#define COPY copy1
#include "pack_loop.h"
#define COPY copy2
#include "pack_loop.h"
#define COPY copy4
#include "pack_loop.h"
#define COPY copy8
#include "pack_loop.h"
