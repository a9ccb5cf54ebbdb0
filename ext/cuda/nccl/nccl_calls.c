/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_calls.c - the types and reductions of NCCL, the calls that sum and gather a chunk, and their time limit.
 */
#include "cuda/nccl/nccl_node.h"

#include <stdio.h>

/* ---- types and reductions --------------------------------------------------------------------------------------- */

int hc__nccl_dtype(int dtype) {
    static const int codes[HC_DTYPE_COUNT] = {
        [HC_INT8] = 1 + HC_NCCL_INT8,       [HC_UINT8] = 1 + HC_NCCL_UINT8,       [HC_INT32] = 1 + HC_NCCL_INT32,
        [HC_UINT32] = 1 + HC_NCCL_UINT32,   [HC_INT64] = 1 + HC_NCCL_INT64,       [HC_UINT64] = 1 + HC_NCCL_UINT64,
        [HC_FLOAT16] = 1 + HC_NCCL_FLOAT16, [HC_BFLOAT16] = 1 + HC_NCCL_BFLOAT16, [HC_FLOAT32] = 1 + HC_NCCL_FLOAT32,
        [HC_FLOAT64] = 1 + HC_NCCL_FLOAT64,
    };
    return codes[dtype] - 1;
}

/* -1 for a mean of integers: it divides the exact sum, which NCCL cannot do. */
int hc__nccl_op(int reduction, int dtype) {
    static const int codes[HC_REDUCTION_COUNT] = {[HC_SUM] = 1 + HC_NCCL_SUM,
                                                  [HC_AVERAGE] = 1 + HC_NCCL_SUM,
                                                  [HC_MIN] = 1 + HC_NCCL_MIN,
                                                  [HC_MAX] = 1 + HC_NCCL_MAX,
                                                  [HC_PRODUCT] = 1 + HC_NCCL_PRODUCT};
    int divides = reduction == HC_AVERAGE && (dtype < HC_FLOAT16 || dtype > HC_FLOAT64);
    return hc__nccl_dtype(dtype) < 0 || divides ? -1 : codes[reduction] - 1;
}

enum hc_device_path hc_device_path(int operation, int reduction, int dtype) {
    static const uint8_t is_built[HC_OPERATION_COUNT] = {
        [HC_ALLREDUCE] = 1, [HC_ALLGATHER] = 1, [HC_BROADCAST] = 1, [HC_REDUCESCATTER] = 1, [HC_ALLTOALL] = 1};
    int reduces = hc_operation_has(operation, HC_OP_REDUCES);
    if (operation < 0 || operation >= HC_OPERATION_COUNT || hc_operation_has(operation, HC_OP_NO_TENSORS))
        return HC_PATH_UNDEFINED;
    return is_built[operation] && (!reduces || hc__nccl_op(reduction, dtype) >= 0) ? HC_PATH_NCCL : HC_PATH_STAGED;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

int hc__nccl_settle(hc__nccl_node *n, const char *call) {
    int status = hc__comms_settle(n->comms, call, n->called);
    n->waits = status == HC_IDLE;
    n->called = HC_NCCL_IN_PROGRESS;
    if (status < 0)
        snprintf(n->text, sizeof n->text, "%s", n->comms->text);
    return status;
}

int hc__nccl_wait_for_device(hc__nccl_node *n, const char *what) {
    if (n->device->driver.event_query(n->began) == HC_DRIVER_NOT_READY)
        n->comms->since = hc__comms_now();
    int status = hc__comms_wait(n->comms, what);
    if (status < 0)
        snprintf(n->text, sizeof n->text, "%s", n->comms->text);
    return status;
}

/* ---- allreduce's calls ------------------------------------------------------------------------------------------ */

/* Each rail's driver gets the sum of its shard: one call, or one per rail. */
int hc__nccl_call_reduce(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    const hc_nccl *nccl = &n->comms->nccl;
    const char *from = slot->in_place ? slot->in_place : slot->buffer;
    size_t part = (size_t)slot->part, bytes = part * (size_t)n->size;
    if (n->comms->alone)
        return HC_NCCL_SUCCESS;
    if (n->rails == 0)
        return nccl->all_reduce(from, slot->out_place ? slot->out_place : slot->buffer, (size_t)slot->n, n->dtype,
                                n->op, n->comms->comm, n->work);
    if (n->rails == n->base.local_size)
        return nccl->reduce_scatter(from, slot->buffer + (size_t)n->base.local_rank * bytes, part, n->dtype, n->op,
                                    n->comms->comm, n->work);
    int status = nccl->group_start();
    for (int j = 0; j < n->rails; j++)
        status = hc__nccl_worse(status, nccl->reduce(from + (size_t)j * bytes, slot->buffer + (size_t)j * bytes, part,
                                                     n->dtype, n->op, j, n->comms->comm, n->work));
    return hc__nccl_worse(status, nccl->group_end());
}

int hc__nccl_call_gather(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    const hc_nccl *nccl = &n->comms->nccl;
    char *wire = hc__nccl_wire(n, slot), *to = slot->out_place ? slot->out_place : wire;
    size_t part = (size_t)(slot->part * n->units), bytes = (size_t)(slot->part * n->wire_size);
    if (n->comms->alone)
        return HC_NCCL_SUCCESS;
    if (n->rails == n->base.local_size)
        return nccl->all_gather(wire + (size_t)n->base.local_rank * bytes, to, part, n->wire_dtype, n->comms->comm,
                                n->work);
    int status = nccl->group_start();
    for (int j = 0; j < n->rails; j++)
        status = hc__nccl_worse(status, nccl->broadcast(wire + (size_t)j * bytes, to + (size_t)j * bytes, part,
                                                        n->wire_dtype, j, n->comms->comm, n->work));
    return hc__nccl_worse(status, nccl->group_end());
}
