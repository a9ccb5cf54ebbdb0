/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c - one operation on its way from arguments to a request. What differs between operations is asked of their
 * traits (core/hc.h).
 */
#include "api/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNNAMED HC__UNNAMED
#define PYTHONS "unnamed call "

static const hpccoll_args no_args = HPCCOLL_ARGS;
static char nowhere[64]; /* an address for arrays without elements: NULL would mean "has joined" */

/* ---- checks ------------------------------------------------------------------------------------------------ */

static int has(const hc__call *call, int trait) {
    return hc_operation_has(call->operation, trait);
}

static const char *name_of(const hc__call *call) {
    return hc_operation_name(call->operation);
}

static int refuse(const hc__call *call, const char *what) {
    return hc__error(HC_INVALID, "%s: %s; nothing was sent", name_of(call), what);
}

static int check_factors(const hc__call *call, int dtype) {
    const hpccoll_args *args = call->args;
    if (args->prescale == 1.0 && args->postscale == 1.0)
        return HC_OK;
    if (call->reduction != HC_SUM && call->reduction != HC_AVERAGE)
        return hc__error(HC_UNSUPPORTED, "%s: prescale and postscale go with SUM and AVERAGE, not %s", name_of(call),
                         hc_reduction_name(call->reduction));
    if (dtype < HC_FLOAT16)
        return hc__error(HC_UNSUPPORTED, "%s: prescale and postscale are not defined for %s", name_of(call),
                         hc_dtype_name(dtype));
    return HC_OK;
}

static int check_reduction(const hc__call *call, int dtype) {
    if (!hc_reduction_defined(call->reduction, dtype))
        return hc__error(HC_UNSUPPORTED, "%s: %s of %s is not defined", name_of(call),
                         hc_reduction_name(call->reduction), hc_dtype_name(dtype));
    if (has(call, HC_OP_PREFIX) && call->reduction == HC_AVERAGE)
        return hc__error(HC_UNSUPPORTED, "%s of AVERAGE is not defined: use SUM and divide", name_of(call));
    return check_factors(call, dtype);
}

/* The type between nodes, which is asked for by the arguments; or a status. */
static int wire_of(const hc__call *call, int dtype) {
    int wanted = (int)call->args->compression;
    if (wanted == HPCCOLL_DTYPES || wanted == dtype)
        return HC_WIRE_SAME;
    if (wanted != HC_FLOAT16 && wanted != HC_BFLOAT16)
        return refuse(call, "compression is neither HPCCOLL_FLOAT16 nor HPCCOLL_BFLOAT16, nor none (HPCCOLL_DTYPES)");
    if (dtype != HC_FLOAT32 && dtype != HC_FLOAT64)
        return hc__error(HC_UNSUPPORTED, "%s: compression is for float32 and float64, the array is %s", name_of(call),
                         hc_dtype_name(dtype));
    return wanted;
}

static int gives_input(const hc__call *call, const hpccoll_world *world) {
    return !(has(call, HC_OP_ROOTED) && has(call, HC_OP_COUNTS)) || call->root == world->rank;
}

static int gets_result(const hc__call *call, const hpccoll_world *world) {
    return !has(call, HC_OP_TO_ROOT) || call->root == world->rank;
}

static int64_t out_bytes(const hc__call *call, const hpccoll_world *world, const hpccoll_array *a) {
    int64_t count = has(call, HC_OP_RESULT_ALLOCATED) ? call->out_count : a->count;
    if (call->operation == HC_REDUCESCATTER)
        count = hc_share(a->count / call->args->row, world->size, world->rank) * call->args->row;
    return a->out && gets_result(call, world) ? count * (int64_t)hc_dtype_size((int)a->dtype) : 0;
}

static const void *input_of(const hpccoll_array *a) {
    return a->in == HPCCOLL_IN_PLACE ? a->out : a->in;
}

static int64_t in_bytes(const hc__call *call, const hpccoll_world *world, const hpccoll_array *a) {
    return gives_input(call, world) ? a->count * (int64_t)hc_dtype_size((int)a->dtype) : 0;
}

/* A result of the input's size may replace it. */
static int check_overlap(const hc__call *call, const hpccoll_array *a, size_t bytes, size_t out_bytes) {
    const char *in = a->in, *out = a->out;
    int replaces = in == out && !has(call, HC_OP_RESULT_ALLOCATED);
    if (replaces || in == HPCCOLL_IN_PLACE || !bytes || !out || in >= out + out_bytes || out >= in + bytes)
        return HC_OK;
    return refuse(call, "out overlaps the input without being the input");
}

static int check_array(const hc__call *call, const hpccoll_world *world, const hpccoll_array *a) {
    size_t size = hc_dtype_size((int)a->dtype);
    int allocated = has(call, HC_OP_RESULT_ALLOCATED);
    if ((unsigned)a->dtype >= HC_DTYPE_COUNT)
        return refuse(call, "dtype is no hpccoll_dtype");
    if (a->count < 0 || a->count > HC_MAX_ELEMENTS)
        return refuse(call, "count is negative or too large");
    if (call->out_count < 0 || call->out_count > HC_MAX_ELEMENTS)
        return refuse(call, "out_count is negative or too large");
    if (has(call, HC_OP_REDUCES)) {
        int status = call->reduction < HC_REDUCTION_COUNT ? check_reduction(call, (int)a->dtype)
                                                          : hc__op_check(call, a->dtype, a->count);
        if (status < 0)
            return status;
    }
    if (!a->in && a->count && gives_input(call, world))
        return refuse(call, "in is NULL");
    if (allocated && a->in == HPCCOLL_IN_PLACE)
        return refuse(call, "HPCCOLL_IN_PLACE is for results of the input's size");
    if (!a->out && !allocated && a->count && gets_result(call, world))
        return refuse(call, "out is NULL");
    if (call->args->row < 1 || (!has(call, HC_OP_ELEMENTWISE) && a->count % call->args->row))
        return refuse(call, "count is not a multiple of args.row");
    if (!gets_result(call, world) || !gives_input(call, world))
        return HC_OK;
    return check_overlap(call, a, (size_t)a->count * size, (size_t)out_bytes(call, world, a));
}

/* Each out of a group lies apart from its other arrays. */
static int check_group(const hc__call *call, const hpccoll_world *world) {
    size_t many = 0;
    hc_extent *extents = malloc(2 * (size_t)call->n * sizeof *extents);
    if (!extents)
        return hc__error(HC_NO_MEMORY, "%s: no memory for a group; nothing was sent", name_of(call));
    for (int i = 0; i < call->n; i++) {
        const hpccoll_array *a = &call->arrays[i];
        const char *in = input_of(a), *out = a->out;
        int64_t in_size = in_bytes(call, world, a), out_size = out_bytes(call, world, a);
        if (out_size)
            extents[many++] = (hc_extent){out, out + out_size, 1, i};
        if (in_size && (!out_size || in != out))
            extents[many++] = (hc_extent){in, in + in_size, 0, i};
    }
    int bad = hc_extents_conflict(extents, many);
    free(extents);
    return bad < 0 ? HC_OK
                   : hc__error(HC_INVALID,
                               "%s: array %d of the group shares memory with another one's out: each out needs memory "
                               "of its own, or that of its own in; nothing was sent",
                               name_of(call), bad);
}

static int check_counts(const hc__call *call, const hpccoll_world *world) {
    int64_t rows = call->arrays[0].count / call->args->row, sum = 0;
    if (!call->arrays[0].out && call->out_count && gets_result(call, world))
        return refuse(call, "out is NULL");
    if (!has(call, HC_OP_COUNTS) || !gives_input(call, world))
        return HC_OK;
    if (!call->send_counts)
        return has(call, HC_OP_ROOTED) || rows % world->size == 0
                   ? HC_OK
                   : hc__error(HC_INVALID, "%s without send_counts: %" PRId64 " rows are not divisible by %d ranks",
                               name_of(call), rows, (int)world->size);
    for (int32_t rank = 0; rank < world->size; rank++) {
        if (call->send_counts[rank] < 0 || sum > INT64_MAX - call->send_counts[rank])
            return refuse(call, "send_counts has a negative count");
        sum += call->send_counts[rank];
    }
    if (sum != rows)
        return hc__error(HC_INVALID, "%s: the sum of send_counts is %" PRId64 ", the input has %" PRId64 " rows",
                         name_of(call), sum, rows);
    return HC_OK;
}

/* All that can be wrong with the call on this rank alone. */
static int check(const hc__call *call, const hpccoll_world *world) {
    int status = hc__world_check(world);
    if (status < 0)
        return status;
    if (call->operation >= HC_OPERATION_COUNT)
        return hc__error(HC_INVALID, "no such operation: %d", call->operation);
    if (has(call, HC_OP_ROOTED) && (call->root < 0 || call->root >= world->size))
        return hc__error(HC_INVALID, "%s: root is %d: the World has ranks 0 to %d", name_of(call), call->root,
                         (int)world->size - 1);
    if (call->is_group && (!has(call, HC_OP_FUSES) || call->n < 1 || !call->arrays))
        return refuse(call, has(call, HC_OP_FUSES) ? "a group has at least one array" : "it has no groups");
    for (int i = 0; i < call->n && status >= 0; i++)
        status = check_array(call, world, &call->arrays[i]);
    if (status >= 0 && call->is_group)
        status = check_group(call, world);
    if (status >= 0 && call->n && has(call, HC_OP_RESULT_ALLOCATED))
        status = check_counts(call, world);
    return status;
}

/* ---- memory in flight --------------------------------------------------------------------------------------- */

static int refuse_shared(const hc__call *call, int at, const char *which, const hc_handle *other) {
    char its[HC_IN_FLIGHT_WORDS];
    return hc__error(
        HC_INVALID, "%s: %s of array %d shares memory with an array of %s, which is in flight: wait for that one first",
        name_of(call), which, at, hc_in_flight_words(other, its));
}

/* Refuses an output that a call in flight uses, and an input that one writes; notes this call's memory. `h` NULL: the
 * caller waits, so nothing has to be noted. */
static int note_memory(const hc__call *call, hpccoll_world *world, hc_handle *h) {
    hc_in_flight *f = &world->base->in_flight;
    int status = HC_OK;
    pthread_mutex_lock(&world->base->lock);
    if (!h && !world->base->calls.pending(world->base->loop))
        hc_in_flight_clear(f); /* the next blocking call finds it empty */
    for (int i = 0; i < call->n && status >= 0 && hc_in_flight_any(f); i++) {
        const hpccoll_array *a = &call->arrays[i];
        const hc_handle *other = hc_in_flight_other(f, input_of(a), (size_t)in_bytes(call, world, a), 0,
                                                    call->operation);
        if (other)
            status = refuse_shared(call, i, "in", other);
        else if ((other = hc_in_flight_other(f, a->out, (size_t)out_bytes(call, world, a), 1, call->operation)))
            status = refuse_shared(call, i, "out", other);
    }
    for (int i = 0; h && i < call->n && status >= 0; i++) {
        const hpccoll_array *a = &call->arrays[i];
        status = hc_in_flight_add(f, a->out, (size_t)out_bytes(call, world, a), 1, h);
        if (status >= 0 && input_of(a) != a->out)
            status = hc_in_flight_add(f, input_of(a), (size_t)in_bytes(call, world, a), 0, h);
        if (status < 0)
            hc__error(status, "%s: no memory for a request; nothing was sent", name_of(call));
    }
    atomic_store(&world->base->noted, hc_in_flight_any(f));
    pthread_mutex_unlock(&world->base->lock);
    return status;
}

/* ---- names ------------------------------------------------------------------------------------------------- */

/* Unnamed calls match by their order: the name follows from the program's order alone. */
static int next_name(hpccoll_world *world, char name[32]) {
    uintptr_t me = (uintptr_t)pthread_self();
    if (atomic_fetch_add(&world->unnamed_open, 1) && atomic_load(&world->unnamed_thread) != me) {
        atomic_fetch_sub(&world->unnamed_open, 1);
        return hc__error(HC_INVALID,
                         "an unnamed call from another thread is in flight; calls from several threads must be named");
    }
    atomic_store_explicit(&world->unnamed_thread, me, memory_order_relaxed);
    int number = atomic_load_explicit(&world->unnamed_next, memory_order_relaxed);
    atomic_store_explicit(&world->unnamed_next, number + 1, memory_order_relaxed);
    if (number < 10) { /* without the cost of printf */
        memcpy(name, UNNAMED "0", sizeof UNNAMED + 1);
        name[sizeof UNNAMED - 1] = (char)('0' + number);
        return (int)sizeof UNNAMED;
    }
    return snprintf(name, 32, UNNAMED "%d", number);
}

static int check_name(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > HC_MAX_NAME)
        return hc__error(HC_INVALID, "the name has %zu bytes: a name has 1 to %d", length, HC_MAX_NAME);
    if (strncmp(name, PYTHONS, sizeof PYTHONS - 1) == 0)
        return hc__error(HC_INVALID, "a name does not begin with \"%s\"", PYTHONS);
    return (int)length;
}

/* ---- the request ------------------------------------------------------------------------------------------- */

static void put_array(const hc__call *call, const hpccoll_world *world, hc_handle *h, int at, int64_t *dims, int ndim) {
    const hpccoll_array *a = &call->arrays[at];
    hc_piece *piece = &h->pieces[at];
    int64_t count = gives_input(call, world) ? a->count : 0, row = ndim > 1 ? call->args->row : 1;
    const void *in = input_of(a);
    dims[0] = count / row;
    if (ndim > 1)
        dims[1] = row;
    h->tensors[at] = (hc_tensor){.dtype = (uint8_t)a->dtype, .ndim = (uint8_t)ndim, .dims = dims};
    piece->in = in && count ? in : nowhere;
    piece->count = count;
    piece->row = row;
    piece->rows = dims[0];
    if (!gets_result(call, world))
        return;
    piece->out_capacity = out_bytes(call, world, a);
    piece->out = a->out || has(call, HC_OP_RESULT_ALLOCATED) ? a->out : nowhere;
}

static void put_rows(const hc__call *call, const hpccoll_world *world, hc_handle *h) {
    hc_piece *piece = &h->pieces[0];
    int64_t rows = piece->rows;
    if (has(call, HC_OP_COUNTS) && gives_input(call, world) && (call->send_counts || !has(call, HC_OP_ROOTED))) {
        for (int32_t rank = 0; rank < world->size; rank++)
            h->rows[rank] = call->send_counts ? call->send_counts[rank] : rows / world->size;
        piece->send_rows = h->rows;
    }
    if (piece->out)
        piece->out_rows = call->out_count / call->args->row;
    if (!(has(call, HC_OP_ROOTED) && has(call, HC_OP_COUNTS)))
        piece->recv_rows = h->rows + world->size;
}

hc_handle *hc__call_handle(const hc__call *call, const hpccoll_world *world, const char *name, int length, int wire) {
    uint32_t nrows = has(call, HC_OP_RESULT_ALLOCATED) ? 2 * (uint32_t)world->size : 0;
    int kind = has(call, HC_OP_ONLY_EVENT) ? HC_EV_JOIN : HC_EV_ENQUEUE;
    int ndim = !call->n ? 0 : has(call, HC_OP_ELEMENTWISE) || call->args->row == 1 ? 1 : 2;
    hc_handle *h = hc_handle_new(kind, world->number, (uint32_t)call->n, (uint32_t)(call->n * ndim), name,
                                 (size_t)length, nrows);
    if (!h) {
        hc__error(HC_NO_MEMORY, "%s: no memory for a request; nothing was sent", name_of(call));
        return NULL;
    }
    h->request.operation = call->operation;
    h->request.wire = (uint8_t)wire;
    h->request.root = has(call, HC_OP_ROOTED) ? call->root : -1;
    h->request.flags = (uint8_t)((call->is_group ? HC_REQUEST_GROUP : 0) | (call->is_last ? HC_REQUEST_LAST : 0));
    if (has(call, HC_OP_REDUCES)) {
        h->request.reduction = call->reduction;
        h->request.prescale = call->args->prescale;
        h->request.postscale = call->args->postscale;
    }
    for (int i = 0; i < call->n; i++)
        put_array(call, world, h, i, h->dims + i * ndim, ndim);
    if (nrows)
        put_rows(call, world, h);
    return h;
}

/* Takes an unnamed call back that was not submitted. */
static void forget_name(hpccoll_world *world, int unnamed) {
    if (!unnamed)
        return;
    atomic_fetch_sub(&world->unnamed_next, 1);
    atomic_fetch_sub(&world->unnamed_open, 1);
}

int hc__call_prepare(hc__call *call, const hpccoll_world *world) {
    call->args = call->args ? call->args : &no_args;
    int status = check(call, world);
    if (status < 0)
        return status;
    int wire = call->n && has(call, HC_OP_NARROWS) ? wire_of(call, (int)call->arrays[0].dtype) : HC_WIRE_SAME;
    for (int i = 1; i < call->n && wire >= 0; i++)
        if (wire_of(call, (int)call->arrays[i].dtype) != wire)
            wire = hc__error(HC_UNSUPPORTED, "compression of a group whose arrays are only partly compressible");
    return wire;
}

int hc__call_begin(const hc__call *given, hpccoll_world *world, int waits, hc_handle **out) {
    hc__call call = *given;
    char own[32];
    int wire = hc__call_prepare(&call, world), status = HC_OK;
    if (wire < 0)
        return wire;
    const char *name = call.args->name;
    int length = name ? check_name(name) : next_name(world, own);
    if (length < 0)
        return length;
    if (waits && !name && hc__shortcut(&call, world)) {
        forget_name(world, 1);
        *out = NULL;
        return HC_OK;
    }
    hc_handle *h = hc__call_handle(&call, world, name ? name : own, length, wire);
    if (!h)
        status = HC_NO_MEMORY;
    else if (!waits || atomic_load_explicit(&world->base->noted, memory_order_relaxed))
        status = note_memory(call.stands_for ? call.stands_for : &call, world, waits ? NULL : h);
    if (status < 0) {
        hc_handle_release(h);
        forget_name(world, !name);
        return status;
    }
    world->base->calls.submit(world->base->loop, h, waits);
    *out = h;
    return HC_OK;
}

int hc__call_now(const hc__call *call, hpccoll_world *world) {
    hc_handle *h;
    int status = hc__call_begin(call, world, 1, &h);
    if (status < 0 || !h)
        return status;
    while (!hc__await(world, h, UINT64_MAX)) {}
    return hc__outcome(world, h, call->counts);
}

int hc__call_async(const hc__call *call, hpccoll_world *world, hpccoll_request **request) {
    hc_handle *h;
    if (!request)
        return refuse(call, "request is NULL");
    *request = NULL;
    hpccoll_request *made = hc__request_new(world);
    if (!made)
        return hc__error(HC_NO_MEMORY, "%s: no memory for a request; nothing was sent", name_of(call));
    int status = hc__call_begin(call, world, 0, &h);
    if (status < 0) {
        hc__request_drop(made);
        return status;
    }
    hc__request_hold(made, h, call->counts, NULL);
    *request = made;
    return HC_OK;
}
