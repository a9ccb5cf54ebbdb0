/* SPDX-License-Identifier: Apache-2.0
 *
 * avx512.c - the kernels on 64-byte vectors (AVX-512 F, BW, DQ and VL). Compiles to nothing elsewhere.
 *
 * The instructions for bfloat16 (AVX512_BF16) are not used: they treat subnormal numbers as zero.
 */
#include "transport/kernels/kernels.h"

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
/* One masked addition, which compilers do not find by themselves. */
#define ADD_TO_NUMBERS(X, Y)                                                                              \
    (v_u32) _mm512_mask_add_epi32((__m512i)(X), _mm512_cmp_ps_mask((__m512)(X), (__m512)(X), _CMP_ORD_Q), \
                                  (__m512i)(X), (__m512i)(Y))
#include "transport/kernels/vector.h"

INLINE int has_bits(vec v) {
    return _mm512_test_epi64_mask((__m512i)v, (__m512i)v) != 0;
}

INLINE void stream_vec(char *to, vec v) {
    _mm512_stream_si512((__m512i *)(void *)to, (__m512i)v);
}

INLINE void stream_fence(void) {
    _mm_sfence();
}

INLINE pair load_f16(const void *from) {
    const __m256i *h = from;
    return (pair){(vec)_mm512_cvtph_ps(_mm256_loadu_si256(h)), (vec)_mm512_cvtph_ps(_mm256_loadu_si256(h + 1))};
}

INLINE void store_f16(void *to, pair p) {
    __m256i *h = to;
    _mm256_storeu_si256(h, _mm512_cvtps_ph((__m512)p.a, _MM_FROUND_TO_NEAREST_INT));
    _mm256_storeu_si256(h + 1, _mm512_cvtps_ph((__m512)p.b, _MM_FROUND_TO_NEAREST_INT));
}

INLINE pair load_bf16(const void *from) {
    const __m256i *h = from;
    return (pair){(vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(h)), 16),
                  (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(h + 1)), 16)};
}

INLINE void store_bf16(void *to, pair p) {
    const v_u32 upper = {0x30001,  0x70005,  0xb0009,  0xf000d,  0x130011, 0x170015, 0x1b0019, 0x1f001d,
                         0x230021, 0x270025, 0x2b0029, 0x2f002d, 0x330031, 0x370035, 0x3b0039, 0x3f003d};
    v_u32 a = round_bf16(p.a), b = round_bf16(p.b);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16((__m512i)a, (__m512i)upper, (__m512i)b));
}

INLINE pair load_f32_as_f64(const void *from) {
    const float *f = from;
    return (pair){(vec)_mm512_cvtps_pd(_mm256_loadu_ps(f)), (vec)_mm512_cvtps_pd(_mm256_loadu_ps(f + DOUBLES))};
}

INLINE void store_f64_as_f32(void *to, pair p) {
    float *f = to;
    _mm256_storeu_ps(f, _mm512_cvtpd_ps((__m512d)p.a));
    _mm256_storeu_ps(f + DOUBLES, _mm512_cvtpd_ps((__m512d)p.b));
}

#include "transport/kernels/table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
