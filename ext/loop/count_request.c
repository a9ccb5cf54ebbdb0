/* SPDX-License-Identifier: Apache-2.0
 *
 * count_request.c - agrees on a blocking request without a name by the count of its ranks, without the engine: the
 * shortcut's count in a node (transport/shm/shortcut.h), and the nodes' votes (transport/net/vote.h).
 *
 * A rank joins the count with a hash of its request in place of a call. If all ranks have joined with equal ones, all
 * run the request's batch at once (counted.c). Otherwise none does, and they agree on it in the engine, which names a
 * difference. The data of such a call is empty, or tells whether all ranks give equally many rows (equal_rows.c).
 */
#include "loop/counted.h"
#include "loop/state.h"
#include "loop/votes.h"

#include <string.h>

/* ---- the hash ----------------------------------------------------------------------------------------- */

static void mix(uint64_t sums[2], uint64_t value) {
    sums[0] = (sums[0] ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    sums[1] = (sums[1] + value) * UINT64_C(0xC2B2AE3D27D4EB4F);
    sums[0] ^= sums[0] >> 32;
    sums[1] ^= sums[1] >> 29;
}

static void mix_bytes(uint64_t sums[2], const void *data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t value = 0;
        memcpy(&value, (const char *)data + at, bytes - at < sizeof value ? bytes - at : sizeof value);
        mix(sums, value);
    }
}

/* The number of rows may differ between ranks. */
static void mix_tensor(uint64_t sums[2], const hc_tensor *tensor, int rows_differ) {
    mix(sums, (uint64_t)tensor->dtype << 16 | (uint64_t)tensor->ndim << 8 | tensor->type_len);
    mix_bytes(sums, tensor->type, tensor->type_len);
    for (int d = rows_differ; d < tensor->ndim; d++)
        mix(sums, (uint64_t)tensor->dims[d]);
}

/* A barrier, or a minimum, whose words are a hash of what must be equal on all ranks. */
static void sign(const hc_handle *handle, hc_shortcut_call *call) {
    const hc_request *request = &handle->request;
    int rows_differ = hc_operation_has(request->operation, HC_OP_ROWS_DIFFER);
    int operation = rows_differ ? HC_ALLREDUCE : HC_BARRIER;
    uint64_t sums[2] = {1, 2};
    mix(sums,
        (uint64_t)request->operation << 32 | (uint64_t)request->reduction << 16 | request->wire << 8 | request->flags);
    mix(sums, (uint64_t)(uint32_t)request->root << 32 | request->ntensors);
    mix_bytes(sums, &request->prescale, sizeof request->prescale);
    mix_bytes(sums, &request->postscale, sizeof request->postscale);
    for (uint32_t i = 0; i < request->ntensors; i++)
        mix_tensor(sums, &handle->tensors[i], rows_differ);
    *call = (hc_shortcut_call){
        .agreed = {.operation = (uint8_t)operation,
                   .reduction = HC_MIN,
                   .dtype = HC_INT64,
                   .root = -1,
                   .prescale = 1,
                   .postscale = 1},
        .traits = hc_operation_traits[operation],
        .is_request = 1,
        .shown = request->operation,
    };
    call->agreed.dims[0] = 1; /* of no call: it has no dimensions */
    memcpy(&call->agreed.dims[1], sums, sizeof sums);
}

/* ---- the caller -------------------------------------------------------------------------------------------- */

static int conclude(hc_loop *loop, hc_handle *handle, int32_t rank, int state, const int64_t *extremes) {
    if (state == HC_SHORTCUT_OPEN)
        return state;
    if (state == HC_SHORTCUT_TAKEN)
        handle->kind = HC_HANDLE_COUNTED;
    else
        hc__counted_off(loop, handle->set);
    hc__equal_settle(handle, rank, state == HC_SHORTCUT_TAKEN ? extremes : NULL);
    if (state >= 0)
        return state;
    handle->kind = HC_HANDLE_VOTED; /* ends as its votes have: a new request would come after the failure */
    return HC_SHORTCUT_OFF;
}

static void add_rows(const hc_counting *by, hc_handle *handle, hc_shortcut_call *call, hc__extremes extremes) {
    call->rank = by->rank;
    call->size = by->size;
    if (!hc_operation_has(handle->request.operation, HC_OP_ROWS_DIFFER))
        return;
    hc__equal_say(handle, by->rank, by->size, extremes);
    call->in = call->out = extremes;
    call->count = 2;
    call->row = 1;
    call->bytes = sizeof(hc__extremes);
}

static int count(hc_loop *loop, const hc_counting *by, hc_handle *handle, uint64_t ns) {
    hc_shortcut_call call;
    hc__extremes extremes;
    int state;
    sign(handle, &call);
    add_rows(by, handle, &call, extremes);
    if (by->votes) {
        state = hc_loop_vote(loop, handle->set, by->votes, &call, ns);
    } else {
        state = hc_loop_shortcut(loop, handle->set, by->shortcut, &call);
        if (state == HC_SHORTCUT_OPEN)
            state = hc_loop_shortcut_wait(loop, by->shortcut, &call);
    }
    if (state == HC_SHORTCUT_TAKEN && call.out)
        hc_loop_shortcut_end(loop, by->shortcut, &call);
    return conclude(loop, handle, by->rank, state, extremes);
}

/* A group of several dtypes has a batch for each. */
static int has_one_batch(const hc_handle *handle) {
    for (uint32_t i = 1; i < handle->request.ntensors; i++)
        if (handle->tensors[i].dtype != handle->tensors[0].dtype)
            return 0;
    return handle->request.ntensors > 0;
}

static int may_count(const hc_handle *handle) {
    return handle->kind == HC_EV_ENQUEUE && handle->request.memory == HC_MEMORY_HOST && has_one_batch(handle) &&
           !(handle->request.flags & HC_REQUEST_LAST);
}

int hc_loop_count(hc_loop *loop, const hc_counting *by, hc_handle *handle, uint64_t ns) {
    if (!by->shortcut || !may_count(handle))
        return HC_SHORTCUT_OFF;
    atomic_store(&loop->sets.counting[handle->set], 1);
    if (atomic_load(&loop->handles.pending) != 0) {
        hc_shortcut_decline(by->shortcut);
        hc__counted_off(loop, handle->set);
        return HC_SHORTCUT_OFF;
    }
    return count(loop, by, handle, ns);
}

int hc_loop_count_wait(hc_loop *loop, const hc_counting *by, hc_handle *handle, uint64_t ns) {
    int state = hc_loop_vote_wait(loop, by->votes, ns);
    return conclude(loop, handle, by->rank, state, hc__votes_extremes(by->votes));
}
