/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_portable.c - the kernels in plain C on 16-byte vectors: SSE2, NEON, VSX, or what the compiler makes of it.
 *
 * Its integer arithmetic for the two half-width floats is also the definition that the instructions of the
 * other sets are tested against.
 */
#include "kernels.h"

#define HC__VECTOR_BYTES 16
#define HC__KERNELS hc__kernels_portable
#define HC__NAME "portable"
#include "kernels_vector.h"

typedef struct quarter {
    uint16_t x[FLOATS];
} quarter;

INLINE v_u32 load_halves(const void *from)
{
    quarter q;
    memcpy(&q, from, sizeof q);
    return (v_u32){q.x[0], q.x[1], q.x[2], q.x[3]};
}

INLINE void store_halves(void *to, v_u32 v)
{
    quarter q = {{(uint16_t)v[0], (uint16_t)v[1], (uint16_t)v[2], (uint16_t)v[3]}};
    memcpy(to, &q, sizeof q);
}

/* After F. Giesen, "half_to_float_fast5": the exponent is moved; subnormals are normalised by a subtraction. */
INLINE vec load_f16(const void *from)
{
    v_u32 h = load_halves(from), moved = (h & 0x7fff) << 13, exponent = h & 0x7c00;
    vec nan = (vec)((h & 0x7fff) > 0x7c00), special = (vec)(exponent == 0x7c00), small = (vec)(exponent == 0);
    v_u32 normal = moved + (112u << 23);
    v_u32 infinite = (moved + (224u << 23)) | ((v_u32)nan & 0x400000); /* a NaN becomes quiet */
    v_f32 subnormal = (v_f32)(moved + (113u << 23)) - (v_f32)((v_u32){0} + (113u << 23));
    vec magnitude = pick(special, (vec)infinite, pick(small, (vec)subnormal, (vec)normal));
    return magnitude | (vec)((h & 0x8000) << 16);
}

/* After F. Giesen, "float_to_half_fast3_rtne": to nearest, ties to even; beyond 65504 infinity. */
INLINE void store_f16(void *to, vec v)
{
    v_u32 f = (v_u32)v, magnitude = f & 0x7fffffff, half_ulp = (v_u32){0} + (126u << 23);
    vec nan = (vec)(magnitude > 0x7f800000), large = (vec)(magnitude >= 0x47800000), small = (vec)(magnitude < 0x38800000);
    v_u32 infinite = 0x7c00 | ((v_u32)nan & (0x200 | (magnitude >> 13 & 0x3ff)));
    v_u32 subnormal = (v_u32)((v_f32)magnitude + (v_f32)half_ulp) - half_ulp; /* the addition rounds */
    v_u32 normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    vec h = pick(large, (vec)infinite, pick(small, (vec)subnormal, (vec)normal));
    store_halves(to, (v_u32)h | (f >> 16 & 0x8000));
}

INLINE vec load_bf16(const void *from) { return (vec)(load_halves(from) << 16); }

INLINE void store_bf16(void *to, vec v)
{
    v_u32 f = (v_u32)v, rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;
    vec nan = (vec)((f & 0x7fffffff) > 0x7f800000);
    store_halves(to, (v_u32)pick(nan, (vec)(f >> 16 | 0x40), (vec)rounded));
}

INLINE vec load_f32_as_f64(const void *from)
{
    float x[DOUBLES];
    memcpy(x, from, sizeof x);
    return (vec)(v_f64){x[0], x[1]};
}

INLINE void store_f64_as_f32(void *to, vec v)
{
    v_f64 d = (v_f64)v;
    float x[DOUBLES] = {(float)d[0], (float)d[1]};
    memcpy(to, x, sizeof x);
}

#include "kernels_table.h"
