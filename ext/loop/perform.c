/* SPDX-License-Identifier: Apache-2.0
 *
 * perform.c - runs a step of the engine and performs its actions.
 */
#include "loop/clock.h"
#include "loop/failure.h"
#include "loop/handle.h"
#include "loop/plan.h"
#include "loop/progress.h"
#include "loop/batch.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/tuning.h"
#include "loop/votes.h"
#include "loop/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t reporting = PTHREAD_MUTEX_INITIALIZER;

static void perform_stalled(hc_loop *loop, const hc_action *action) {
    pthread_mutex_lock(&reporting);
    snprintf(loop->watch.report, sizeof loop->watch.report, "%s", action->text);
    pthread_mutex_unlock(&reporting);
    if (action->reporter && (!loop->watch.silent.text[0] || hc__node_reports(loop)))
        fprintf(stderr, "hpccoll: rank %d: %s\n", loop->config.engine.rank, action->text);
}

void hc_loop_last_report(hc_loop *loop, char *text, size_t room) {
    pthread_mutex_lock(&reporting);
    snprintf(text, room, "%s", loop->watch.report);
    pthread_mutex_unlock(&reporting);
}

static void perform_send(hc_loop *loop, const hc_action *action) {
    int32_t peer = action->peer;
    loop->ranks.unsent[peer] = 1;
    hc__trace_message(loop, HC_TRACE_SEND, peer, action->nbytes);
    int status = loop->parts.control->ops->send(loop->parts.control, peer, action->bytes, action->nbytes);
    if (status < 0)
        hc__loop_fail_to_move(loop, status, peer, "a control message could not be sent");
}

static void perform_run(hc_loop *loop, const hc_action *action) {
    hc__set_queue *queue = hc__set_queue_find(loop, action->set);
    hc__run *b = queue ? hc__run_build(loop, queue, action) : NULL;
    if (b)
        hc__set_queue_push(queue, b);
    else
        hc__loop_fail_of_memory(loop, action, NULL, "for its batch");
}

static void perform_complete(hc_loop *loop, const hc_action *action) {
    hc_handle *handle = (hc_handle *)(uintptr_t)action->ticket;
    handle->position = action->position;
    handle->value = action->value;
    hc__handle_unlink(handle);
    hc__handle_finish(loop, handle, action->status, action->text);
}

/* Ends a set's log here, and with it all unmatched messages. Callers that wait for the end finish after the earlier
 * batches have run. */
static void stop(hc_loop *loop, hc__set_queue *queue, int status, const char *text) {
    hc__set_queue_stopped(queue, text);
    hc__p2p_stop(loop, queue->number);
    hc__plans_stop(loop, queue->number);
    if (!queue->head)
        hc__set_queue_finish_stops(loop, queue, status, text);
}

static void perform_stopped(hc_loop *loop, const hc_action *action) {
    hc__set_queue *queue = hc__set_queue_find(loop, action->set);
    if (queue)
        stop(loop, queue, HC_OK, action->text);
}

static void perform(hc_loop *loop, const hc_action *action) {
    switch (action->kind) {
    case HC_AC_SEND:
        perform_send(loop, action);
        break;
    case HC_AC_RUN:
        perform_run(loop, action);
        break;
    case HC_AC_COMPLETE:
        perform_complete(loop, action);
        break;
    case HC_AC_STOPPED:
        perform_stopped(loop, action);
        break;
    case HC_AC_WAKE_AT:
        loop->wake_at = action->time;
        break;
    case HC_AC_STALLED:
        perform_stalled(loop, action);
        break;
    case HC_AC_TUNED:
        hc__tuning_perform(loop, action);
        break;
    default:
        break;
    }
}

static void break_world(hc_loop *loop, const hc_action *action) {
    hc__set_queues_abandon(loop);
    hc__plans_abandon(loop);
    hc_p2p_abandon(loop->parts.p2p);
    snprintf(loop->failure.broken_text, sizeof loop->failure.broken_text, "%s: %s", hc_status_text(HC_BROKEN),
             action->text);
    hc__trace_break(loop, action->status, action->text);
    loop->failure.lost = action->status == HC_PEER_LOST && action->peer >= 0 ? (uint32_t)action->peer + 1 : 0;
    atomic_store(&loop->failure.broken, action->status);
}

/* Performs the actions that must precede the end of a handle: a waiter may then free its arrays at once, or ask for a
 * preemption. */
static void perform_before_all(hc_loop *loop, const hc_action *action) {
    if (action->kind == HC_AC_FAILED)
        break_world(loop, action);
    else if (action->kind == HC_AC_PREEMPTED)
        atomic_store(&loop->sets.preempted[action->set], action->position);
}

static void break_sets(hc_loop *loop, const hc_action *action) {
    hc__p2p_break(loop, action->status, action->text);
    hc__plans_break(loop, action->status, action->text);
    hc__votes_break(loop, action->status, action->text);
    while (loop->handles.requests) { /* the engine had no memory to complete them */
        hc_handle *handle = loop->handles.requests;
        hc__handle_unlink(handle);
        hc__handle_finish(loop, handle, action->status, action->text);
    }
    for (uint32_t i = 0; i < loop->sets.nqueues; i++)
        if (loop->sets.queues[i].used)
            stop(loop, &loop->sets.queues[i], action->status, action->text);
}

int hc__loop_step(hc_loop *loop, hc_event *event) {
    const hc_action *actions;
    size_t n;
    event->now = hc__loop_now();
    int status = hc_step(loop->engine, event, &actions, &n);
    if (status < 0)
        return status;
    for (size_t i = 0; i < n; i++)
        perform_before_all(loop, &actions[i]);
    for (size_t i = 0; i < n; i++)
        perform(loop, &actions[i]);
    for (size_t i = 0; i < n; i++)
        if (actions[i].kind == HC_AC_FAILED) {
            break_sets(loop, &actions[i]);
            if (loop->config.engine.size > 1 && actions[i].peer != loop->config.engine.rank)
                hc__trace_write_broken(loop);
        }
    return HC_OK;
}
