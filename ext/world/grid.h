/* SPDX-License-Identifier: Apache-2.0
 *
 * grid.h - Cartesian grids of ranks, in row-major order as in MPI: pure functions.
 */
#pragma once

#include "core/hc.h"

typedef struct hc_grid {
    int32_t ndim;               /* at least 1 */
    int32_t dims[HC_MAX_DIMS];  /* the extent of each dimension, at least 1 */
    uint8_t wraps[HC_MAX_DIMS]; /* 1: the ends of the dimension touch */
} hc_grid;

/* Replaces the zeros in `dims` so that the product of all is `size`. The extents that it chooses are as even as
 * possible and do not increase. 0: the given extents do not divide `size`. */
int hc_dims_create(int64_t size, int32_t ndim, int64_t *dims);
/* Makes a grid of at most `size` ranks, after it has replaced zeros in `dims`. Returns the number of its ranks; 0:
 * there is no such grid. `periods` NULL: no ends touch. */
int32_t hc_grid_make(hc_grid *, int32_t size, int32_t ndim, const int *dims, const int *periods);
void hc_grid_coords(const hc_grid *, int32_t rank, int32_t *coords);
/* The rank at these coordinates; HC_NO_PEER: they lie beyond an end that does not touch the other one. */
int32_t hc_grid_rank(const hc_grid *, const int64_t *coords);
/* The ranks that a shift receives from (0) and sends to (1); HC_NO_PEER: there is none. */
void hc_grid_shift(const hc_grid *, int32_t rank, int32_t dimension, int64_t displacement, int32_t peers[2]);
