/* SPDX-License-Identifier: Apache-2.0
 *
 * user_reductions.c - operations whose reduction is a function of the program, or MINLOC or MAXLOC.
 *
 * The data plane has only built-in reductions. This file computes the others, as hpccoll/user_reductions.py does: an
 * allgather moves the ranks' arrays, and each rank combines them in the order of the ranks, so that all ranks have the
 * same bits. A header before each array describes the call, and all ranks compare the headers. A large blocking
 * allreduce or reduce divides the work: an alltoall brings each rank its share, which it combines.
 */
#include "api/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER 128       /* bytes; a multiple of every element's alignment */
#define LARGE (64 << 10) /* bytes from which a blocking call divides the work */

/* State of one call, and its callback, which combines the arrays. */
typedef struct folding {
    hc__after after; /* first, for the cast in of() */
    hc__op op;
    uint8_t operation;
    int root, rank, size;
    int64_t count, row;
    hpccoll_dtype dtype;
    const void *in;
    void *out;
    char header[HEADER];
    char *memory; /* data that this rank sends, or all parts of a plan */
} folding;

static size_t bytes_of(const folding *f) {
    return (size_t)f->count * hc_dtype_size((int)f->dtype);
}

static int has_result(const folding *f) {
    return f->operation != HC_REDUCE || f->rank == f->root;
}

int hc__call_is_users(const hc__call *call) {
    hc__op op;
    return call->reduction >= HC_REDUCTION_COUNT && call->operation < HC_OPERATION_COUNT &&
           hc_operation_has(call->operation, HC_OP_REDUCES) && hc__op_find(call->reduction, &op);
}

static void say(folding *f) {
    char root[24] = "";
    if (f->operation == HC_REDUCE)
        snprintf(root, sizeof root, " to rank %d", f->root);
    snprintf(f->header, HEADER, "%s with %s of %s[%" PRId64 "]%s", hc_operation_name(f->operation), f->op.name,
             hc_dtype_name((int)f->dtype), f->count, root);
}

/* ---- combine ---------------------------------------------------------------------------------------------------- */

/* Combines parts[0 .. n - 1], in the order of their ranks, each with `count` elements, into the last part. */
static char *combine(const folding *f, int n, char *const parts[], int64_t count) {
    for (int i = 1; i < n && count; i++)
        f->op.function(parts[i - 1], parts[i], count, f->dtype, f->op.context);
    return parts[n - 1];
}

/* Computes this rank's result from the parts of `n` ranks; parts[i] is of ranks[i]. */
static void finish(const folding *f, int n, char *parts[], const int ranks[]) {
    int64_t first = 0, count = f->count;
    size_t element = hc_dtype_size((int)f->dtype);
    if (!has_result(f))
        return;
    if (hc_operation_has(f->operation, HC_OP_PREFIX))
        while (n && ranks[n - 1] >= f->rank + (f->operation == HC_SCAN))
            n--;
    if (f->operation == HC_REDUCESCATTER) {
        first = hpccoll_share_begin(f->count / f->row, f->size, f->rank) * f->row;
        count = hpccoll_share(f->count / f->row, f->size, f->rank) * f->row;
    }
    for (int i = 0; i < n; i++)
        parts[i] += (size_t)first * element;
    if (n && count)
        memcpy(f->out, combine(f, n, parts, count), (size_t)count * element);
    else if (f->op.neutral) /* the exscan of rank 0 has no part */
        f->op.neutral(f->out, count, f->dtype);
}

/* Compares the headers of all ranks. `bytes`: of each rank's header and array; NULL: there are only headers. */
static int compare(const folding *f, const char *data, const int64_t *bytes) {
    const char *first = NULL;
    int first_rank = 0;
    for (int rank = 0; rank < f->size; data += bytes ? bytes[rank] : HEADER, rank++) {
        if (bytes && !bytes[rank]) /* it has joined */
            continue;
        if (!first) {
            first = data;
            first_rank = rank;
        } else if (strncmp(first, data, HEADER) != 0) {
            return hc__error(HC_MISMATCH, "rank %d asks for %.*s, rank %d for %.*s", first_rank, HEADER - 1, first,
                             rank, HEADER - 1, data);
        }
    }
    return HC_OK;
}

/* Combines the arrays in `data`. `bytes`: of each rank's header and array, 0 if it has joined; NULL: the arrays of all
 * ranks, without headers. */
static int fold(const folding *f, char *data, const int64_t *bytes) {
    int n = 0;
    char **parts = malloc((size_t)f->size * (sizeof *parts + sizeof(int)));
    if (!parts)
        return hc__error(HC_NO_MEMORY, "no memory for the parts of a reduction");
    int *ranks = (int *)(void *)(parts + f->size);
    for (int rank = 0; rank < f->size; data += bytes ? bytes[rank] : (int64_t)bytes_of(f), rank++) {
        if (bytes && !bytes[rank])
            continue;
        parts[n] = data + (bytes ? HEADER : 0);
        ranks[n++] = rank;
    }
    finish(f, n, parts, ranks);
    free(parts);
    return HC_OK;
}

static folding *of(hc__after *after) {
    return (folding *)(void *)after;
}

/* Callback after the allgather of headers and arrays. */
static int fold_all(hc__after *after, const hc_handle *h) {
    const folding *f = of(after);
    const hc_piece *received = &h->pieces[0];
    int status = hc__status(h);
    if (status >= 0)
        status = compare(f, received->out, received->recv_rows);
    return status < 0 ? status : fold(f, received->out, received->recv_rows);
}

/* Callback after a plan's allgather into the plan's memory. */
static int fold_plan(hc__after *after, const hc_handle *h) {
    const folding *f = of(after);
    int status = hc__status(h);
    return status < 0 ? status : fold(f, f->memory, NULL);
}

/* ---- create and free -------------------------------------------------------------------------------------------- */

static void drop(folding *f) {
    if (f)
        free(f->memory);
    free(f);
}

static void forget(hc__after *after) {
    drop(of(after));
}

/* Bytes of `memory`: enough for an array with its header, and for the shares of all ranks; for a plan, the arrays or
 * the headers of all ranks. */
static size_t memory_of(const folding *f, int is_plan) {
    size_t bytes = bytes_of(f), block = (size_t)f->op.block * hc_dtype_size((int)f->dtype);
    if (is_plan)
        return (size_t)f->size * (bytes > HEADER ? bytes : HEADER);
    return HEADER + bytes + (size_t)f->size * block;
}

/* Checks the call and makes its state. OK, or a status (error set), and nothing was sent. */
static int folding_new(hc__call *call, const hpccoll_world *world, int is_plan, folding **made) {
    hc__read read;
    int status = hc__call_check(call, world, &read);
    if (status >= 0)
        hc__read_free(&read);
    folding *f = status < 0 ? NULL : malloc(sizeof *f);
    *made = f;
    if (f) {
        const hpccoll_array *a = &call->arrays[0];
        *f = (folding){.after = {is_plan ? fold_plan : fold_all, forget},
                       .operation = call->operation,
                       .root = call->root,
                       .rank = world->rank,
                       .size = world->size,
                       .count = a->count,
                       .row = call->args->row,
                       .dtype = a->dtype,
                       .out = a->out};
        f->in = a->in == HPCCOLL_IN_PLACE ? a->out : a->in;
        hc__op_find(call->reduction, &f->op);
        say(f);
        f->memory = malloc(memory_of(f, is_plan));
    }
    if (status < 0 || (f && f->memory))
        return status;
    return hc__error(HC_NO_MEMORY, "%s: no memory for a request; nothing was sent", hc_operation_name(call->operation));
}

/* ---- move ------------------------------------------------------------------------------------------------------- */

/* An allgather of bytes that stands for the call; the caller may change its fields. */
static hc__call moving(const hc__call *call, const hpccoll_array *array, hpccoll_args *args) {
    *args = (hpccoll_args){
        .name = call->args->name, .prescale = 1, .postscale = 1, .compression = HPCCOLL_NO_COMPRESSION, .row = 1};
    return (hc__call){.operation = HC_ALLGATHER, .arrays = array, .n = 1, .args = args, .stands_for = call};
}

/* Begins an allgather of the header and the array of each rank. */
static int begin(folding *f, const hc__call *call, hpccoll_world *world, int waits, int with_array, hc_handle **h) {
    hpccoll_args args;
    size_t bytes = HEADER + (with_array ? bytes_of(f) : 0);
    const hpccoll_array array = {.in = f->memory, .count = (int64_t)bytes, .dtype = HPCCOLL_UINT8};
    const hc__call gather = moving(call, &array, &args);
    memcpy(f->memory, f->header, HEADER);
    if (with_array && f->count)
        memcpy(f->memory + HEADER, f->in, bytes_of(f));
    return hc__call_begin(&gather, world, waits, h);
}

static int whole(folding *f, const hc__call *call, hpccoll_world *world) {
    hc_handle *h;
    int status = begin(f, call, world, 1, 1, &h);
    if (status < 0)
        return status;
    while (!hc__await(world, h, UINT64_MAX)) {}
    int folded = fold_all(&f->after, h);
    status = hc__outcome(world, h, NULL);
    return status < 0 ? status : folded;
}

/* All ranks compare their headers. *all: no rank has joined. */
static int agree(folding *f, const hc__call *call, hpccoll_world *world, int *all) {
    hc_handle *h;
    int status = begin(f, call, world, 1, 0, &h);
    *all = 1;
    if (status < 0)
        return status;
    while (!hc__await(world, h, UINT64_MAX)) {}
    status = hc__status(h);
    if (status >= 0)
        status = compare(f, h->pieces[0].out, h->pieces[0].recv_rows);
    for (int rank = 0; rank < f->size && status >= 0; rank++)
        *all &= h->pieces[0].recv_rows[rank] != 0;
    int outcome = hc__outcome(world, h, NULL);
    return outcome < 0 ? outcome : status;
}

/* Each rank combines its share of the blocks, and sends it to the ranks that need the result. */
static int divided(folding *f, const hc__call *call, hpccoll_world *world, int64_t *counts, char **parts) {
    hpccoll_args args;
    int64_t blocks = f->count / f->op.block, mine = hpccoll_share(blocks, f->size, f->rank);
    int64_t block = f->op.block * (int64_t)hc_dtype_size((int)f->dtype);
    for (int rank = 0; rank < f->size; rank++) {
        counts[rank] = hpccoll_share(blocks, f->size, rank);
        parts[rank] = f->memory + rank * mine * block;
    }
    hpccoll_array array = {.in = f->in, .out = f->memory, .count = blocks * block, .dtype = HPCCOLL_UINT8};
    hc__call move = moving(call, &array, &args);
    args.row = block;
    move.operation = HC_ALLTOALL;
    move.splits = counts;
    move.out_count = mine * f->size * block;
    int status = hc__call_now(&move, world);
    if (status < 0)
        return status;
    array = (hpccoll_array){.in = combine(f, f->size, parts, mine * f->op.block),
                            .out = has_result(f) ? f->out : NULL,
                            .count = mine * block,
                            .dtype = HPCCOLL_UINT8};
    move.operation = f->operation == HC_REDUCE ? HC_GATHER : HC_ALLGATHER;
    move.root = f->root;
    move.splits = NULL;
    move.out_count = has_result(f) ? blocks * block : 0;
    return hc__call_now(&move, world);
}

static int agree_and_divide(folding *f, const hc__call *call, hpccoll_world *world) {
    int all, status = agree(f, call, world, &all);
    if (status < 0 || !all) /* a joined rank would not combine its share */
        return status < 0 ? status : whole(f, call, world);
    char **parts = malloc((size_t)world->size * (sizeof *parts + sizeof(int64_t)));
    status = parts ? divided(f, call, world, (int64_t *)(void *)(parts + world->size), parts)
                   : hc__error(HC_NO_MEMORY, "no memory for the parts of a reduction");
    free(parts);
    return status;
}

int hc__users_now(const hc__call *given, hpccoll_world *world) {
    hc__call call = *given;
    folding *f;
    int status = folding_new(&call, world, 0, &f);
    int divides = call.operation == HC_ALLREDUCE || call.operation == HC_REDUCE;
    if (status < 0)
        status = hc__call_refused(&call, world, status);
    else
        status = divides && world->size > 1 && bytes_of(f) >= LARGE ? agree_and_divide(f, &call, world)
                                                                    : whole(f, &call, world);
    drop(f);
    return status;
}

int hc__users_async(const hc__call *given, hpccoll_world *world, hpccoll_request **request) {
    hc__call call = *given;
    folding *f = NULL;
    hc_handle *h;
    if (!request)
        return hc__call_refused(
            &call, world,
            hc__error(HC_INVALID, "%s: request is NULL; nothing was sent", hc_operation_name(call.operation)));
    *request = NULL;
    hpccoll_request *made = hc__request_new(world);
    int status = made ? folding_new(&call, world, 0, &f) : hc__error(HC_NO_MEMORY, "no memory for a request");
    if (status >= 0)
        status = begin(f, &call, world, 0, 1, &h);
    else
        hc__call_refused(&call, world, status);
    if (status < 0) {
        if (made)
            hc__request_drop(made);
        drop(f);
        return status;
    }
    hc__request_hold(made, h, NULL, NULL);
    hc__request_after(made, &f->after);
    *request = made;
    return HC_OK;
}

/* The ranks compare their headers once per plan. */
static int agree_once(const folding *f, hpccoll_world *world) {
    int status = hc__exchange(world, "hpccoll.op", f->header, HEADER, f->memory);
    if (status == HC_RESULT_SIZE)
        status = hc__error(HC_MISMATCH, "%s_init: a rank has joined: no plan is made", hc_operation_name(f->operation));
    return status < 0 ? status : compare(f, f->memory, NULL);
}

int hc__users_plan(const hc__call *given, hpccoll_world *world, hpccoll_plan **plan) {
    hc__call call = *given;
    hpccoll_args args;
    folding *f = NULL;
    int status = hc__plan_check(world, plan);
    if (status >= 0)
        status = folding_new(&call, world, 1, &f);
    if (status >= 0)
        status = agree_once(f, world);
    if (status >= 0) {
        int64_t bytes = (int64_t)bytes_of(f);
        const hpccoll_array array = {.in = f->in, .out = f->memory, .count = bytes, .dtype = HPCCOLL_UINT8};
        hc__call gather = moving(&call, &array, &args);
        gather.out_count = bytes * world->size;
        status = hc__call_plan(&gather, world, plan);
    }
    if (status < 0)
        drop(f);
    else
        (*plan)->after = &f->after;
    return status;
}
