/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.c - passes sends and receives to the point-to-point layer, without the engine; stages device memory through the
 * host.
 *
 * Messages need no agreement. Like other requests they come through the inbox, finish in a handle, and end with their
 * set's log or with the World.
 */
#include "loop/failure.h"
#include "loop/handle.h"
#include "loop/plan.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/watch.h"

#include <stdio.h>
#include <stdlib.h>

hc_handle *hc_handle_of_p2p(uint32_t set, const hc_p2p_op *op, int memory) {
    hc_handle *handle = hc_handle_new(HC_HANDLE_P2P, set, 0, 0, NULL, 0, 0);
    hc_p2p_op *own = malloc(sizeof *own);
    hc_staging *staging = memory == HC_MEMORY_HOST || !op->bytes ? NULL : calloc(1, sizeof *staging);
    if (!handle || !own || (memory != HC_MEMORY_HOST && op->bytes && !staging)) {
        free(own);
        free(staging);
        hc_handle_release(handle);
        return NULL;
    }
    *own = *op;
    own->owner = handle;
    handle->op = own;
    handle->staging = staging;
    handle->request.memory = (uint8_t)memory;
    handle->request.operation = op->receives ? HC_RECEIVE : HC_SEND;
    return handle;
}

/* ---- arrays on a device ---------------------------------------------------------------------------- */

static hc_data *data_of(hc_loop *loop, const hc_handle *handle) {
    return hc__set_queue_find(loop, handle->set)->data[handle->request.memory];
}

/* Gives the point-to-point layer host memory in place of the array, and starts the copy of a send. OK, or a status with
 * or without text. */
static int open_staging(hc_loop *loop, hc_handle *handle, char *text) {
    hc_staging *staging = handle->staging;
    hc_p2p_op *op = handle->op;
    if (!staging)
        return HC_OK;
    hc_data *data;
    int status = hc__set_queue_data(hc__set_queue_find(loop, handle->set), handle->request.memory, &data, text);
    if (status < 0)
        return status;
    *staging = (hc_staging){
        .device = op->data, .bytes = op->bytes, .ready = handle->ready, .finished = handle->finished};
    status = data->ops->staging_open(data, staging, !op->receives);
    op->data = staging->host;
    if (status < 0)
        snprintf(text, HC_PLANE_TEXT, "%s", data->text ? data->text : "");
    return status;
}

/* 0: a small message of a plan, which its caller polls for. */
static int needs_listener(const hc_handle *handle) {
    return !(handle->plan && handle->plan->by_caller);
}

static void finish(hc_loop *loop, hc_handle *handle, int status, const char *text) {
    hc_staging *staging = handle->staging;
    const hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    if (status == HC_SHUT_DOWN && !text && queue && queue->stopped)
        text = queue->shutdown_reason;
    if (staging && staging->own)
        data_of(loop, handle)->ops->staging_close(data_of(loop, handle), staging);
    hc__handle_unlink(handle);
    loop->messages.nlistening -= (uint32_t)needs_listener(handle);
    hc__handle_finish(loop, handle, status, text);
}

/* A failure of the transport breaks the World; any other failure ends only this message. */
static void fail(hc_loop *loop, hc_handle *handle, int status, const char *text) {
    if ((status == HC_TRANSPORT || status == HC_PEER_LOST) && text)
        hc__loop_fail(loop, status, handle->op->peer, text);
    else if (status == HC_TRANSPORT || status == HC_PEER_LOST)
        hc__loop_fail_to_move(loop, status, handle->op->peer, "a message could not be sent");
    finish(loop, handle, status, text);
}

static void post(hc_loop *loop, hc_handle *handle) {
    int status = hc_p2p_post(loop->parts.p2p, handle->op);
    if (status < 0)
        fail(loop, handle, status, NULL);
}

/* 1: an earlier send to this receiver and tag is not posted. Sends are posted in the order of their submission,
 * whatever memory their arrays are in. */
static int must_wait(const hc_loop *loop, const hc_handle *handle) {
    const hc_p2p_op *op = handle->op, *one = loop->messages.unposted;
    while (one && (one->set != op->set || one->peer != op->peer || one->tag != op->tag))
        one = one->next;
    return !op->receives && (handle->staging || one);
}

static void wait_for_array(hc_loop *loop, hc_p2p_op *op) {
    hc_p2p_op **link = &loop->messages.unposted;
    while (*link)
        link = &(*link)->next;
    op->next = NULL;
    *link = op;
}

/* Posts the oldest first, which is the order in which their copies end. */
static int post_arrived(hc_loop *loop) {
    int moved = 0;
    while (loop->messages.unposted && !loop->failure.is_next) {
        hc_handle *handle = loop->messages.unposted->owner;
        hc_data *data = data_of(loop, handle);
        int status = handle->staging ? data->ops->staging_test(data, handle->staging) : HC_DONE;
        if (status == HC_IDLE)
            break;
        loop->messages.unposted = loop->messages.unposted->next;
        if (status < 0)
            fail(loop, handle, status, data->text);
        else
            post(loop, handle);
        moved = 1;
    }
    return moved;
}

/* Removes a send that is not posted yet. 1: removed. */
static int take_back(hc_loop *loop, hc_p2p_op *op) {
    hc_p2p_op **link = &loop->messages.unposted;
    while (*link && *link != op)
        link = &(*link)->next;
    if (!*link)
        return 0;
    *link = op->next;
    return 1;
}

static const char *describe_types(const hc_loop *loop, const hc_p2p_op *op, char *text, size_t room) {
    char who[HC_WHO], came[HC_P2P_TYPE_TEXT], own[HC_P2P_TYPE_TEXT];
    snprintf(text, room, "%s has sent %s with tag %u, the receive is of %s",
             hc_who(&loop->ranks.processes, op->peer, who), hc_p2p_type_text(op->came, came), op->tag,
             op->type_name ? op->type_name : hc_p2p_type_text(op->type, own));
    return text;
}

static void arrive(hc_loop *loop, hc_handle *handle) {
    const hc_p2p_op *op = handle->op;
    hc_data *data = handle->staging ? data_of(loop, handle) : NULL;
    int status = op->status;
    if (status == HC_OK && op->receives && data) {
        handle->staging->bytes = op->received;
        status = data->ops->staging_deliver(data, handle->staging);
    }
    char text[HC_WHO + 160];
    if (status < 0 && status != op->status)
        fail(loop, handle, status, data->text);
    else
        finish(loop, handle, status, status == HC_MISMATCH ? describe_types(loop, op, text, sizeof text) : NULL);
}

/* ---- take, progress, end --------------------------------------------------------------------------- */

void hc__p2p_take(hc_loop *loop, hc_handle *handle) {
    const hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    int status = atomic_load(&loop->failure.broken);
    char text[HC_PLANE_TEXT] = "";
    hc_count(&loop->counters.p2p_ops, 1);
    hc_count(&loop->counters.p2p_bytes, handle->bytes);
    hc__trace_handle(loop, HC_TRACE_ENQUEUE, handle, 0);
    hc__handle_link(&loop->messages.ops, handle);
    loop->messages.nlistening += (uint32_t)needs_listener(handle);
    if (status != HC_OK) {
        finish(loop, handle, HC_BROKEN, loop->failure.broken_text);
        return;
    }
    handle->op->set = queue ? queue->wire : 0;
    int nobody = handle->op->peer == HC_NO_PEER;
    status = !queue || queue->stopped ? HC_SHUT_DOWN : nobody ? HC_OK : open_staging(loop, handle, text);
    if (status == HC_OK && nobody)
        finish(loop, handle, HC_OK, NULL);
    else if (status < 0)
        fail(loop, handle, status, text[0] ? text : NULL);
    else if (must_wait(loop, handle))
        wait_for_array(loop, handle->op);
    else
        post(loop, handle);
}

int hc__p2p_progress(hc_loop *loop) {
    hc_p2p_op *op;
    int moved = post_arrived(loop), progress = hc_p2p_progress(loop->parts.p2p);
    if (progress < 0)
        hc__loop_fail_to_move(loop, progress, -1, "a message could not be moved");
    while ((op = hc_p2p_done(loop->parts.p2p))) {
        arrive(loop, op->owner);
        progress = HC_MOVED;
    }
    return moved | (progress == HC_MOVED);
}

/* Ends all unmatched messages of a set whose log has ended. Matched messages are finished: the other rank may be in the
 * middle of one. */
void hc__p2p_stop(hc_loop *loop, uint32_t set) {
    for (hc_handle *handle = loop->messages.ops, *next; handle; handle = next) {
        next = handle->next;
        if (handle->set == set && (take_back(loop, handle->op) || hc_p2p_withdraw(loop->parts.p2p, handle->op)))
            finish(loop, handle, HC_SHUT_DOWN, NULL);
    }
}

int hc__p2p_borrow(const hc_loop *loop, uint32_t set) {
    const hc_handle *handle = loop->messages.ops;
    while (handle && !(handle->set == set && handle->staging && handle->staging->own))
        handle = handle->next;
    return handle != NULL;
}

/* Ends all messages of a broken World; the caller has abandoned the point-to-point layer. */
void hc__p2p_break(hc_loop *loop, int status, const char *text) {
    loop->messages.unposted = NULL;
    while (loop->messages.ops)
        finish(loop, loop->messages.ops, status, text);
}

/* ---- long waits ------------------------------------------------------------------------------------ */

static void describe(hc_loop *loop, const hc_handle *handle, char *text, size_t room) {
    const hc_p2p_op *op = handle->op;
    char who[HC_WHO] = "any rank", bytes[32] = "", tag[32] = "any tag";
    if (op->peer >= 0)
        hc_who(&loop->ranks.processes, op->peer, who);
    if (!(op->flags & (HC_P2P_PROBE | HC_P2P_ALLOCATES)))
        snprintf(bytes, sizeof bytes, " of %llu bytes", (unsigned long long)op->bytes);
    if (!(op->flags & HC_P2P_ANY_TAG))
        snprintf(tag, sizeof tag, "tag %u", op->tag);
    snprintf(text, room, "a %s%s %s %s (%s)",
             op->flags & HC_P2P_PROBE ? "probe"
             : op->receives           ? "receive"
                                      : "send",
             bytes, op->receives ? "from" : "to", who, tag);
}

/* Calls `watch` for each rank on another node that a caller waits for. */
void hc__p2p_watch(hc_loop *loop, uint64_t now, void (*watch)(hc_loop *, int32_t peer, uint64_t now)) {
    int32_t own = loop->ranks.node_of[loop->config.engine.rank];
    for (hc_handle *handle = loop->messages.ops; handle && !loop->failure.is_next; handle = handle->next) {
        uint64_t since = atomic_load_explicit(&handle->waited_since, memory_order_relaxed);
        int32_t peer = handle->op->peer;
        if (!since || since > now)
            continue;
        hc__watch_wait(loop, handle, now - since, describe);
        if (peer >= 0 && loop->ranks.node_of[peer] != own)
            watch(loop, peer, now);
    }
}
