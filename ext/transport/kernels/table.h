/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h - every kernel of one set of vector code, and the table of them.
 *
 * It is compiled once per set. Define before the include: HC__KERNELS (the table's name), HC__NAME (its text), load_
 * and store_ of f16 and bf16 (a pair of float32), load_f32_as_f64 and store_f64_as_f32 (a pair of float64), all in the
 * order of memory; stream_vec and stream_fence for copies; and has_bits, true if a vec is not zero.
 */
#include "transport/kernels/copy.h"
#include "transport/kernels/loops.h"

/* ---- reductions ------------------------------------------------------------------------------------ */

#define REDUCE(NAME, STEP, BY, LOAD, COMBINE_, FINISH, STORE)                                                      \
    static void NAME(void *to, const void *const *from, int n_from, int64_t bytes, double scale, double divisor) { \
        (void)scale;                                                                                               \
        (void)divisor;                                                                                             \
        reduce_loop(to, (const char *const *)from, n_from, bytes, STEP, BY, LOAD, COMBINE_, FINISH, STORE);        \
    }
#define REDUCE_PLAIN(NAME, COMBINE_) REDUCE(NAME, sizeof(pair), NOTHING, load_plain, COMBINE_, keep, store_plain)
#define REDUCE_ORDER(T)              \
    REDUCE_PLAIN(min_##T, least_##T) \
    REDUCE_PLAIN(max_##T, greatest_##T)
#define REDUCE_INTEGERS(U, I)               \
    REDUCE_PLAIN(sum_##U, add_##U)          \
    REDUCE_PLAIN(product_##U, multiply_##U) \
    REDUCE_ORDER(U)                         \
    REDUCE_ORDER(I)
/* The operands of a sum that overflows are divided by this; then it does not. */
static double power_of_two_above(int n_from) {
    double power = 2;
    while (power <= n_from)
        power *= 2;
    return power;
}

/* Without a factor an overflowing sum is infinite. float16 cannot overflow, as it is added in float32. */
#define REDUCE_SUM(NAME, STEP, V, C, LOAD, ADD, SCALE, ENDLESS, MEND, STORE)                                       \
    static void NAME(void *to, const void *const *from, int n_from, int64_t bytes, double scale, double divisor) { \
        const char *const *at = (const char *const *)from;                                                         \
        double power = power_of_two_above(n_from);                                                                 \
        second_way way = {FACTOR(V, (C)(1 / power)), FACTOR(V, (C)(scale * power))};                               \
        (void)divisor;                                                                                             \
        if (scale == 1.0 || n_from == 1)                                                                           \
            reduce_loop(to, at, n_from, bytes, STEP, FACTOR(V, (C)scale), LOAD, ADD, SCALE, STORE);                \
        else                                                                                                       \
            reduce_within_loop(to, at, n_from, bytes, STEP, FACTOR(V, (C)scale), way, LOAD, ADD, SCALE, SCALE,     \
                               ENDLESS, MEND, STORE);                                                              \
    }
#define REDUCE_FLOATS(T, V, C)                                                                                  \
    REDUCE_SUM(sum_##T, sizeof(pair), V, C, load_plain, add_##T, scale_##T, endless_##T, mend_##T, store_plain) \
    REDUCE_PLAIN(product_##T, multiply_##T)                                                                     \
    REDUCE_ORDER(T)                                                                                             \
    REDUCE_PLAIN(product_complex_##T, multiply_complex_##T)
#define REDUCE_HALVES(T, LOAD, STORE)                                          \
    REDUCE(product_##T, sizeof(vec), NOTHING, LOAD, multiply_f32, keep, STORE) \
    REDUCE(min_##T, sizeof(vec), NOTHING, LOAD, least_f32, keep, STORE)        \
    REDUCE(max_##T, sizeof(vec), NOTHING, LOAD, greatest_f32, keep, STORE)
#define REDUCE_TRUTH(T, TRUTH, V, ONE)                                                     \
    REDUCE(land_##T, sizeof(pair), FACTOR(V, ONE), TRUTH, and_bits, mask_one, store_plain) \
    REDUCE(lor_##T, sizeof(pair), FACTOR(V, ONE), TRUTH, or_bits, mask_one, store_plain)   \
    REDUCE(lxor_##T, sizeof(pair), FACTOR(V, ONE), TRUTH, xor_bits, mask_one, store_plain)

REDUCE_INTEGERS(u8, i8)
REDUCE_INTEGERS(u16, i16)
REDUCE_INTEGERS(u32, i32)
REDUCE_INTEGERS(u64, i64)
REDUCE_FLOATS(f32, v_f32, float)
REDUCE_FLOATS(f64, v_f64, double)
REDUCE(sum_f16, sizeof(vec), FACTOR(v_f32, (float)scale), load_f16, add_f32, scale_f32, store_f16)
REDUCE_HALVES(f16, load_f16, store_f16)
REDUCE_SUM(sum_bf16, sizeof(vec), v_f32, float, load_bf16_apart, add_f32, scale_f32, endless_f32, mend_f32,
           store_bf16_apart)
REDUCE_HALVES(bf16, load_bf16_apart, store_bf16_apart)
REDUCE_PLAIN(band, and_bits)
REDUCE_PLAIN(bor, or_bits)
REDUCE_PLAIN(bxor, xor_bits)
REDUCE_TRUTH(u8, load_truth_u8, v_u8, 1)
REDUCE_TRUTH(u16, load_truth_u16, v_u16, 1)
REDUCE_TRUTH(u32, load_truth_u32, v_u32, 1)
REDUCE_TRUTH(u64, load_truth_u64, v_u64, 1)
REDUCE_TRUTH(f16, load_truth_h16, v_u16, 0x3c00)
REDUCE_TRUTH(bf16, load_truth_h16, v_u16, 0x3f80)
REDUCE_TRUTH(f32, load_truth_f32, v_u32, 0x3f800000)
REDUCE_TRUTH(f64, load_truth_f64, v_u64, UINT64_C(0x3ff0000000000000))

/* ---- means ----------------------------------------------------------------------------------------- */

/* The sum is formed and divided in a wider type, then rounded once. For a power of two the product with the reciprocal
 * is also exact, and faster. */
static int is_power_of_two(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits << 12 == 0;
}

#define MEAN(NAME, STEP, V, C, LOAD, ADD, SCALE, DIVIDE, STORE)                                                    \
    static void NAME(void *to, const void *const *from, int n_from, int64_t bytes, double scale, double divisor) { \
        const char *const *at = (const char *const *)from;                                                         \
        finish_by exact = FACTOR(V, (C)(scale / divisor)), by = {EVERY(V, (C)scale), EVERY(V, (C)divisor)};        \
        if (is_power_of_two(divisor))                                                                              \
            reduce_loop(to, at, n_from, bytes, STEP, exact, LOAD, ADD, SCALE, STORE);                              \
        else                                                                                                       \
            reduce_loop(to, at, n_from, bytes, STEP, by, LOAD, ADD, DIVIDE, STORE);                                \
    }

/* The same if the sum may overflow the type of the accumulation. */
static void mean_bf16(void *to, const void *const *from, int n_from, int64_t bytes, double scale, double divisor) {
    const char *const *at = (const char *const *)from;
    double power = power_of_two_above(n_from), both = scale / divisor;
    finish_by early = FACTOR(v_f32, (float)(1 / power)), exact = FACTOR(v_f32, (float)both);
    finish_by by = {EVERY(v_f32, (float)scale), EVERY(v_f32, (float)divisor)};
    second_way exactly = {early, FACTOR(v_f32, (float)(both * power))};
    second_way divided = {early, {by.factor, EVERY(v_f32, (float)(divisor / power))}};
    if (is_power_of_two(divisor))
        reduce_within_loop(to, at, n_from, bytes, sizeof(vec), exact, exactly, load_bf16_apart, add_f32, scale_f32,
                           scale_f32, endless_f32, mend_f32, store_bf16_apart);
    else
        reduce_within_loop(to, at, n_from, bytes, sizeof(vec), by, divided, load_bf16_apart, add_f32, scale_f32,
                           divide_f32, endless_f32, mend_f32, store_bf16_apart);
}

MEAN(mean_f16, sizeof(vec), v_f32, float, load_f16, add_f32, scale_f32, divide_f32, store_f16)
MEAN(wide_mean_f32, sizeof(vec), v_f64, double, load_f32_as_f64, add_f64, scale_f64, divide_f64, store_f64_as_f32)

/* The sum of two values is rounded once, so half of it is their correctly rounded mean. */
static int is_half_of_two(int n_from, double divisor) {
    return n_from <= 2 && is_power_of_two(divisor);
}

static void mean_f32(void *to, const void *const *from, int n_from, int64_t bytes, double scale, double divisor) {
    if (is_half_of_two(n_from, divisor))
        sum_f32(to, from, n_from, bytes, scale / divisor, 1.0);
    else
        wide_mean_f32(to, from, n_from, bytes, scale, divisor);
}

static void mean_f64(void *to, const void *const *from, int n_from, int64_t bytes, double scale, double divisor) {
    double power = power_of_two_above(n_from);
    second_way way = {FACTOR(v_f64, 1 / power), FACTOR(v_f64, scale * power)};
    if (is_half_of_two(n_from, divisor))
        sum_f64(to, from, n_from, bytes, scale / divisor, 1.0);
    else
        mean_loop(to, (const char *const *)from, n_from, bytes, (finish_by){EVERY(v_f64, scale), EVERY(v_f64, divisor)},
                  way);
}

/* ---- conversions ----------------------------------------------------------------------------------- */

#define CONVERT(FROM, FROM_SIZE, TO, TO_SIZE, LANES, BY, LOAD, FINISH, STORE)          \
    static void FROM##_to_##TO(void *to, const void *from, int64_t n, double scale) {  \
        convert_loop(to, TO_SIZE, from, FROM_SIZE, n, LANES, BY, LOAD, FINISH, STORE); \
    }
#define CONVERT_IN_F32(FROM, FROM_SIZE, TO, TO_SIZE, LOAD, STORE) \
    CONVERT(FROM, FROM_SIZE, TO, TO_SIZE, 2 * FLOATS, FACTOR(v_f32, (float)scale), LOAD, scale_f32, STORE)
#define CONVERT_IN_F64(FROM, FROM_SIZE, TO, TO_SIZE, LOAD, FINISH, STORE) \
    CONVERT(FROM, FROM_SIZE, TO, TO_SIZE, 2 * DOUBLES, FACTOR(v_f64, scale), LOAD, FINISH, STORE)

CONVERT_IN_F32(f16, 2, f16, 2, load_f16, store_f16)
CONVERT_IN_F32(f16, 2, bf16, 2, load_f16, store_bf16)
CONVERT_IN_F32(f16, 2, f32, 4, load_f16, store_plain)
CONVERT_IN_F32(bf16, 2, f16, 2, load_bf16, store_f16)
CONVERT_IN_F32(bf16, 2, bf16, 2, load_bf16, store_bf16)
CONVERT_IN_F32(bf16, 2, f32, 4, load_bf16, store_plain)
CONVERT_IN_F32(f32, 4, f16, 2, load_plain, store_f16)
CONVERT_IN_F32(f32, 4, bf16, 2, load_plain, store_bf16)
CONVERT_IN_F32(f32, 4, f32, 4, load_plain, store_plain)
CONVERT_IN_F64(f32, 4, f64, 8, load_f32_as_f64, scale_f64, store_plain)
CONVERT_IN_F64(f64, 8, f32, 4, load_plain, scale_f64, store_f64_as_f32)
CONVERT_IN_F64(f64, 8, f64, 8, load_plain, scale_f64, store_plain)
CONVERT_IN_F64(f64, 8, odd, 4, load_plain, scale_f64_to_odd, store_f64_as_f32)

/* Between float64 and the half-width floats: through a block of float32, without a second rounding. */
#define BLOCK 512
#define WIDEN(FROM)                                                                  \
    static void FROM##_to_f64(void *to, const void *from, int64_t n, double scale) { \
        float block[BLOCK];                                                          \
        for (int64_t i = 0; i < n; i += BLOCK) {                                     \
            int64_t m = n - i < BLOCK ? n - i : BLOCK;                               \
            FROM##_to_f32(block, (const uint16_t *)from + i, m, 1.0);                \
            f32_to_f64((double *)to + i, block, m, scale);                           \
        }                                                                            \
    }
#define NARROW(TO)                                                                 \
    static void f64_to_##TO(void *to, const void *from, int64_t n, double scale) { \
        float block[BLOCK];                                                        \
        for (int64_t i = 0; i < n; i += BLOCK) {                                   \
            int64_t m = n - i < BLOCK ? n - i : BLOCK;                             \
            f64_to_odd(block, (const double *)from + i, m, scale);                 \
            f32_to_##TO((uint16_t *)to + i, block, m, 1.0);                        \
        }                                                                          \
    }
WIDEN(f16)
WIDEN(bf16)
NARROW(f16)
NARROW(bf16)

/* ---- the table ------------------------------------------------------------------------------------- */

#define ROW(D, SUM_, PRODUCT_, MIN_, MAX_, TRUTH)                                                               \
    [HC_SUM][HC_##D] = SUM_, [HC_PRODUCT][HC_##D] = PRODUCT_, [HC_MIN][HC_##D] = MIN_, [HC_MAX][HC_##D] = MAX_, \
    [HC_LAND][HC_##D] = land_##TRUTH, [HC_LOR][HC_##D] = lor_##TRUTH, [HC_LXOR][HC_##D] = lxor_##TRUTH
#define BITS(D, AND, OR, XOR) [HC_BAND][HC_##D] = AND, [HC_BOR][HC_##D] = OR, [HC_BXOR][HC_##D] = XOR
/* AVERAGE of integers is the sum: hc_host_divide() follows. */
#define ROW_INTEGER(D, U, T) \
    ROW(D, sum_##U, product_##U, min_##T, max_##T, U), BITS(D, band, bor, bxor), [HC_AVERAGE][HC_##D] = sum_##U
#define ROW_FLOAT(D, T) ROW(D, sum_##T, product_##T, min_##T, max_##T, T), [HC_AVERAGE][HC_##D] = mean_##T
#define ROW_COMPLEX(D, T) \
    [HC_SUM][HC_##D] = sum_##T, [HC_PRODUCT][HC_##D] = product_complex_##T, [HC_AVERAGE][HC_##D] = mean_##T

#define ROW_CONVERT(D, T) \
    [HC_##D] = {          \
        [HC_FLOAT16] = T##_to_f16, [HC_BFLOAT16] = T##_to_bf16, [HC_FLOAT32] = T##_to_f32, [HC_FLOAT64] = T##_to_f64}

const hc__kernels HC__KERNELS = {
    .name = HC__NAME,
    .copy = {copy_plain, copy_streaming},
    .reduce =
        {
            ROW(BOOL, lor_u8, land_u8, land_u8, lor_u8, u8),
            BITS(BOOL, land_u8, lor_u8, lxor_u8),
            ROW_INTEGER(UINT8, u8, u8),
            ROW_INTEGER(INT8, u8, i8),
            ROW_INTEGER(UINT16, u16, u16),
            ROW_INTEGER(INT16, u16, i16),
            ROW_INTEGER(UINT32, u32, u32),
            ROW_INTEGER(INT32, u32, i32),
            ROW_INTEGER(UINT64, u64, u64),
            ROW_INTEGER(INT64, u64, i64),
            ROW_FLOAT(FLOAT16, f16),
            ROW_FLOAT(BFLOAT16, bf16),
            ROW_FLOAT(FLOAT32, f32),
            ROW_FLOAT(FLOAT64, f64),
            ROW_COMPLEX(COMPLEX64, f32),
            ROW_COMPLEX(COMPLEX128, f64),
        },
    .convert =
        {
            ROW_CONVERT(FLOAT16, f16),
            ROW_CONVERT(BFLOAT16, bf16),
            ROW_CONVERT(FLOAT32, f32),
            ROW_CONVERT(FLOAT64, f64),
        },
};
