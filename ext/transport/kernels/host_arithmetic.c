/* SPDX-License-Identifier: Apache-2.0
 *
 * host_arithmetic.c - allocates host memory, and runs the arithmetic on it.
 *
 * It is independent of the vector instructions; the kernels do the arithmetic.
 */
#include "transport/arithmetic.h"
#include "transport/kernels/kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE 64
#define HUGE_PAGE ((size_t)2 << 20)
#define FEW_BYTES ((size_t)2 << 10)  /* up to here a C library's memcpy is as fast as ours (kernels/copy.h) */
#define MANY_BYTES ((size_t)8 << 10) /* from here it is faster on some processors */

static const uint8_t size_of[] = {
#define X(name, bytes, text) bytes,
    HC_DTYPES(X)
#undef X
};

/* ---- allocation ------------------------------------------------------------------------------------ */

/* For a new result of many megabytes page faults cost more than the copy. Huge pages avoid most of them, where the
 * system grants them. */
void *hc_result_new(size_t bytes) {
    size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : LINE;
    void *p = NULL;
    if (bytes > SIZE_MAX - align || posix_memalign(&p, align, bytes ? bytes : 1) != 0)
        return NULL;
    if (align == HUGE_PAGE)
        madvise(p, bytes, MADV_HUGEPAGE); /* advice: it may be refused */
    return p;
}

void *hc_work_new(size_t bytes) {
    void *p = hc_result_new(bytes);
    return p ? p : hc_reserve_take(bytes);
}

void hc_result_free(void *p) {
    hc_free(p);
}

/* ---- copy and convert ------------------------------------------------------------------------------- */

void hc_host_copy(void *to, const void *from, size_t bytes) {
    if (bytes >= FEW_BYTES)
        hc_shared_copy(to, from, bytes, HC_STORES_PLAIN);
    else if (bytes)
        memcpy(to, from, bytes);
}

void hc_shared_copy(void *to, const void *from, size_t bytes, enum hc_stores stores) {
    int are_many = stores == HC_STORES_PLAIN && bytes >= MANY_BYTES;
    hc__copy_fn *copy = are_many ? hc__copy_of_many() : hc__kernels_chosen()->copy[stores];
    copy(to, from, (int64_t)bytes);
}

int hc_stores_named(const char *word) {
    return strcmp(word, "plain") == 0    ? HC_STORES_PLAIN
           : strcmp(word, "stream") == 0 ? HC_STORES_STREAM
                                         : HC_STORES_AUTO;
}

/* The scale is real, so complex numbers count as twice as many floats. */
static int real_of(int dtype, int64_t *n) {
    if (dtype != HC_COMPLEX64 && dtype != HC_COMPLEX128)
        return dtype;
    *n *= 2;
    return dtype == HC_COMPLEX64 ? HC_FLOAT32 : HC_FLOAT64;
}

void hc_host_convert(void *to, int to_dtype, const void *from, int from_dtype, int64_t n, double scale) {
    if (to_dtype == from_dtype && scale == 1.0) {
        if (to != from)
            hc_host_copy(to, from, (size_t)n * size_of[to_dtype]);
        return;
    }
    if (to_dtype == from_dtype)
        to_dtype = from_dtype = real_of(from_dtype, &n);
    hc__convert_fn *convert = hc__kernels_chosen()->convert[from_dtype][to_dtype];
    assert(convert && "between floats, or a copy");
    convert(to, from, n, scale);
}

/* ---- reduce ----------------------------------------------------------------------------------------- */

#define BLOCK 512 /* elements on the stack: 8 KiB, well inside L1 */

typedef union block {
    float f32[BLOCK];
    double f64[BLOCK];
} block;

/* Reduces floats whose type changes: block by block, it widens each source, adds it to the block's accumulator, and
 * rounds once at the end. `to` may be one of from[] if its type is not the wider. */
static void reduce_and_convert(char *to, int to_dtype, const void *const *from, int n_from, int from_dtype,
                               int reduction, int64_t n, double scale, double divisor) {
    int wide = from_dtype == HC_FLOAT64 ? HC_FLOAT64 : HC_FLOAT32;
    hc__reduce_fn *reduce = hc__kernels_chosen()->reduce[reduction][wide];
    block sum, next;
    const void *both[2] = {&sum, &next};
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        for (int q = 0; q < n_from; q++) {
            const char *source = (const char *)from[q] + i * size_of[from_dtype];
            hc_host_convert(q ? &next : &sum, wide, source, from_dtype, m, 1.0);
            if (q)
                reduce(&sum, both, 2, m * size_of[wide], 1.0, 1.0);
        }
        if (n_from == 1 || divisor != 1.0)
            reduce(&sum, both, 1, m * size_of[wide], 1.0, divisor); /* a logical reduction makes it 0 or 1 */
        hc_host_convert(to + i * size_of[to_dtype], to_dtype, &sum, wide, m, scale);
    }
}

void hc_host_reduce(void *to, int to_dtype, const void *const *from, int n_from, int from_dtype, int reduction,
                    int64_t n, double scale, double divisor) {
    if (to_dtype == from_dtype) {
        hc__reduce_fn *reduce = hc__kernels_chosen()->reduce[reduction][from_dtype];
        assert(reduce && "hc_reduction_defined()");
        reduce(to, from, n_from, n * size_of[from_dtype], scale, divisor);
        if (reduction == HC_AVERAGE && from_dtype <= HC_INT64)
            hc_host_divide(to, to_dtype, n, (int64_t)divisor);
    } else {
        assert(to_dtype >= HC_FLOAT16 && to_dtype <= HC_FLOAT64 && from_dtype >= HC_FLOAT16 &&
               from_dtype <= HC_FLOAT64);
        reduce_and_convert(to, to_dtype, from, n_from, from_dtype, reduction, n, scale, divisor);
    }
}

/* ---- divide ----------------------------------------------------------------------------------------- */

/* A divisor beyond the type's range gives 0, except for the least value divided by its magnitude; so narrower types are
 * divided in 64 bits. */
#define DIVIDE(T, WIDE)                                              \
    static void divide_##T(void *data, int64_t n, int64_t divisor) { \
        T##_t *x = data;                                             \
        for (int64_t i = 0; i < n; i++)                              \
            x[i] = (T##_t)((WIDE)x[i] / (WIDE)divisor);              \
    }
DIVIDE(uint8, uint64_t)
DIVIDE(int8, int64_t)
DIVIDE(uint16, uint64_t)
DIVIDE(int16, int64_t)
DIVIDE(uint32, uint64_t)
DIVIDE(int32, int64_t)
DIVIDE(uint64, uint64_t)
DIVIDE(int64, int64_t)

void hc_host_divide(void *data, int dtype, int64_t n, int64_t divisor) {
    static void (*const divide[])(void *, int64_t, int64_t) = {
        [HC_UINT8] = divide_uint8,   [HC_INT8] = divide_int8,   [HC_UINT16] = divide_uint16, [HC_INT16] = divide_int16,
        [HC_UINT32] = divide_uint32, [HC_INT32] = divide_int32, [HC_UINT64] = divide_uint64, [HC_INT64] = divide_int64,
    };
    assert(dtype >= HC_UINT8 && dtype <= HC_INT64 && divisor > 0);
    if (divisor != 1)
        divide[dtype](data, n, divisor);
}

/* ---- neutral elements -------------------------------------------------------------------------------- */

/*     dtype     one                              smallest                         largest */
#define NEUTRAL(X)                                                         \
    X(BOOL, 1, 0, 1)                                                       \
    X(UINT8, 1, 0, UINT8_MAX)                                              \
    X(INT8, 1, (uint8_t)INT8_MIN, INT8_MAX)                                \
    X(UINT16, 1, 0, UINT16_MAX)                                            \
    X(INT16, 1, (uint16_t)INT16_MIN, INT16_MAX)                            \
    X(UINT32, 1, 0, UINT32_MAX)                                            \
    X(INT32, 1, (uint32_t)INT32_MIN, INT32_MAX)                            \
    X(UINT64, 1, 0, UINT64_MAX)                                            \
    X(INT64, 1, (uint64_t)INT64_MIN, INT64_MAX)                            \
    X(FLOAT16, 0x3c00, 0xfc00, 0x7c00)                                     \
    X(BFLOAT16, 0x3f80, 0xff80, 0x7f80)                                    \
    X(FLOAT32, 0x3f800000, 0xff800000, 0x7f800000)                         \
    X(FLOAT64, 0x3ff0000000000000, 0xfff0000000000000, 0x7ff0000000000000) \
    X(COMPLEX64, 0x3f800000, 0, 0)                                         \
    X(COMPLEX128, 0x3ff0000000000000, 0, 0)

/* The bits of the neutral element; the imaginary part of a complex number is 0. */
static uint64_t neutral_bits(int dtype, int reduction) {
    static const struct {
        uint64_t one, smallest, largest;
    } values[] = {
#define X(dtype, one, smallest, largest) [HC_##dtype] = {one, smallest, largest},
        NEUTRAL(X)
#undef X
    };
    switch (reduction) {
    case HC_PRODUCT:
    case HC_LAND:
        return values[dtype].one;
    case HC_MIN:
        return values[dtype].largest;
    case HC_MAX:
        return values[dtype].smallest;
    case HC_BAND:
        return dtype == HC_BOOL ? 1 : UINT64_MAX;
    default: /* SUM, AVERAGE, BOR, BXOR, LOR, LXOR */
        return 0;
    }
}

void hc_host_neutral(void *to, int dtype, int reduction, int64_t n) {
    uint64_t element[2] = {neutral_bits(dtype, reduction), 0};
    size_t size = size_of[dtype], bytes = (size_t)n * size, filled = size;
    if (!bytes)
        return;
    if (!element[0]) {
        memset(to, 0, bytes);
        return;
    }
    memcpy(to, element, size); /* little-endian: the low bytes come first */
    for (; filled < bytes; filled *= 2)
        memcpy((char *)to + filled, to, filled < bytes - filled ? filled : bytes - filled);
}

/* ---- the interface for the net's algorithms ---------------------------------------------------------- */

static void *arithmetic_alloc(hc_arithmetic *a, size_t bytes) {
    (void)a;
    return hc_work_new(bytes);
}

static void arithmetic_release(hc_arithmetic *a, void *memory) {
    (void)a;
    hc_result_free(memory);
}

static int arithmetic_convert(hc_arithmetic *a, void *to, int to_dtype, const void *from, int from_dtype, int64_t n) {
    (void)a;
    hc_host_convert(to, to_dtype, from, from_dtype, n, 1.0);
    return HC_OK;
}

static int arithmetic_reduce(hc_arithmetic *a, void *to, const void *const *from, int n_from, int dtype, int reduction,
                             int64_t n, double divisor) {
    (void)a;
    hc_host_reduce(to, dtype, from, n_from, dtype, reduction, n, 1.0, divisor);
    return HC_OK;
}

static int arithmetic_ended(hc_arithmetic *a, uint64_t issued) {
    (void)a;
    (void)issued;
    return HC_DONE;
}

static const struct hc_arithmetic_ops arithmetic_ops = {
    .alloc = arithmetic_alloc,
    .release = arithmetic_release,
    .convert = arithmetic_convert,
    .reduce = arithmetic_reduce,
    .ended = arithmetic_ended,
};

hc_arithmetic hc_host_arithmetic = {.ops = &arithmetic_ops, .keeps_range = 1};
