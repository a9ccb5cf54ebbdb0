/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h - elements of any dtype as doubles, and the reductions spelled out: the reference that tests
 * compare to.
 *
 * Values are small integers, so that every intermediate result is exact in every dtype.
 */
#ifndef TEST_VALUES_H
#define TEST_VALUES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "transport/ranks.h"

static float from_bfloat16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}

static uint16_t to_bfloat16(float f) { /* exact values only */
    uint32_t wide;
    memcpy(&wide, &f, sizeof wide);
    return (uint16_t)(wide >> 16);
}

static float from_float16(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    float value = exponent == 0    ? ldexpf((float)mantissa, -24)
                  : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                   : ldexpf((float)(mantissa + 1024), exponent - 25);
    return h >> 15 ? -value : value;
}

static uint16_t to_float16(float f) { /* exact values only */
    if (f == 0)
        return 0;
    int exponent;
    float fraction = frexpf(fabsf(f), &exponent); /* in [0.5, 1) */
    return (uint16_t)((f < 0) << 15 | (exponent + 14) << 10 | (int)(fraction * 2048 - 1024));
}

typedef struct value {
    double re, im;
} value;

#define EACH_PLAIN(X)   \
    X(UINT8, uint8_t)   \
    X(INT8, int8_t)     \
    X(UINT16, uint16_t) \
    X(INT16, int16_t)   \
    X(UINT32, uint32_t) \
    X(INT32, int32_t)   \
    X(UINT64, uint64_t) X(INT64, int64_t) X(BOOL, uint8_t) X(FLOAT32, float) X(FLOAT64, double)

static value load(int dtype, const void *data, int64_t i) {
    switch (dtype) {
#define X(name, type) \
    case HC_##name:   \
        return (value){(double)((const type *)data)[i], 0};
        EACH_PLAIN(X)
#undef X
    case HC_FLOAT16:
        return (value){from_float16(((const uint16_t *)data)[i]), 0};
    case HC_BFLOAT16:
        return (value){from_bfloat16(((const uint16_t *)data)[i]), 0};
    case HC_COMPLEX64:
        return (value){((const float *)data)[2 * i], ((const float *)data)[2 * i + 1]};
    default:
        return (value){((const double *)data)[2 * i], ((const double *)data)[2 * i + 1]};
    }
}

static void store(int dtype, void *data, int64_t i, value v) {
    switch (dtype) {
#define X(name, type)                   \
    case HC_##name:                     \
        ((type *)data)[i] = (type)v.re; \
        break;
        EACH_PLAIN(X)
#undef X
    case HC_FLOAT16:
        ((uint16_t *)data)[i] = to_float16((float)v.re);
        break;
    case HC_BFLOAT16:
        ((uint16_t *)data)[i] = to_bfloat16((float)v.re);
        break;
    case HC_COMPLEX64:
        ((float *)data)[2 * i] = (float)v.re;
        ((float *)data)[2 * i + 1] = (float)v.im;
        break;
    default:
        ((double *)data)[2 * i] = v.re;
        ((double *)data)[2 * i + 1] = v.im;
    }
}

static int is_unsigned(int dtype) {
    return dtype == HC_UINT8 || dtype == HC_UINT16 || dtype == HC_UINT32 || dtype == HC_UINT64;
}

static int is_inexact(int dtype) {
    return dtype >= HC_FLOAT16;
}

static int is_complex(int dtype) {
    return dtype == HC_COMPLEX64 || dtype == HC_COMPLEX128;
}

/* The input of an element: a function of its coordinates, so that every rank knows what the others have. */
static value input_of(int dtype, int reduction, uint64_t seed, int rank, int64_t i) {
    uint64_t h = mix(seed * 0x9e3779b97f4a7c15ULL + (uint64_t)rank * 1000003 + (uint64_t)i);
    value v = {(double)(h % 5), 0};
    if (reduction == HC_PRODUCT)
        v.re = rank < 3 && h % 4 == 0 ? 2 : 1; /* 64 at most, squared */
    if (dtype == HC_BOOL)
        v.re = h % 2;
    if (!is_unsigned(dtype) && dtype != HC_BOOL && h & 64)
        v.re = -v.re;
    if (is_complex(dtype))
        v.im = (double)(h >> 8 & 1);
    return v;
}

static value combine(int dtype, int reduction, value a, value b) {
    int both = (a.re != 0) && (b.re != 0), any = (a.re != 0) || (b.re != 0);
    if (dtype == HC_BOOL)
        switch (reduction) {
        case HC_PRODUCT:
        case HC_MIN:
        case HC_LAND:
        case HC_BAND:
            return (value){both, 0};
        case HC_BXOR:
        case HC_LXOR:
            return (value){both != any, 0};
        default:
            return (value){any, 0};
        }
    switch (reduction) {
    case HC_MIN:
        return a.re < b.re ? a : b;
    case HC_MAX:
        return a.re > b.re ? a : b;
    case HC_PRODUCT:
        return (value){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    case HC_BAND:
        return (value){(double)((int64_t)a.re & (int64_t)b.re), 0};
    case HC_BOR:
        return (value){(double)((int64_t)a.re | (int64_t)b.re), 0};
    case HC_BXOR:
        return (value){(double)((int64_t)a.re ^ (int64_t)b.re), 0};
    case HC_LAND:
        return (value){both, 0};
    case HC_LOR:
        return (value){any, 0};
    case HC_LXOR:
        return (value){both != any, 0};
    default:
        return (value){a.re + b.re, a.im + b.im};
    }
}

/* What a reduction makes of one value alone. */
static value normal(int reduction, value v) {
    return reduction >= HC_LAND ? (value){v.re != 0, 0} : v;
}

#endif
