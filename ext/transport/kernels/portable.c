/* SPDX-License-Identifier: Apache-2.0
 *
 * portable.c - the kernels in plain C on 16-byte vectors: SSE2, NEON, VSX or what the compiler has.
 *
 * Its integer arithmetic for float16 is also the reference in the tests of the other sets.
 */
#include "transport/kernels/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <emmintrin.h>
#endif

#define HC__VECTOR_BYTES 16
#define HC__KERNELS hc__kernels_portable
#define HC__NAME "portable"
#include "transport/kernels/vector.h"

INLINE int has_bits(vec v) {
    return (v[0] | v[1]) != 0;
}

/* Other processors have no streaming stores (POWER: only for whole lines of zeros), or only a hint whose effect here is
 * not measured (stnp of aarch64). There both copies are the same. */
#if defined(__x86_64__)

INLINE void stream_vec(char *to, vec v) {
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)v);
}

INLINE void stream_fence(void) {
    _mm_sfence();
}

#else

INLINE void stream_vec(char *to, vec v) {
    store_vec(to, v);
}

INLINE void stream_fence(void) {}

#endif

/* Eight halves as two vectors of four, zero-extended, and back. */
INLINE pair load_halves(const void *from) {
    v_u32 both;
    memcpy(&both, from, sizeof both);
    v_u32 even = both & 0xffff, odd = both >> 16;
    v_u32 a = {even[0], odd[0], even[1], odd[1]}, b = {even[2], odd[2], even[3], odd[3]};
    return (pair){(vec)a, (vec)b};
}

INLINE void store_halves(void *to, v_u32 a, v_u32 b) {
    v_u32 even = {a[0], a[2], b[0], b[2]}, odd = {a[1], a[3], b[1], b[3]}, both = even | odd << 16;
    memcpy(to, &both, sizeof both);
}

#if defined(__aarch64__) /* all of them have instructions for the conversion */

INLINE pair load_f16(const void *from) {
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(from));
    return (pair){(vec)vcvt_f32_f16(vget_low_f16(h)), (vec)vcvt_high_f32_f16(h)};
}

INLINE void store_f16(void *to, pair p) {
    float16x8_t h = vcvt_high_f16_f32(vcvt_f16_f32((float32x4_t)p.a), (float32x4_t)p.b);
    vst1q_u8(to, vreinterpretq_u8_f16(h));
}

#else

/* After F. Giesen, "half_to_float_fast5": the exponent is moved, a subtraction normalises the subnormals. */
INLINE vec widen_f16(vec v) {
    v_u32 h = (v_u32)v, moved = (h & 0x7fff) << 13;
    v_i32 magnitude = (v_i32)(h & 0x7fff);
    v_u32 normal = moved + (112u << 23);
    v_u32 quiet = (v_u32)(magnitude > 0x7c00) & 0x400000;
    v_u32 special = (moved + (224u << 23)) | quiet;
    v_f32 subnormal = (v_f32)(moved + (113u << 23)) - (v_f32)((v_u32){0} + (113u << 23));
    vec finite = pick((vec)(magnitude < 0x400), (vec)subnormal, (vec)normal);
    return pick((vec)(magnitude >= 0x7c00), (vec)special, finite) | (vec)((h & 0x8000) << 16);
}

/* After F. Giesen, "float_to_half_fast3_rtne": to nearest, ties to even; beyond 65504 is infinity. */
INLINE v_u32 narrow_f16(vec v) {
    v_u32 f = (v_u32)v, magnitude = f & 0x7fffffff, half = (v_u32){0} + (126u << 23);
    v_i32 order = (v_i32)magnitude;
    v_u32 normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    v_u32 special = 0x7c00 | ((v_u32)(order > 0x7f800000) & (0x200 | (magnitude >> 13 & 0x3ff)));
    v_u32 subnormal = (v_u32)((v_f32)magnitude + (v_f32)half) - half; /* the addition rounds */
    vec finite = pick((vec)(order < 0x38800000), (vec)subnormal, (vec)normal);
    return (v_u32)pick((vec)(order >= 0x47800000), (vec)special, finite) | (f >> 16 & 0x8000);
}

INLINE pair load_f16(const void *from) {
    pair h = load_halves(from);
    return (pair){widen_f16(h.a), widen_f16(h.b)};
}

INLINE void store_f16(void *to, pair p) {
    store_halves(to, narrow_f16(p.a), narrow_f16(p.b));
}

#endif

INLINE pair load_bf16(const void *from) {
    pair h = load_halves(from);
    return (pair){(vec)((v_u32)h.a << 16), (vec)((v_u32)h.b << 16)};
}

INLINE void store_bf16(void *to, pair p) {
    store_halves(to, round_bf16(p.a) >> 16, round_bf16(p.b) >> 16);
}

INLINE pair load_f32_as_f64(const void *from) {
    float x[4];
    memcpy(x, from, sizeof x);
    return (pair){(vec)(v_f64){x[0], x[1]}, (vec)(v_f64){x[2], x[3]}};
}

INLINE void store_f64_as_f32(void *to, pair p) {
    v_f64 a = (v_f64)p.a, b = (v_f64)p.b;
    float x[4] = {(float)a[0], (float)a[1], (float)b[0], (float)b[1]};
    memcpy(to, x, sizeof x);
}

#include "transport/kernels/table.h"
