/* SPDX-License-Identifier: Apache-2.0
 *
 * operations.c - the collectives of hpccoll.h.
 */
#include "api/calls.h"
#include "api/requests.h"
#include "api/user_reductions.h"

static int now(const hc__call *call, hpccoll_world *world) {
    return hc__call_is_users(call) ? hc__users_now(call, world) : hc__call_now(call, world);
}

static int async(const hc__call *call, hpccoll_world *world, hpccoll_request **request) {
    return hc__call_is_users(call) ? hc__users_async(call, world, request) : hc__call_async(call, world, request);
}

static int plan_of(const hc__call *call, hpccoll_world *world, hpccoll_plan **plan) {
    return hc__call_is_users(call) ? hc__users_plan(call, world, plan) : hc__call_plan(call, world, plan);
}

/* Defines the blocking, asynchronous and persistent form of a function from its parameters and the fields of its
 * hc__call. */
#define ALL(name, parameters, ...)                                                                               \
    int hpccoll_##name(parameters, const hpccoll_args *args, hpccoll_world *world) {                             \
        return now(&(hc__call){__VA_ARGS__, .args = args}, world);                                               \
    }                                                                                                            \
    int hpccoll_##name##_async(parameters, const hpccoll_args *args, hpccoll_world *world,                       \
                               hpccoll_request **request) {                                                      \
        return async(&(hc__call){__VA_ARGS__, .args = args}, world, request);                                    \
    }                                                                                                            \
    int hpccoll_##name##_init(parameters, const hpccoll_args *args, hpccoll_world *world, hpccoll_plan **plan) { \
        return plan_of(&(hc__call){__VA_ARGS__, .args = args}, world, plan);                                     \
    }
#define LIST(...) __VA_ARGS__
#define CODE(code) (uint8_t)((unsigned)(code) < 255 ? (code) : 255)
#define OP .reduction = CODE(op)
#define ARRAY(input, output, elements)                                          \
    .n = 1, .arrays = (const hpccoll_array[]) {                                 \
        { .in = (input), .out = (output), .count = (elements), .dtype = dtype } \
    }

/* generated: functions (make bindings) */
ALL(allreduce, LIST(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op),
    .operation = HC_ALLREDUCE, OP, ARRAY(in, out, count))
ALL(reduce, LIST(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op, int root),
    .operation = HC_REDUCE, OP, .root = root, ARRAY(in, out, count))
ALL(scan, LIST(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op),
    .operation = HC_SCAN, OP, ARRAY(in, out, count))
ALL(exscan, LIST(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op),
    .operation = HC_EXSCAN, OP, ARRAY(in, out, count))
ALL(broadcast, LIST(void *data, int64_t count, hpccoll_dtype dtype, int root), .operation = HC_BROADCAST, .root = root,
    ARRAY(data, data, count))
ALL(reducescatter, LIST(const void *in, void *out, int64_t count, hpccoll_dtype dtype, hpccoll_reduction op),
    .operation = HC_REDUCESCATTER, OP, ARRAY(in, out, count))
ALL(allgather, LIST(const void *in, int64_t count, hpccoll_dtype dtype, void *out, int64_t out_count, int64_t *counts),
    .operation = HC_ALLGATHER, .out_count = out_count, .counts = counts, ARRAY(in, out, count))
ALL(gather,
    LIST(const void *in, int64_t count, hpccoll_dtype dtype, void *out, int64_t out_count, int64_t *counts, int root),
    .operation = HC_GATHER, .out_count = out_count, .counts = counts, .root = root, ARRAY(in, out, count))
ALL(scatter,
    LIST(const void *in, int64_t in_count, const int64_t *splits, hpccoll_dtype dtype, void *out, int64_t out_count,
         int root),
    .operation = HC_SCATTER, .splits = splits, .out_count = out_count, .root = root, ARRAY(in, out, in_count))
ALL(alltoall,
    LIST(const void *in, int64_t count, const int64_t *splits, hpccoll_dtype dtype, void *out, int64_t out_count,
         int64_t *recv_counts),
    .operation = HC_ALLTOALL, .splits = splits, .out_count = out_count, .counts = recv_counts, ARRAY(in, out, count))
/* end of generated */

ALL(group, LIST(hpccoll_operation operation, const hpccoll_array *arrays, int n, hpccoll_reduction op, int root),
    .operation = CODE(operation), OP, .root = root, .arrays = arrays, .n = n, .is_group = 1)

int hpccoll_barrier(const hpccoll_args *args, hpccoll_world *world) {
    return hc__call_now(&(hc__call){.operation = HC_BARRIER, .args = args}, world);
}

int hpccoll_barrier_async(const hpccoll_args *args, hpccoll_world *world, hpccoll_request **request) {
    return hc__call_async(&(hc__call){.operation = HC_BARRIER, .args = args}, world, request);
}

int hpccoll_barrier_init(const hpccoll_args *args, hpccoll_world *world, hpccoll_plan **plan) {
    return hc__call_plan(&(hc__call){.operation = HC_BARRIER, .args = args}, world, plan);
}

int hpccoll_join(int *last, hpccoll_world *world) {
    const hpccoll_args args = {
        .name = "join", .prescale = 1, .postscale = 1, .compression = HPCCOLL_NO_COMPRESSION, .row = 1};
    hc_handle *h;
    int status = hc__call_begin(&(hc__call){.operation = HC_JOIN, .args = &args}, world, 1, &h);
    if (status < 0)
        return status;
    while (!hc__await(world, h, UINT64_MAX)) {}
    if (last && h->status >= 0)
        *last = (int)h->value;
    return hc__outcome(world, h, NULL);
}
