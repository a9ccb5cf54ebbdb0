/* SPDX-License-Identifier: Apache-2.0
 *
 * halo_sides.c - see halo_sides.h.
 */
#include "world/halo_sides.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- shapes ------------------------------------------------------------------------------------------------ */

const char *hc__tuple(const int64_t *values, int32_t n, char text[HC__TUPLE]) {
    size_t length = 1;
    strcpy(text, "(");
    for (int d = 0; d < n && length < HC__TUPLE - 32; d++)
        length += (size_t)snprintf(text + length, HC__TUPLE - length, d ? ", %" PRId64 : "%" PRId64, values[d]);
    snprintf(text + length, HC__TUPLE - length, n == 1 ? ",)" : ")");
    return text;
}

void hc_halo_contiguous(hc_halo_given *given) {
    int64_t dense = (int64_t)given->element;
    for (int d = given->ndim - 1; d >= 0; d--) {
        given->strides[d] = dense;
        dense *= given->shape[d];
    }
}

int hc_halo_check(const hc_halo_given *given, char why[HC_WHY]) {
    char shape[HC__TUPLE], width[HC__TUPLE];
    int32_t ndim = given->grid->ndim;
    int fits = given->nwidths == ndim && given->ndim >= ndim;
    for (int d = 0; d < ndim && fits; d++)
        fits = given->widths[d] >= 0 && given->widths[d] <= given->shape[d] / 3;
    if (fits)
        return HC_OK;
    int32_t shown = given->nwidths < HC_MAX_DIMS ? given->nwidths : HC_MAX_DIMS;
    return hc__refuse(why, HC_INVALID,
                      "an array of shape %s has no halo of width %s in %d dimensions: a divided dimension has the halo "
                      "on both sides, and at least as many cells inside as one of them",
                      hc__tuple(given->shape, given->ndim, shape), hc__tuple(given->widths, shown, width), (int)ndim);
}

int64_t hc__face_shape(const hc_halo_given *given, const int64_t *shape, int32_t ndim, int d, int64_t *extents) {
    int64_t count = 1;
    for (int k = 0; k < ndim; k++) {
        int is_whole = given->corners || k >= given->grid->ndim;
        extents[k] = k == d ? given->widths[d] : is_whole ? shape[k] : shape[k] - 2 * given->widths[k];
        count *= extents[k];
    }
    return count;
}

void hc__halo_order(const hc_halo_given *given, uint8_t order[HC_MAX_DIMS]) {
    for (int d = 0; d < given->ndim; d++) {
        int at = d;
        for (; at > 0 && llabs(given->strides[order[at - 1]]) < llabs(given->strides[d]); at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)d;
    }
}

/* ---- parts in memory --------------------------------------------------------------------------------------- */

/* Adds a dimension around those that the box has. */
static void add_dimension(hc__box *box, int64_t n, int64_t stride) {
    int last = box->ndim - 1;
    if (n == 1)
        return;
    if (last < 0 && stride == (int64_t)box->run) {
        box->run *= (size_t)n;
    } else if (last >= 0 && stride == box->n[last] * box->strides[last]) {
        box->n[last] *= n;
    } else {
        box->n[box->ndim] = n;
        box->strides[box->ndim] = stride;
        box->ndim++;
    }
}

void hc__box_make(const hc_halo_given *given, const uint8_t *order, int d, int upper, enum hc__part part,
                  hc__box *box) {
    int64_t extents[HC_MAX_DIMS], count = hc__face_shape(given, given->shape, given->ndim, d, extents);
    int64_t width = given->widths[d], first = part == HC__SIDE ? width : 0;
    *box = (hc__box){.data = given->data, .bytes = (size_t)count * given->element, .run = given->element};
    if (upper)
        first = given->shape[d] - (part == HC__SIDE ? 2 : 1) * width;
    for (int k = given->ndim - 1; k >= 0; k--)
        add_dimension(box, extents[order[k]], given->strides[order[k]]);
    for (int k = 0; k < given->ndim; k++) {
        int is_whole = given->corners || k >= given->grid->ndim;
        box->data += (k == d ? first : is_whole ? 0 : given->widths[k]) * given->strides[k];
    }
    if (!box->bytes)
        box->ndim = 0;
}

/* A row is what the innermost dimension has: n[0] runs. */
static int64_t rows_of(const hc__box *box) {
    int64_t rows = 1;
    for (int d = 1; d < box->ndim; d++)
        rows *= box->n[d];
    return rows;
}

static char *row_at(const hc__box *box, int64_t row) {
    char *at = box->data;
    for (int d = 1; d < box->ndim; d++) {
        at += row % box->n[d] * box->strides[d];
        row /= box->n[d];
    }
    return at;
}

/* ---- copies ------------------------------------------------------------------------------------------------ */

/* Where the next run of a side is copied to and from. */
typedef struct cursor {
    char *to;
    const char *from;
} cursor;

typedef struct steps {
    int64_t to, from;
} steps;

/* With a constant number of bytes it needs no call per run. */
__attribute__((always_inline)) static inline void copy_runs(cursor one, cursor two, int are_two, steps by, int64_t n,
                                                            size_t bytes) {
    for (int64_t i = 0; i < n; i++) {
        memcpy(one.to + i * by.to, one.from + i * by.from, bytes);
        if (are_two)
            memcpy(two.to + i * by.to, two.from + i * by.from, bytes);
    }
}

static void copy_row(cursor one, cursor two, int are_two, steps by, int64_t n, size_t run) {
    switch (run) {
    case 1:
        copy_runs(one, two, are_two, by, n, 1);
        break;
    case 2:
        copy_runs(one, two, are_two, by, n, 2);
        break;
    case 4:
        copy_runs(one, two, are_two, by, n, 4);
        break;
    case 8:
        copy_runs(one, two, are_two, by, n, 8);
        break;
    case 16:
        copy_runs(one, two, are_two, by, n, 16);
        break;
    default:
        copy_runs(one, two, are_two, by, n, run);
    }
}

void hc__boxes_pack(const hc__box *box, char *to, const hc__box *other, char *to_other) {
    const steps by = {(int64_t)box->run, box->strides[0]};
    int64_t rows = rows_of(box), packed = box->n[0] * by.to;
    for (int64_t row = 0; row < rows; row++) {
        cursor one = {to + row * packed, row_at(box, row)};
        cursor two = other ? (cursor){to_other + row * packed, row_at(other, row)} : one;
        copy_row(one, two, other != NULL, by, box->n[0], box->run);
    }
}

void hc__boxes_unpack(const hc__box *box, const char *from, const hc__box *other, const char *from_other) {
    const steps by = {box->strides[0], (int64_t)box->run};
    int64_t rows = rows_of(box), packed = box->n[0] * by.from;
    for (int64_t row = 0; row < rows; row++) {
        cursor one = {row_at(box, row), from + row * packed};
        cursor two = other ? (cursor){row_at(other, row), from_other + row * packed} : one;
        copy_row(one, two, other != NULL, by, box->n[0], box->run);
    }
}

size_t hc__box_extents(const hc__box *box, int writes, hc_extent *extents) {
    int64_t rows = rows_of(box), n = box->ndim ? box->n[0] : 1;
    if (!extents)
        return (size_t)(rows * n);
    for (int64_t row = 0; row < rows; row++) {
        const char *begin = row_at(box, row);
        for (int64_t i = 0; i < n; i++, begin += box->strides[0])
            *extents++ = (hc_extent){begin, begin + (box->ndim ? box->run : box->bytes), writes, 0};
    }
    return (size_t)(rows * n);
}
