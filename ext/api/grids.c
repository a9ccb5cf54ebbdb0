/* SPDX-License-Identifier: Apache-2.0
 *
 * grids.c - grids of ranks of hpccoll.h: extents, coordinates, neighbours.
 */
#include "api/grids.h"
#include "api/base.h"
#include "api/codes.h"
#include "api/list.h"

#include <stdio.h>

/* Appends numbers, unless they are NULL, and says how many there are. */
static size_t list(const char *name, int n, const int *numbers, char *text, size_t length) {
    length += (size_t)snprintf(text + length, HC__GRID - length, "%s (", name);
    for (int d = 0; d < n && numbers && length < HC__GRID / 2 + 80; d++)
        length += (size_t)snprintf(text + length, HC__GRID - length, d ? ", %d" : "%d", numbers[d]);
    return length + (size_t)snprintf(text + length, HC__GRID - length, ")");
}

void hc__grid_text(int ndims, const int *dims, const int *periods, char text[HC__GRID]) {
    size_t length = list("dims", ndims < 16 ? ndims : 16, dims, text, 0);
    list(", periods", ndims < 16 ? ndims : 16, periods, text, length);
}

int hpccoll_dims_create(int size, int ndims, int *dims) {
    int64_t extents[HC_MAX_DIMS];
    char text[HC__GRID];
    if (!dims || ndims < 1 || ndims > HC_MAX_DIMS)
        return hc__error(HC_INVALID, "dims_create(%d, %d): ndims is none of 1 to %d, or dims is NULL", size, ndims,
                         HC_MAX_DIMS);
    hc__grid_text(ndims, dims, NULL, text);
    for (int d = 0; d < ndims; d++)
        extents[d] = dims[d];
    if (!hc_dims_create(size, ndims, extents))
        return hc__error(HC_INVALID, "dims_create(%d, %d) with %s: the extents given do not divide %d", size, ndims,
                         text, size);
    for (int d = 0; d < ndims; d++)
        dims[d] = (int)extents[d];
    return HC_OK;
}

int hc__grid_check(const hpccoll_world *world, const char *call) {
    int status = hc__world_check(world);
    if (status >= 0 && !world->grid)
        status = hc__error(HC_INVALID,
                           "%s: the ranks of the World are on no grid: hpccoll_cart_create() makes a World "
                           "of ranks that are",
                           call);
    return status;
}

int hpccoll_cart_dims(const hpccoll_world *world, int ndims, int *dims) {
    int status = hc__grid_check(world, "cart_dims");
    for (int d = 0; status >= 0 && dims && d < ndims && d < world->grid->ndim; d++)
        dims[d] = world->grid->dims[d];
    return status < 0 ? status : world->grid->ndim;
}

int hpccoll_cart_coords(const hpccoll_world *world, int rank, int ndims, int *coords) {
    int32_t found[HC_MAX_DIMS];
    int status = hc__grid_check(world, "cart_coords");
    if (status < 0)
        return status;
    if (rank < 0 || rank >= world->size || ndims != world->grid->ndim || !coords)
        return hc__error(HC_INVALID,
                         "cart_coords of rank %d in %d dimensions: the World has ranks 0 to %d in %d dimensions; or "
                         "coords is NULL",
                         rank, ndims, (int)world->size - 1, (int)world->grid->ndim);
    hc_grid_coords(world->grid, rank, found);
    for (int d = 0; d < ndims; d++)
        coords[d] = found[d];
    return HC_OK;
}

int hpccoll_cart_rank(const hpccoll_world *world, const int *coords, int *rank) {
    int64_t at[HC_MAX_DIMS];
    int status = hc__grid_check(world, "cart_rank");
    if (status < 0)
        return status;
    if (!rank)
        return hc__error(HC_INVALID, "cart_rank: the place for the rank is NULL");
    if (!coords)
        return hc__error(HC_INVALID, "cart_rank: coords is NULL: give one for each of the %d dimensions",
                         (int)world->grid->ndim);
    for (int d = 0; d < world->grid->ndim; d++)
        at[d] = coords[d];
    *rank = hc_grid_rank(world->grid, at);
    return HC_OK;
}

int hpccoll_cart_shift(const hpccoll_world *world, int dimension, int displacement, int *source, int *dest) {
    int32_t peers[2];
    int status = hc__grid_check(world, "cart_shift");
    if (status < 0)
        return status;
    if (dimension < 0 || dimension >= world->grid->ndim || !source || !dest)
        return hc__error(HC_INVALID, "cart_shift: dimension %d of %d, or the place for source or dest is NULL",
                         dimension, (int)world->grid->ndim);
    hc_grid_shift(world->grid, world->rank, dimension, displacement, peers);
    *source = peers[0];
    *dest = peers[1];
    return HC_OK;
}
