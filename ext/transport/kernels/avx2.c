/* SPDX-License-Identifier: Apache-2.0
 *
 * avx2.c - the kernels on 32-byte vectors (AVX2 and F16C). Compiles to nothing elsewhere.
 */
#include "transport/kernels/kernels.h"

#ifdef HC__KERNELS_X86
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define HC__VECTOR_BYTES 32
#define HC__KERNELS hc__kernels_avx2
#define HC__NAME "avx2"
#include "transport/kernels/vector.h"

INLINE int has_bits(vec v) {
    return !_mm256_testz_si256((__m256i)v, (__m256i)v);
}

INLINE void stream_vec(char *to, vec v) {
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)v);
}

INLINE void stream_fence(void) {
    _mm_sfence();
}

INLINE pair load_f16(const void *from) {
    const __m128i *h = from;
    return (pair){(vec)_mm256_cvtph_ps(_mm_loadu_si128(h)), (vec)_mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}

INLINE void store_f16(void *to, pair p) {
    __m128i *h = to;
    _mm_storeu_si128(h, _mm256_cvtps_ph((__m256)p.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(h + 1, _mm256_cvtps_ph((__m256)p.b, _MM_FROUND_TO_NEAREST_INT));
}

/* Unpack and pack work inside each half of a vector, so its middle quarters are swapped before and after. */
#define MIDDLE_QUARTERS_SWAPPED 0xd8

INLINE pair load_bf16(const void *from) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i h = _mm256_permute4x64_epi64(_mm256_loadu_si256(from), MIDDLE_QUARTERS_SWAPPED);
    return (pair){(vec)_mm256_unpacklo_epi16(zero, h), (vec)_mm256_unpackhi_epi16(zero, h)};
}

INLINE void store_bf16(void *to, pair p) {
    v_u32 a = round_bf16(p.a) >> 16, b = round_bf16(p.b) >> 16;
    __m256i h = _mm256_packus_epi32((__m256i)a, (__m256i)b);
    _mm256_storeu_si256(to, _mm256_permute4x64_epi64(h, MIDDLE_QUARTERS_SWAPPED));
}

INLINE pair load_f32_as_f64(const void *from) {
    const float *f = from;
    return (pair){(vec)_mm256_cvtps_pd(_mm_loadu_ps(f)), (vec)_mm256_cvtps_pd(_mm_loadu_ps(f + DOUBLES))};
}

INLINE void store_f64_as_f32(void *to, pair p) {
    float *f = to;
    _mm_storeu_ps(f, _mm256_cvtpd_ps((__m256d)p.a));
    _mm_storeu_ps(f + DOUBLES, _mm256_cvtpd_ps((__m256d)p.b));
}

#include "transport/kernels/table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
