/* SPDX-License-Identifier: Apache-2.0
 *
 * halos.c - halo exchanges of hpccoll.h, blocking and as plans.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/devices.h"
#include "api/grids.h"
#include "api/list.h"
#include "api/plans.h"
#include "api/sets.h"

#include <string.h>

/* The arguments of the public functions. */
typedef struct halo_call {
    void *array;
    hpccoll_dtype dtype;
    int ndims;
    const int64_t *shape, *strides;
    const int *width;
    int corners;
} halo_call;

/* 1: the elements lie apart, and the distance between two of them is a number. So strides in elements are refused. */
static int are_strides(const halo_call *call) {
    int64_t element = (int64_t)hc_dtype_size((int)call->dtype), reach = 0, step;
    for (int d = 0; call->strides && d < call->ndims; d++) {
        int64_t stride = call->strides[d];
        if (stride == INT64_MIN)
            return 0;
        if (call->shape[d] < 2)
            continue;
        stride = stride < 0 ? -stride : stride;
        if (stride < element || __builtin_mul_overflow(call->shape[d] - 1, stride, &step) ||
            __builtin_add_overflow(reach, step, &reach))
            return 0;
    }
    return 1;
}

/* 1: the number of elements is one that an array can have. Sets whether there are none. */
static int are_extents(const halo_call *call, int *is_empty) {
    int64_t most = 1; /* elements, if no extent is 0 */
    *is_empty = 0;
    for (int d = 0; d < call->ndims; d++) {
        int64_t extent = call->shape[d];
        *is_empty |= !extent;
        if (extent < 0 || (extent && __builtin_mul_overflow(most, extent, &most)) || most > HC_MAX_ELEMENTS)
            return 0;
    }
    return 1;
}

/* OK, or INVALID (error set): the arguments describe no array. */
static int check_array(const halo_call *call) {
    int is_empty;
    if ((unsigned)call->dtype >= HC_DTYPE_COUNT)
        return hc__error(HC_INVALID, "halo_exchange: dtype is no hpccoll_dtype");
    if (call->ndims < 1 || call->ndims > HC_MAX_DIMS)
        return hc__error(HC_INVALID,
                         "halo_exchange: ndims is %d, none of 1 to %d (from C++: shape has another number of elements "
                         "than the array)",
                         call->ndims, HC_MAX_DIMS);
    if (!call->shape)
        return hc__error(HC_INVALID, "halo_exchange: shape is NULL");
    if (!are_extents(call, &is_empty))
        return hc__error(HC_INVALID, "halo_exchange: an extent in shape is negative, or all are too large");
    if (!call->array && !is_empty)
        return hc__error(HC_INVALID, "halo_exchange: array is NULL");
    return HC_OK;
}

/* OK, or a status (error set): these can be no arguments of a halo exchange. */
static int check(const halo_call *call, const hpccoll_world *world) {
    int memory = HC_MEMORY_HOST, status = check_array(call);
    if (status < 0)
        return status;
    if (!call->width)
        return hc__error(HC_INVALID, "halo_exchange: width is NULL: give one for each of the %d dimensions of the grid",
                         (int)world->grid->ndim);
    if (!are_strides(call))
        return hc__error(HC_INVALID,
                         "halo_exchange: strides are the bytes from an element to the next one along each dimension: "
                         "not less than the %d of an element, and the array fits into memory",
                         (int)hc_dtype_size((int)call->dtype));
    if (world->base->devices.on)
        status = hc__devices_place_one(world, call->array, "halo_exchange: array", &memory);
    if (status >= 0 && memory != HC_MEMORY_HOST)
        status = hc__error(HC_UNSUPPORTED,
                           "halo_exchange: the array lies in device memory: halo exchanges are for host "
                           "memory; nothing was sent");
    return status;
}

/* Writes checked arguments for world/halo.h. An array without elements may be NULL. */
static void read(const halo_call *call, const hpccoll_world *world, hc_halo_given *given) {
    static char nothing;
    given->data = call->array ? call->array : &nothing;
    given->dtype = (int)call->dtype;
    given->element = hc_dtype_size(given->dtype);
    given->ndim = call->ndims;
    given->nwidths = world->grid->ndim;
    given->corners = call->corners != 0;
    memcpy(given->shape, call->shape, (size_t)call->ndims * sizeof *call->shape);
    for (int d = 0; d < world->grid->ndim; d++)
        given->widths[d] = call->width[d];
    if (call->strides)
        memcpy(given->strides, call->strides, (size_t)call->ndims * sizeof *call->strides);
    else
        hc_halo_contiguous(given);
}

static hc_halo_place place_in(const hpccoll_world *world) {
    return (hc_halo_place){
        .job = world->base->job, .members = world->members, .own = {world->number, world->rank, world->size}};
}

/* The status of an exchange that is over (error set if it is an error). */
static int outcome(const hc_halo *halo) {
    const char *text;
    int status = hc_halo_status(halo, &text);
    return status < 0 ? hc__error(status, "%s", text) : HC_OK;
}

static int halo_exchange(const halo_call *call, hpccoll_world *world) {
    hc_halo_given given = {.grid = world ? world->grid : NULL};
    hc_halo *halo;
    char why[HC_WHY];
    int status = hc__grid_check(world, "halo_exchange");
    if (status >= 0)
        status = check(call, world);
    if (status < 0)
        return status;
    const hc_halo_calls *calls = &world->base->calls.halo;
    const hc_halo_place place = place_in(world);
    read(call, world, &given);
    status = calls->alone(&place, &given, &halo, why);
    if (status < 0)
        return hc__error(status, "halo_exchange: %s", why);
    if (calls->start(halo, 1) >= 0)
        while (!calls->wait(halo, UINT64_MAX)) {}
    status = outcome(halo);
    calls->free(halo);
    return status;
}

/* Makes the plan with all ranks, also if this one has refused its arguments (status, error set). */
static int agree(const halo_call *call, hpccoll_world *world, int refused, hc_halo **halo, hc_plan_memory **memory) {
    char why[HC_WHY], said[HC__ERROR_BYTES];
    hc_halo_given given = {.grid = world->grid, .number = ++world->halos};
    if (refused >= 0) {
        read(call, world, &given);
    } else {
        snprintf(said, sizeof said, "%s", hpccoll_last_error());
        given.said = said;
    }
    const hc_halo_place place = place_in(world);
    const hc_exchange exchange = hc__exchange_of(world);
    int status = world->base->calls.halo.make(&place, &given, &exchange, refused, halo, memory, why);
    return status < 0 && *why ? hc__error(status, "%s", why) : status;
}

static int plan_start(hpccoll_plan *plan, int waits) {
    return plan->world->base->calls.halo.start(plan->halo, waits);
}

static int plan_test(const hpccoll_plan *plan) {
    return plan->world->base->calls.halo.test(plan->halo);
}

static void plan_wait(const hpccoll_plan *plan) {
    while (!plan->world->base->calls.halo.wait(plan->halo, UINT64_MAX)) {}
}

static int plan_outcome(hpccoll_plan *plan) {
    return outcome(plan->halo);
}

static const hc__plan_steps steps = {plan_start, plan_test, plan_wait, plan_outcome};

static int make_plan(const halo_call *call, hpccoll_world *world, hpccoll_plan **plan) {
    int status = hc__plan_check(world, plan);
    if (status < 0 || (status = hc__grid_check(world, "halo_exchange")) < 0)
        return status;
    hpccoll_plan *made = hc__plan_new(world);
    hc_halo *halo = NULL;
    hc_plan_memory *memory = NULL;
    status = agree(call, world, made ? check(call, world) : HC_NO_MEMORY, &halo, &memory);
    if (status >= 0) {
        made->steps = &steps;
        made->halo = halo;
        made->memory = memory;
        hc__plan_link(made);
        *plan = made;
    } else if (made) {
        hc__plan_rest(made);
    }
    return status;
}

int hpccoll_halo_exchange(void *array, hpccoll_dtype dtype, int ndims, const int64_t *shape, const int64_t *strides,
                          const int *width, int corners, hpccoll_world *world) {
    const halo_call call = {array, dtype, ndims, shape, strides, width, corners};
    return halo_exchange(&call, world);
}

int hpccoll_halo_exchange_init(void *array, hpccoll_dtype dtype, int ndims, const int64_t *shape,
                               const int64_t *strides, const int *width, int corners, hpccoll_world *world,
                               hpccoll_plan **plan) {
    const halo_call call = {array, dtype, ndims, shape, strides, width, corners};
    return make_plan(&call, world, plan);
}
