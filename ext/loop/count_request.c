/* SPDX-License-Identifier: Apache-2.0
 *
 * count_request.c - agrees on a blocking request without a name by the count of its ranks, without the engine: the
 * shortcut's count in a node (transport/shm/shortcut.h), and the nodes' votes (transport/net/vote.h).
 *
 * A rank joins the count with a hash of its request in place of data. If all ranks have joined with equal ones, all run
 * the request's batch at once (counted.c). Otherwise none does, and they agree on it in the engine, which names a
 * difference.
 */
#include "loop/counted.h"
#include "loop/state.h"

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

/* A barrier whose words are a hash of what must be equal on all ranks. */
static void sign(const hc_handle *handle, hc_shortcut_call *call) {
    const hc_request *request = &handle->request;
    uint64_t sums[2] = {1, 2};
    mix(sums,
        (uint64_t)request->operation << 32 | (uint64_t)request->reduction << 16 | request->wire << 8 | request->flags);
    mix(sums, (uint64_t)(uint32_t)request->root << 32 | request->ntensors);
    mix_bytes(sums, &request->prescale, sizeof request->prescale);
    mix_bytes(sums, &request->postscale, sizeof request->postscale);
    for (uint32_t i = 0; i < request->ntensors; i++)
        mix_tensor(sums, &handle->tensors[i], hc_operation_has(request->operation, HC_OP_ROWS_DIFFER));
    *call = (hc_shortcut_call){
        .agreed = {.operation = HC_BARRIER, .root = -1, .prescale = 1, .postscale = 1},
        .traits = hc_operation_traits[HC_BARRIER],
        .is_request = 1,
        .shown = request->operation,
    };
    call->agreed.dims[0] = 1; /* no barrier */
    memcpy(&call->agreed.dims[1], sums, sizeof sums);
}

/* ---- the caller -------------------------------------------------------------------------------------------- */

static int conclude(hc_loop *loop, hc_handle *handle, int state) {
    if (state == HC_SHORTCUT_TAKEN)
        handle->kind = HC_HANDLE_COUNTED;
    else if (state != HC_SHORTCUT_OPEN)
        hc__counted_off(loop, handle->set);
    return state < 0 ? HC_SHORTCUT_OFF : state; /* a request says why */
}

static int count(hc_loop *loop, hc_shortcut *shortcut, hc_votes *votes, const hc_handle *handle, uint64_t ns) {
    hc_shortcut_call call;
    sign(handle, &call);
    if (votes)
        return hc_loop_vote(loop, handle->set, votes, &call, ns);
    int state = hc_loop_shortcut(loop, handle->set, shortcut, &call);
    return state == HC_SHORTCUT_OPEN ? hc_loop_shortcut_wait(loop, shortcut, &call) : state;
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

int hc_loop_count(hc_loop *loop, hc_shortcut *shortcut, hc_votes *votes, hc_handle *handle, uint64_t ns) {
    if (!shortcut || !may_count(handle))
        return HC_SHORTCUT_OFF;
    atomic_store(&loop->sets.counting[handle->set], 1);
    if (atomic_load(&loop->handles.pending) != 0) {
        hc_shortcut_decline(shortcut);
        return conclude(loop, handle, HC_SHORTCUT_OFF);
    }
    return conclude(loop, handle, count(loop, shortcut, votes, handle, ns));
}

int hc_loop_count_wait(hc_loop *loop, hc_votes *votes, hc_handle *handle, uint64_t ns) {
    return conclude(loop, handle, hc_loop_vote_wait(loop, votes, ns));
}
