/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c - a progress iteration of the driver: moves everything that can move now, once; never waits.
 */
#include "loop/clock.h"
#include "loop/counted.h"
#include "loop/failure.h"
#include "loop/handle.h"
#include "loop/inbox.h"
#include "loop/plan.h"
#include "loop/progress.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/votes.h"
#include "loop/watch.h"

static void take_request(hc_loop *loop, hc_handle *handle) {
    hc_event event = {
        .kind = handle->kind, .set = handle->set, .request = &handle->request, .ticket = handle->request.ticket};
    hc_count(&loop->counters.requests, 1);
    hc__trace_handle(loop, HC_TRACE_ENQUEUE, handle, 0);
    hc__handle_link(&loop->handles.requests, handle); /* before the step, which may finish it */
    int status = hc__loop_step(loop, &event);
    if (status < 0) {
        hc__handle_unlink(handle);
        hc__handle_finish(loop, handle, status, "the process set is not known here");
    }
}

static void take_stop(hc_loop *loop, hc_handle *handle) {
    hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    int status = atomic_load(&loop->failure.broken);
    if (!queue || (queue->stopped && !queue->head)) {
        hc__handle_finish(loop, handle, status, hc_status_text(status));
        return;
    }
    handle->next = queue->stops;
    queue->stops = handle;
    const char *why = handle->request.name_len ? handle->request.name : NULL; /* ends in 0 */
    hc__loop_step(loop, &(hc_event){.kind = HC_EV_STOP, .set = handle->set, .text = why});
}

static void take_preempt(hc_loop *loop, hc_handle *handle) {
    int status = hc__loop_step(loop, &(hc_event){.kind = HC_EV_PREEMPT, .set = handle->set});
    hc__handle_finish(loop, handle, status, "the process set is not known here");
}

static void take_refusal(hc_loop *loop, hc_handle *handle) {
    if (handle->value > 0)
        hc__votes_decline(loop, handle->set, (uint64_t)handle->value);
    int status = hc__loop_step(loop,
                               &(hc_event){.kind = HC_EV_REFUSE, .set = handle->set, .request = &handle->request});
    hc__handle_finish(loop, handle, status, NULL);
}

static void take_tune(hc_loop *loop, hc_handle *handle) {
    hc_tuning tuning = {.fusion_threshold = (uint64_t)handle->rows[0],
                        .raise_bytes = (uint64_t)handle->rows[1],
                        .raise_window = (uint64_t)handle->rows[2]};
    int status = hc__loop_step(loop, &(hc_event){.kind = HC_EV_TUNE, .set = handle->set, .tuning = &tuning});
    hc__handle_finish(loop, handle, status, "only the first rank of a process set tunes it");
}

/* Without parts: this rank could not make a set that the others have. */
static void take_add_set(hc_loop *loop, hc_handle *handle) {
    if (!handle->parts) {
        char text[sizeof loop->failure.text], who[HC_WHO];
        hc_who(&loop->ranks.processes, loop->config.engine.rank, who);
        snprintf(text, sizeof text, "%s could not make a process set that other ranks have: %.*s", who,
                 (int)handle->request.name_len, handle->request.name);
        hc__loop_fail(loop, handle->status, -1, text);
        hc__handle_finish(loop, handle, HC_OK, NULL);
        return;
    }
    int status = hc__set_queue_add(loop, handle);
    hc__handle_finish(loop, handle, status, "the process set could not be made");
}

/* Keeps the removal until the set's messages have ended. Its log has ended, so they end soon. */
static void take_remove_set(hc_loop *loop, hc_handle *handle) {
    handle->next = loop->handles.removals;
    loop->handles.removals = handle;
}

static void remove_set(hc_loop *loop, hc_handle *handle) {
    hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    hc__loop_step(loop, &(hc_event){.kind = HC_EV_REMOVE_SET, .set = handle->set});
    if (queue) {
        hc_p2p_forget(loop->parts.p2p, queue->wire);
        hc__set_queue_remove(loop, queue);
    }
    hc__handle_finish(loop, handle, HC_OK, NULL);
}

/* Removes sets whose last message has returned the memory of the set's data plane, and whose votes have ended. It runs
 * at the end of an iteration, after everything that may have ended messages, such as the World's failure. */
static int remove_sets(hc_loop *loop) {
    int moved = 0;
    for (hc_handle **link = &loop->handles.removals; *link;) {
        hc_handle *handle = *link;
        if (hc__p2p_borrow(loop, handle->set) || hc__votes_are_open(loop, handle->set)) {
            link = &handle->next;
            continue;
        }
        *link = handle->next;
        remove_set(loop, handle);
        moved = 1;
    }
    return moved;
}

/* A request that all ranks have counted. After the World's failure the engine says why it has none. */
static void take_counted(hc_loop *loop, hc_handle *handle) {
    hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    if (queue && atomic_load(&loop->failure.broken) == HC_OK) {
        hc__counted_take(loop, queue, handle);
        return;
    }
    hc__counted_off(loop, handle->set);
    handle->kind = HC_EV_ENQUEUE;
    take_request(loop, handle);
}

static void take(hc_loop *loop, hc_handle *handle) {
    switch (handle->kind) {
    case HC_EV_STOP:
        take_stop(loop, handle);
        break;
    case HC_EV_PREEMPT:
        take_preempt(loop, handle);
        break;
    case HC_EV_REFUSE:
        take_refusal(loop, handle);
        break;
    case HC_EV_TUNE:
        take_tune(loop, handle);
        break;
    case HC_EV_ADD_SET:
        take_add_set(loop, handle);
        break;
    case HC_EV_REMOVE_SET:
        take_remove_set(loop, handle);
        break;
    case HC_HANDLE_P2P:
        hc__p2p_take(loop, handle);
        break;
    case HC_HANDLE_PLAN:
        hc__plan_take(loop, handle);
        break;
    case HC_HANDLE_VOTE:
        hc__votes_take(loop, handle, hc__loop_now());
        break;
    case HC_HANDLE_VOTED:
        hc__votes_take_request(loop, handle);
        break;
    case HC_HANDLE_COUNTED:
        take_counted(loop, handle);
        break;
    default:
        if (!hc__counted_keeps(loop, handle))
            take_request(loop, handle);
        break;
    }
}

static int take_all(hc_loop *loop, hc_handle *first) {
    int any = first != NULL;
    for (hc_handle *next; first; first = next) {
        next = first->next;
        take(loop, first);
    }
    return any;
}

/* First what was kept back, then the inbox, and then what its counted requests have let go. */
static int take_inbox(hc_loop *loop) {
    int moved = take_all(loop, hc__counted_kept(loop));
    hc_handle *handle = hc__inbox_take(loop);
    if (!handle)
        return moved;
    atomic_store_explicit(&loop->inbox.bytes, 0, memory_order_relaxed);
    take_all(loop, handle);
    take_all(loop, hc__counted_kept(loop));
    return 1;
}

/* A waiting caller submits, then requests the flush; so this reads the flush before the inbox, and flushes after it. It
 * must exchange the flush: a store of 0 could replace the flush of a caller whose request this does not see yet. */
static int take_requests(hc_loop *loop) {
    int flush = atomic_load_explicit(&loop->place.flush, memory_order_relaxed) &&
                atomic_exchange_explicit(&loop->place.flush, 0, memory_order_acquire);
    int moved = take_inbox(loop);
    if (flush)
        hc__loop_step(loop, &(hc_event){.kind = HC_EV_FLUSH});
    return moved | flush;
}

static void take_message(hc_loop *loop, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    int status = hc__heartbeat_message(loop, peer, bytes, nbytes);
    if (status == 0)
        status = hc_p2p_message(loop->parts.p2p, peer, bytes, nbytes);
    if (status == 0)
        status = hc__votes_message(loop, peer, bytes, nbytes);
    if (status == 0) {
        hc__trace_message(loop, HC_TRACE_RECEIVE, peer, nbytes);
        status = hc__loop_step(loop,
                               &(hc_event){.kind = HC_EV_MESSAGE, .peer = peer, .bytes = bytes, .nbytes = nbytes});
    }
    if (status < 0)
        hc__loop_fail(loop, status, peer, hc_status_text(status));
}

static int receive(hc_loop *loop) {
    hc_control *control = loop->parts.control;
    int moved = 0, progress;
    int32_t peer;
    const uint8_t *bytes;
    size_t nbytes;
    while ((progress = control->ops->receive(control, &peer, &bytes, &nbytes)) == HC_DONE) {
        take_message(loop, peer, bytes, nbytes);
        moved = 1;
    }
    if (progress < 0)
        hc__loop_fail_to_move(loop, progress, -1, "control messages could not be received");
    return moved;
}

/* Sends until nothing moves: after SENT the engine may send what it has collected (T4). */
static int send_queued(hc_loop *loop) {
    hc_control *control = loop->parts.control;
    int moved = 0, progress;
    for (;;) {
        int32_t peer = -1;
        progress = control->ops->progress(control, &peer);
        if (progress < 0)
            hc__loop_fail_to_move(loop, progress, peer, "control messages could not be sent");
        if (progress < 0 || peer < 0)
            break;
        moved = 1;
        if (!loop->ranks.unsent[peer])
            continue; /* a point-to-point message, or a question of heartbeat.c */
        loop->ranks.unsent[peer] = 0;
        hc__loop_step(loop, &(hc_event){.kind = HC_EV_SENT, .peer = peer});
    }
    return moved;
}

void hc__progress_in(hc_loop *loop) {
    take_inbox(loop);
}

void hc__progress_out(hc_loop *loop) {
    send_queued(loop);
}

static int take_time(hc_loop *loop) {
    if (loop->wake_at == UINT64_MAX || hc__loop_now() < loop->wake_at)
        return 0;
    loop->wake_at = UINT64_MAX;
    hc__loop_step(loop, &(hc_event){.kind = HC_EV_TICK});
    return 1;
}

static int take_failure(hc_loop *loop) {
    if (!loop->failure.is_next)
        return 0;
    hc__loop_step(loop, &loop->failure.event);
    loop->failure.is_next = 0;
    return 1;
}

int hc__progress_once(hc_loop *loop) {
    hc_count(loop->watch.turns, 1);
    int moved = take_requests(loop);
    moved |= receive(loop);
    moved |= hc__p2p_progress(loop);
    moved |= hc__set_queues_test(loop);
    moved |= hc__plans_test(loop);
    moved |= hc__votes_progress(loop);
    moved |= send_queued(loop);
    moved |= take_time(loop);
    moved |= take_failure(loop);
    return moved | remove_sets(loop);
}
