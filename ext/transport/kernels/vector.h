/* SPDX-License-Identifier: Apache-2.0
 *
 * vector.h - vectors of HC__VECTOR_BYTES bytes, by the vector extension of gcc and clang.
 *
 * With plain loops the speed would depend on -O3, and on the compiler's proof that `to` and from[] do not overlap (they
 * may be one array). Define HC__VECTOR_BYTES before the include and, after it, the conversions that table.h lists.
 */
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels are written for little-endian machines"
#endif

/* A product and a sum must round twice, or the bits of the sets would differ. */
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define VECTOR(T) __attribute__((vector_size(HC__VECTOR_BYTES))) T
#define INLINE static inline __attribute__((always_inline, unused))

typedef VECTOR(uint8_t) v_u8;
typedef VECTOR(uint16_t) v_u16;
typedef VECTOR(uint32_t) v_u32;
typedef VECTOR(uint64_t) v_u64;
typedef VECTOR(int8_t) v_i8;
typedef VECTOR(int16_t) v_i16;
typedef VECTOR(int32_t) v_i32;
typedef VECTOR(int64_t) v_i64;
typedef VECTOR(float) v_f32;
typedef VECTOR(double) v_f64;

/* The value between the steps of a kernel: bits, which each step casts to its lanes. */
typedef v_u64 vec;

#define FLOATS (HC__VECTOR_BYTES / 4) /* lanes */
#define DOUBLES (HC__VECTOR_BYTES / 8)

/* Kernels work on two vecs at a time: they hold, widened, the half-width floats of one vec. */
typedef struct pair {
    vec a, b;
} pair;

INLINE vec load_vec(const char *from) {
    vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store_vec(char *to, vec v) {
    memcpy(to, &v, sizeof v);
}

/* One memcpy per vec: compilers move a whole pair through the stack. */
INLINE pair load_plain(const void *from) {
    vec a, b;
    memcpy(&a, from, sizeof a);
    memcpy(&b, (const char *)from + sizeof a, sizeof b);
    return (pair){a, b};
}

INLINE void store_plain(void *to, pair p) {
    memcpy(to, &p.a, sizeof p.a);
    memcpy((char *)to + sizeof p.a, &p.b, sizeof p.b);
}

/* yes where the lane of mask is all ones, no where it is all zeros. */
INLINE vec pick(vec mask, vec yes, vec no) {
    return (yes & mask) | (no & ~mask);
}

/* ---- steps: load, combine, finish (loops.h puts them together) ------------------------------ */

#define COMBINE(NAME, V, RESULT)    \
    INLINE vec NAME(vec x, vec y) { \
        V a = (V)x, b = (V)y;       \
        return (vec)(RESULT);       \
    }

#define COMBINE_NUMBERS(T, V) COMBINE(add_##T, V, (a + b)) COMBINE(multiply_##T, V, (a * b))
#define COMBINE_ORDER(T, V) \
    COMBINE(least_##T, V, pick((vec)(b < a), y, x)) COMBINE(greatest_##T, V, pick((vec)(b > a), y, x))
/* Once a NaN, always a NaN; of equal values (zeros of two signs) the first stays. */
#define COMBINE_FLOAT_ORDER(T, V)                                                \
    COMBINE(least_##T, V, pick((vec)((b < a) | (b != b)) & (vec)(a == a), y, x)) \
    COMBINE(greatest_##T, V, pick((vec)((b > a) | (b != b)) & (vec)(a == a), y, x))

COMBINE_NUMBERS(u8, v_u8)
COMBINE_NUMBERS(u16, v_u16)
COMBINE_NUMBERS(u32, v_u32)
COMBINE_NUMBERS(u64, v_u64)
COMBINE_NUMBERS(f32, v_f32)
COMBINE_NUMBERS(f64, v_f64)
COMBINE_ORDER(u8, v_u8)
COMBINE_ORDER(u16, v_u16)
COMBINE_ORDER(u32, v_u32)
COMBINE_ORDER(u64, v_u64)
COMBINE_ORDER(i8, v_i8)
COMBINE_ORDER(i16, v_i16)
COMBINE_ORDER(i32, v_i32)
COMBINE_ORDER(i64, v_i64)
COMBINE_FLOAT_ORDER(f32, v_f32)
COMBINE_FLOAT_ORDER(f64, v_f64)
COMBINE(and_bits, vec, (a & b))
COMBINE(or_bits, vec, (a | b))
COMBINE(xor_bits, vec, (a ^ b))

/* The four products of the definition, each rounded, without C's handling of infinities. The last sign is flipped
 * instead of a subtraction: from that gcc 12 would make a fused multiply-add-subtract, in spite of the pragma. */
#define COMBINE_COMPLEX(T, V, LANES)                                   \
    INLINE vec multiply_complex_##T(vec x, vec y) {                    \
        V a = (V)x, b = (V)y, by_real = a, by_imaginary = a, turn = a; \
        for (int i = 0; i < LANES; i += 2) {                           \
            by_real[i] = a[i] * b[i];                                  \
            by_real[i + 1] = a[i] * b[i + 1];                          \
            by_imaginary[i] = a[i + 1] * b[i + 1];                     \
            by_imaginary[i + 1] = a[i + 1] * b[i];                     \
            turn[i] = -0.0f;                                           \
            turn[i + 1] = 0.0f;                                        \
        }                                                              \
        return (vec)(by_real + (V)((vec)by_imaginary ^ (vec)turn));    \
    }
COMBINE_COMPLEX(f32, v_f32, FLOATS)
COMBINE_COMPLEX(f64, v_f64, DOUBLES)

/* Logical reductions work on masks: all ones where the number is not zero (a NaN is not, -0.0 is). */
#define LOAD_TRUTH(T, V, MAGNITUDE)                                                            \
    INLINE pair load_truth_##T(const void *from) {                                             \
        pair p = load_plain(from);                                                             \
        return (pair){(vec)(((V)p.a & (MAGNITUDE)) != 0), (vec)(((V)p.b & (MAGNITUDE)) != 0)}; \
    }
LOAD_TRUTH(u8, v_u8, 0xff)
LOAD_TRUTH(u16, v_u16, 0xffff)
LOAD_TRUTH(u32, v_u32, 0xffffffff)
LOAD_TRUTH(u64, v_u64, UINT64_MAX)
LOAD_TRUTH(h16, v_u16, 0x7fff) /* both half-width floats */
LOAD_TRUTH(f32, v_u32, 0x7fffffff)
LOAD_TRUTH(f64, v_u64, INT64_MAX)

/* x + y where x is a number, x where it is a NaN; lanes of float32 and, added as integers, of uint32. */
#ifndef ADD_TO_NUMBERS
#define ADD_TO_NUMBERS(X, Y) ((X) + ((Y) & (v_u32)((v_f32)(X) == (v_f32)(X))))
#endif

/* float32 to bfloat16, in the upper half of each lane: to nearest, ties to even. A NaN is only truncated: its quiet bit
 * is set, as it comes from arithmetic or from a bfloat16, and stays. */
INLINE v_u32 round_bf16(vec v) {
    v_u32 f = (v_u32)v, up = 0x7fff + (f >> 16 & 1);
    return ADD_TO_NUMBERS(f, up);
}

/* For reductions, where the order of the lanes does not matter: even elements in a, odd ones in b. */
INLINE pair load_bf16_apart(const void *from) {
    v_u32 both;
    memcpy(&both, from, sizeof both);
    return (pair){(vec)(both << 16), (vec)(both & 0xffff0000)};
}

INLINE void store_bf16_apart(void *to, pair p) {
    v_u32 both = round_bf16(p.a) >> 16 | (round_bf16(p.b) & 0xffff0000);
    memcpy(to, &both, sizeof both);
}

/* The factor and divisor of the finish step. */
typedef struct finish_by {
    vec factor, divisor;
} finish_by;

INLINE vec keep(vec v, finish_by by) {
    return (void)by, v;
}
INLINE vec mask_one(vec v, finish_by by) {
    return v & by.factor;
}
INLINE vec scale_f32(vec v, finish_by by) {
    return (vec)((v_f32)v * (v_f32)by.factor);
}
INLINE vec scale_f64(vec v, finish_by by) {
    return (vec)((v_f64)v * (v_f64)by.factor);
}
INLINE vec divide_f32(vec v, finish_by by) {
    return (vec)((v_f32)v * (v_f32)by.factor / (v_f32)by.divisor);
}
INLINE vec divide_f64(vec v, finish_by by) {
    return (vec)((v_f64)v * (v_f64)by.factor / (v_f64)by.divisor);
}

/* Rounds to 13 significant bits, the last of which means "more bits follow". A later rounding through float32 to the
 * 11 bits of float16 or the 8 of bfloat16 is then correct (S. Boldo, G. Melquiond, "When double rounding is odd",
 * 2005). */
INLINE vec scale_f64_to_odd(vec v, finish_by by) {
    const uint64_t rest = (UINT64_C(1) << 40) - 1;
    v_u64 d = (v_u64)scale_f64(v, by);
    v_u64 follows = (v_u64)((d & rest) != 0) & (rest + 1);
    return (vec)((d & ~rest) | follows);
}

#define EVERY(V, VALUE) ((vec)((V){0} + (VALUE)))
#define FACTOR(V, VALUE) ((finish_by){.factor = EVERY(V, VALUE)})
#define NOTHING ((finish_by){{0}, {0}})
