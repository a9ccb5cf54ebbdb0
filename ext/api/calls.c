/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c - reads the arguments of a public function, and makes a request of them (world/arguments.h).
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/devices.h"
#include "api/list.h"
#include "api/ops.h"
#include "api/requests.h"
#include "api/shortcuts.h"
#include "api/user_reductions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const hpccoll_args no_args = HPCCOLL_ARGS;

/* ---- arguments --------------------------------------------------------------------------------------------- */

static int has(const hc__call *call, int trait) {
    return hc_operation_has(call->operation, trait);
}

static const char *name_of(const hc__call *call) {
    return hc_operation_name(call->operation);
}

static int refuse(const hc__call *call, const char *what) {
    return hc__error(HC_INVALID, "%s: %s; nothing was sent", name_of(call), what);
}

/* Checks that must come before the arguments are read. */
static int check_array(const hc__call *call, const hpccoll_array *a, const hpccoll_world *world) {
    int gets = hc_operation_gets(call->operation, call->root, world->rank);
    if ((unsigned)a->dtype >= HC_DTYPE_COUNT)
        return refuse(call, "dtype is no hpccoll_dtype");
    if (has(call, HC_OP_RESULT_ALLOCATED) && a->in == HPCCOLL_IN_PLACE)
        return refuse(call, "HPCCOLL_IN_PLACE is for results of the input's size");
    if (gets && a->out == HPCCOLL_IN_PLACE)
        return refuse(call, "out is HPCCOLL_IN_PLACE, which is a value of in");
    if (a->out == HPCCOLL_ALLOCATE && (!has(call, HC_OP_RESULT_ALLOCATED) || !call->may_allocate || call->out_count))
        return refuse(call, "out is HPCCOLL_ALLOCATE, which an asynchronous allgather, gather, scatter or alltoall "
                            "takes, with out_count 0");
    if (call->args->row < 1 || (!has(call, HC_OP_ELEMENTWISE) && a->count % call->args->row))
        return refuse(call, "count is not a multiple of args.row");
    return call->reduction >= HC_REDUCTION_COUNT && has(call, HC_OP_REDUCES) ? hc__op_check(call, a->dtype) : HC_OK;
}

static int check_call(const hc__call *call, const hpccoll_world *world) {
    int status = hc__world_check(world);
    if (status < 0)
        return status;
    if (call->operation >= HC_OPERATION_COUNT)
        return hc__error(HC_INVALID, "no such operation: %d", call->operation);
    if (call->n < 0 || (call->n && !call->arrays))
        return refuse(call, "n is negative, or arrays is NULL");
    for (int i = 0; i < call->n && status >= 0; i++)
        status = check_array(call, &call->arrays[i], world);
    return status;
}

/* Sets `count` elements, in rows of args.row unless the operation is elementwise. */
static void put_count(const hc__call *call, hc_operand *o, hpccoll_dtype dtype, int64_t count) {
    int64_t row = has(call, HC_OP_ELEMENTWISE) ? 1 : call->args->row;
    o->dtype = (int)dtype;
    o->ndim = row > 1 ? 2 : 1;
    o->dims[0] = count / row;
    o->dims[1] = row;
    hc_operand_measure(o);
}

/* The memory of a result whose size may be unknown; NULL: the library's. An empty array, whose address may be NULL, has
 * room for no element. */
static void *memory_of_result(const hpccoll_array *a) {
    static char none;
    if (a->out)
        return a->out == HPCCOLL_ALLOCATE ? NULL : a->out;
    return a->in ? (char *)(uintptr_t)a->in : &none;
}

static void read_array(const hc__call *call, const hpccoll_array *a, hc_operand *in, hc_operand *out) {
    hc_operand_clear(in);
    hc_operand_clear(out);
    out->data = a->out;
    in->data = a->in == HPCCOLL_IN_PLACE ? a->out : (char *)(uintptr_t)a->in;
    put_count(call, in, a->dtype, a->count);
    if (has(call, HC_OP_RESULT_ALLOCATED)) {
        out->data = memory_of_result(a);
        put_count(call, out, a->dtype, call->out_count);
    }
}

int hc__call_read(const hc__call *call, const hpccoll_world *world, hc__read *read) {
    const hpccoll_args *args = call->args;
    read->place = (hc_place){.set = world->number, .rank = world->rank, .size = world->size};
    read->operands = read->two;
    if (call->n > 1)
        read->operands = malloc(2 * (size_t)call->n * sizeof *read->operands);
    if (!read->operands)
        return hc__error(HC_NO_MEMORY, "%s: no memory for a group; nothing was sent", name_of(call));
    for (int i = 0; i < call->n; i++)
        read_array(call, &call->arrays[i], &read->operands[2 * i], &read->operands[2 * i + 1]);
    hc_arguments *a = &read->arguments;
    *a = hc_arguments_of(call->operation);
    a->reduction = call->reduction < HC_REDUCTION_COUNT ? call->reduction : HC_REDUCTION_COUNT;
    if (hc__call_is_users(call) && hc__op_find(call->reduction, &read->user))
        a->user = &read->user;
    if (args->compression != HPCCOLL_NO_COMPRESSION)
        a->wire = (unsigned)args->compression < HC_DTYPE_COUNT ? (uint8_t)args->compression : HC_DTYPE_COUNT;
    a->is_group = call->is_group;
    a->is_last = call->is_last;
    a->root = call->root;
    a->prescale = args->prescale;
    a->postscale = args->postscale;
    a->n = (uint32_t)call->n;
    a->operands = read->operands;
    a->splits = call->splits;
    a->nsplits = world->size;
    return HC_OK;
}

void hc__read_free(hc__read *read) {
    if (read->operands != read->two)
        free(read->operands);
}

int hc__call_check(hc__call *call, const hpccoll_world *world, hc__read *read) {
    char why[HC_WHY];
    call->args = call->args ? call->args : &no_args;
    int status = check_call(call, world);
    if (status >= 0)
        status = hc__call_read(call, world, read);
    if (status < 0)
        return status;
    if (world->base->devices.on && (status = hc__devices_place(call, world, read)) < 0) {
        hc__read_free(read);
        return status;
    }
    status = hc_arguments_check(&read->arguments, &read->place, why);
    if (status >= 0)
        return status;
    hc__read_free(read);
    return hc__error(status, "%s: %s; nothing was sent", name_of(call), why);
}

/* ---- memory in flight --------------------------------------------------------------------------------------- */

static int refuse_shared(const hc__call *call, const hc__read *read, const hc_claim *claim) {
    const hc_extent *e = &claim->extents[claim->at];
    const hc_operand *in = &read->operands[2 * e->array];
    return hc__error(
        HC_INVALID, "%s: %s of array %d shares memory with an array of %s, which is in flight: wait for that one first",
        name_of(call), e->writes && in->data != in[1].data ? "out" : "in", e->array, claim->its);
}

/* Checks the call's memory and records it as in flight. `h` NULL: the caller waits, so there is nothing to record. */
static int note_memory(const hc__call *call, hc_in_flight *f, const hc__read *read, hc_handle *h) {
    hc_extent two[2], *extents = call->n > 1 ? malloc(2 * (size_t)call->n * sizeof *extents) : two;
    int status = extents ? HC_OK : HC_NO_MEMORY;
    hc_claim claim = {.extents = extents, .operation = call->operation, .handle = h};
    if (extents) {
        claim.n = hc_arguments_extents(&read->arguments, &read->place, extents);
        status = hc_in_flight_claim(f, &claim);
    }
    if (status == HC_INVALID)
        refuse_shared(call, read, &claim);
    else if (status < 0)
        hc__error(status, "%s: no memory for a request; nothing was sent", name_of(call));
    if (extents != two)
        free(extents);
    return status;
}

/* ---- names ------------------------------------------------------------------------------------------------- */

static int check_name(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > HC_MAX_NAME)
        return hc__error(HC_INVALID, "the name has %zu bytes: a name has 1 to %d", length, HC_MAX_NAME);
    if (strncmp(name, HC_ORDER_PREFIX, sizeof HC_ORDER_PREFIX - 1) == 0)
        return hc__error(HC_INVALID, "a name does not begin with \"%s\"", HC_ORDER_PREFIX);
    return (int)length;
}

static int next_name(const hpccoll_world *world, char name[HC_ORDER_NAME]) {
    int length = hc_order_begin(hc__order(world), name);
    return length < 0 ? hc__error(HC_INVALID, HC_ORDER_REFUSAL) : length;
}

/* Tells the ranks that make the call. Without a name their call would match this rank's next one, so it uses up the
 * number. */
static void tell_refusal(const hc__call *call, const hpccoll_world *world, const char *why) {
    char next[HC_ORDER_NAME];
    const char *name = call->args ? call->args->name : NULL;
    int length = name ? (int)strlen(name) : hc_order_refuse(hc__order(world), next);
    if (length < 0)
        return; /* another thread has calls in flight, so the call has no number */
    world->base->calls.refuse(world->base->job->loop, world->number,
                              &(hc_request){.name = name ? name : next,
                                            .name_len = (uint32_t)length,
                                            .order = name ? 0 : hc_order_count(hc__order(world)),
                                            .operation = call->operation,
                                            .why = why});
}

int hc__call_left(const hc__call *call, hpccoll_world *world, int status) {
    char why[HC__ERROR_BYTES];
    snprintf(why, sizeof why, "%s", hpccoll_last_error());
    tell_refusal(call, world, why);
    return hc__error(status, "%s", why);
}

int hc__call_refused(const hc__call *call, hpccoll_world *world, int status) {
    if ((call->args && call->args->name) || call->operation >= HC_OPERATION_COUNT || hc__world_check(world) < 0)
        return status;
    return hc__call_left(call, world, status);
}

/* ---- the request ------------------------------------------------------------------------------------------- */

hc_handle *hc__call_handle(const hc__call *call, const hc__read *read, const char *name, int length) {
    hc_handle *h = hc_arguments_request(&read->arguments, &read->place, name, (size_t)length);
    if (!h)
        hc__error(HC_NO_MEMORY, "%s: no memory for a request; nothing was sent", name_of(call));
    return h;
}

/* Submits a checked call, or a step of it, under a name: OK and its handle, or a status (error set). `counts`: its
 * ranks may agree on it by their count. */
static int submit(const hc__call *call, hpccoll_world *world, const hc__read *read, const hc__read *step,
                  const char *name, int length, int waits, int counts, hc_handle **out) {
    hc_handle *h = hc__call_handle(call, step, name, length);
    if (!h)
        return HC_NO_MEMORY;
    if (!call->args->name)
        h->request.order = hc_order_count(hc__order(world));
    int status = h->request.memory == HC_MEMORY_HOST ? HC_OK : hc__devices_order(world, h);
    if (status >= 0 && (!waits || !hc__nothing_in_flight(world)))
        status = note_memory(call, &world->base->job->in_flight, read, waits ? NULL : h);
    if (status < 0) {
        if (h->finished)
            hc__devices_end(world, h, status);
        hc_handle_release(h);
        return status;
    }
    if (counts)
        hc__count(world, h);
    world->base->calls.submit(world->base->job->loop, h, waits);
    *out = h;
    return HC_OK;
}

static int begin(const hc__call *call, hpccoll_world *world, const hc__read *read, const hc__read *step, int waits,
                 hc_handle **out) {
    char own[HC_ORDER_NAME];
    const char *name = call->args->name;
    int length = name ? check_name(name) : next_name(world, own), status;
    if (length < 0)
        return length;
    /* A step of a reduction of the program needs a handle. */
    int shortens = waits && !name && step == read, tried = 0;
    int taken = shortens ? hc__shortcut(read, world, call->counts, &tried) : 0;
    if (taken) {
        hc_order_take_back(hc__order(world));
        return taken < 0 ? taken : HC_OK;
    }
    status = submit(call, world, read, step, name ? name : own, length, waits, shortens && !tried, out);
    if (status < 0 && !name)
        hc_order_take_back(hc__order(world));
    return status;
}

int hc__call_begin(const hc__call *given, hpccoll_world *world, int waits, hc_handle **out) {
    hc__call call = *given;
    hc__read read;
    *out = NULL;
    call.may_allocate = !waits;
    int status = hc__call_check(&call, world, &read);
    if (status >= 0) {
        status = begin(&call, world, &read, &read, waits, out);
        hc__read_free(&read);
    }
    return status < 0 ? hc__call_refused(&call, world, status) : status;
}

int hc__call_step(const hc__call *call, hpccoll_world *world, const hc__read *read, const hc_folding_step *given,
                  int waits, hc_handle **out) {
    const hc__read step = {.arguments = given->arguments, .place = read->place};
    *out = NULL;
    int status = begin(call, world, read, &step, waits, out);
    return status < 0 ? hc__call_refused(call, world, status) : status;
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
        return hc__call_refused(call, world, refuse(call, "request is NULL"));
    *request = NULL;
    hpccoll_request *made = hc__request_new(world);
    if (!made)
        return hc__call_refused(
            call, world, hc__error(HC_NO_MEMORY, "%s: no memory for a request; nothing was sent", name_of(call)));
    int status = hc__call_begin(call, world, 0, &h);
    if (status < 0) {
        hc__request_drop(made);
        return status;
    }
    hc__request_hold(made, h, call->counts, NULL);
    *request = made;
    return HC_OK;
}
