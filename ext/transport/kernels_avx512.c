/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_avx512.c - the kernels on 64-byte vectors (AVX-512 F, BW, DQ and VL). Compiles to nothing elsewhere.
 *
 * The instructions for bfloat16 (AVX512_BF16) are not used: they take subnormal numbers for zero.
 */
#include "kernels.h"

#ifdef HC__KERNELS_X86
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define HC__VECTOR_BYTES 64
#define HC__KERNELS hc__kernels_avx512
#define HC__NAME "avx512"
#include "kernels_vector.h"

INLINE vec load_f16(const void *from) { return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(from)); }

INLINE void store_f16(void *to, vec v)
{
    _mm256_storeu_si256(to, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vec load_bf16(const void *from)
{
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16);
}

INLINE void store_bf16(void *to, vec v)
{
    v_u32 f = (v_u32)v, rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    __m512i h = _mm512_mask_mov_epi32((__m512i)rounded, nan, (__m512i)(f >> 16 | 0x40));
    _mm256_storeu_si256(to, _mm512_cvtepi32_epi16(h));
}

INLINE vec load_f32_as_f64(const void *from) { return (vec)_mm512_cvtps_pd(_mm256_loadu_ps(from)); }

INLINE void store_f64_as_f32(void *to, vec v) { _mm256_storeu_ps(to, _mm512_cvtpd_ps((__m512d)v)); }

#include "kernels_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
