/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h - the kernels' types, their conversions, and accesses of 16 bytes.
 *
 * It includes no other header. The tests compile the kernels for the host, with their version of the first part
 * (tests/cuda/fake/values_host.h).
 */
#ifndef HC_VALUES_H
#define HC_VALUES_H

#ifndef HC_ON_HOST
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define INLINE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1") /* the driver compiles the text: keep it short */

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
/* 4, 8 or 16 bytes in one access. */
INLINE void load4(unsigned *to, unsigned long long from) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(to[0]) : "l"(from));
}
INLINE void load_pair(unsigned *to, unsigned long long from) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
}
INLINE void load16(unsigned *to, unsigned long long from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}
INLINE void store4(unsigned long long to, const unsigned *from) {
    asm volatile("st.global.u32 [%0], %1;" : : "l"(to), "r"(from[0]) : "memory");
}
INLINE void store_pair(unsigned long long to, const unsigned *from) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" : : "l"(to), "r"(from[0]), "r"(from[1]) : "memory");
}
INLINE void store16(unsigned long long to, const unsigned *from) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}
/* Reads a word of the table in device memory. As asm, so that the compiler does not merge this with the reads of
 * entries in the arguments. */
INLINE unsigned long long load8(unsigned long long from) {
    unsigned long long x;
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(x) : "l"(from));
    return x;
}
#endif

/* ---- values ----------------------------------------------------------------------------------------- */

/* `bytes` is a constant: 4, 8 or 16. */
INLINE void load_words(unsigned *to, unsigned long long from, int bytes) {
    if (bytes == 16)
        load16(to, from);
    else if (bytes == 8)
        load_pair(to, from);
    else
        load4(to, from);
}
INLINE void store_words(unsigned long long to, const unsigned *from, int bytes) {
    if (bytes == 16)
        store16(to, from);
    else if (bytes == 8)
        store_pair(to, from);
    else
        store4(to, from);
}

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

/* To nearest, ties to even; a NaN stays a NaN. */
INLINE bf16 f32_to_bf16(float x) {
    unsigned bits = as_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (bf16)(bits >> 16 | 0x40u);
    return (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* First rounds to odd in float32, which makes the second rounding exact (Boldo and Melquiond, 2008). */
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

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

#endif
