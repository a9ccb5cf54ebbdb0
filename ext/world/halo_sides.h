/* SPDX-License-Identifier: Apache-2.0
 *
 * halo_sides.h - the sides of an array: their shapes, their places in memory, and copies of them.
 */
#pragma once

#include "world/halo.h"

#define HC__TUPLE 240 /* bytes of a text */

enum hc__part { HC__SIDE, HC__HALO };

/* A part of an array, in runs of contiguous bytes. */
typedef struct hc__box {
    char *data;
    size_t bytes, run;            /* of all; of a run */
    int ndim;                     /* 0: the part is contiguous */
    int64_t n[HC_MAX_DIMS];       /* runs along each dimension, of the innermost one first */
    int64_t strides[HC_MAX_DIMS]; /* bytes */
} hc__box;

/* Writes numbers as Python writes a tuple. Returns the text. */
const char *hc__tuple(const int64_t *values, int32_t n, char text[HC__TUPLE]);
/* The extents of a face in dimension `d` of an array of this shape, which may be that of another rank. Returns the
 * number of its elements. */
int64_t hc__face_shape(const hc_halo_given *, const int64_t *shape, int32_t ndim, int d, int64_t *extents);
/* The dimensions from the one with the largest steps to the one with the smallest: packed in this order, a side has the
 * longest runs. */
void hc__halo_order(const hc_halo_given *, uint8_t order[HC_MAX_DIMS]);
/* The cells that this rank sends from a side, or the halo on it. `upper`: 0: of the side at index 0; 1: of the other
 * one. `order`: in which the cells are packed. */
void hc__box_make(const hc_halo_given *, const uint8_t *order, int d, int upper, enum hc__part, hc__box *);
/* Copies a strided part, and with it the same part on the other side of its dimension; NULL: that one alone. The upper
 * side of a row and the lower side of the next one often lie on one page: then a page is visited once for both. */
void hc__boxes_pack(const hc__box *, char *to, const hc__box *other, char *to_other);
void hc__boxes_unpack(const hc__box *, const char *from, const hc__box *other, const char *from_other);
/* Writes the extents of all runs, unless `extents` is NULL. Returns their number. */
size_t hc__box_extents(const hc__box *, int writes, hc_extent *extents);
