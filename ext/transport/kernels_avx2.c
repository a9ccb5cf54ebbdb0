/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_avx2.c - the kernels on 32-byte vectors (AVX2 and F16C). Compiles to nothing elsewhere.
 */
#include "kernels.h"

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
#include "kernels_vector.h"

INLINE vec load_f16(const void *from) { return (vec)_mm256_cvtph_ps(_mm_loadu_si128(from)); }

INLINE void store_f16(void *to, vec v)
{
    _mm_storeu_si128(to, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vec load_bf16(const void *from)
{
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16);
}

INLINE void store_bf16(void *to, vec v)
{
    v_u32 f = (v_u32)v, rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;
    vec nan = (vec)((v_f32)v != (v_f32)v);
    __m256i h = (__m256i)pick(nan, (vec)(f >> 16 | 0x40), (vec)rounded);
    __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, h), 0x08);
    _mm_storeu_si128(to, _mm256_castsi256_si128(pairs));
}

INLINE vec load_f32_as_f64(const void *from) { return (vec)_mm256_cvtps_pd(_mm_loadu_ps(from)); }

INLINE void store_f64_as_f32(void *to, vec v) { _mm_storeu_ps(to, _mm256_cvtpd_ps((__m256d)v)); }

#include "kernels_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
