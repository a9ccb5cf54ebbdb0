/* SPDX-License-Identifier: Apache-2.0
 *
 * run_plans.c - starts, tests and ends the plans that the driver runs.
 */
#include "loop/clock.h"
#include "loop/failure.h"
#include "loop/handle.h"
#include "loop/plan.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void end(hc_loop *loop, hc_handle *handle, int status, const char *text) {
    hc__handle_unlink(handle);
    if (!--loop->sets.nrunning)
        hc_count(&loop->counters.in_flight_ns, hc__loop_now() - loop->sets.running_since);
    hc__handle_finish(loop, handle, status, text);
}

/* Returns the status of the first tensor without a result, and its text; frees the other texts. It must run before the
 * handle is done, as a waiter may then start or free the plan. */
static int take_why(hc_batch *batch, char **why) {
    int status = HC_OK;
    for (int32_t i = 0; i < batch->npieces; i++) {
        hc_piece *piece = &batch->pieces[i];
        if (status == HC_OK && piece->status != HC_OK) {
            status = piece->status;
            *why = piece->why;
        } else {
            hc_free(piece->why);
        }
        piece->why = NULL;
    }
    return status;
}

static void finish(hc_loop *loop, hc_handle *handle, int status) {
    char *why = NULL;
    int lacking = take_why(&handle->plan->run->batch, &why);
    end(loop, handle, status != HC_OK ? status : lacking, why);
    free(why);
}

static int begin(hc_plan *plan) {
    hc_batch *batch = &plan->run->batch;
    memcpy(batch->pieces, plan->pieces, (size_t)batch->npieces * sizeof *batch->pieces);
    return plan->data->ops->start(plan->data, batch);
}

static void fail(hc_loop *loop, const hc_plan *plan, int status) {
    const char *text = plan->data->text;
    if (!text && loop->parts.net)
        text = loop->parts.net->text;
    hc__loop_fail(loop, status, -1, text ? text : hc_status_text(status));
}

void hc__plan_take(hc_loop *loop, hc_handle *handle) {
    const hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    hc__trace_handle(loop, HC_TRACE_ENQUEUE, handle, 0);
    hc__handle_link(&loop->handles.plans, handle);
    if (!loop->sets.nrunning++)
        loop->sets.running_since = hc__loop_now();
    int status = atomic_load(&loop->failure.broken);
    if (status != HC_OK) {
        end(loop, handle, HC_BROKEN, loop->failure.broken_text);
        return;
    }
    if (!queue || queue->stopped) {
        end(loop, handle, HC_SHUT_DOWN, queue ? queue->shutdown_reason : NULL);
        return;
    }
    status = handle->plan->by_caller ? HC_OK : begin(handle->plan);
    if (status < 0)
        fail(loop, handle->plan, status);
}

int hc__plans_test(hc_loop *loop) {
    int moved = 0;
    for (hc_handle *handle = loop->handles.plans, *next; handle && !loop->failure.is_next; handle = next) {
        next = handle->next;
        hc_data *data = handle->plan->data;
        int progress = data->ops->test(data);
        moved |= progress != HC_IDLE;
        if (progress == HC_DONE || progress == HC_RESULT_SIZE)
            finish(loop, handle, progress == HC_DONE ? HC_OK : progress);
        else if (progress < 0)
            fail(loop, handle->plan, progress);
    }
    return moved;
}

/* Ends the unfinished starts of a set whose log has ended: their partners may never come. */
void hc__plans_stop(hc_loop *loop, uint32_t set) {
    const hc__set_queue *queue = hc__set_queue_find(loop, set);
    hc__plans_test(loop);
    for (hc_handle *handle = loop->handles.plans, *next; handle; handle = next) {
        next = handle->next;
        if (handle->set != set)
            continue;
        handle->plan->data->ops->abandon(handle->plan->data);
        end(loop, handle, HC_SHUT_DOWN, queue->shutdown_reason);
    }
}

void hc__plans_abandon(hc_loop *loop) {
    for (hc_handle *handle = loop->handles.plans; handle; handle = handle->next)
        handle->plan->data->ops->abandon(handle->plan->data);
}

void hc__plans_break(hc_loop *loop, int status, const char *text) {
    while (loop->handles.plans)
        end(loop, loop->handles.plans, status, text);
}

/* ---- long waits ------------------------------------------------------------------------------------ */

#define NAMED 4 /* ranks named in a text */

static size_t put_awaited(hc_loop *loop, const hc_plan *plan, char *text, size_t room) {
    size_t len = 0;
    int32_t n = 0;
    char who[HC_WHO];
    for (int32_t q = 0; q < loop->config.local_size && plan->by_caller; q++)
        if (hc_flat_awaits(plan->data, q) && ++n <= NAMED)
            len += (size_t)snprintf(text + len, room - len, "%s%s", len ? ", " : "",
                                    hc_who(&loop->ranks.processes, loop->ranks.locals[q], who));
    if (n > NAMED)
        len += (size_t)snprintf(text + len, room - len, " and %d more", n - NAMED);
    return len;
}

static void describe(hc_loop *loop, const hc_handle *handle, char *text, size_t room) {
    char ranks[NAMED * (HC_WHO + 2) + 32];
    size_t len = put_awaited(loop, handle->plan, ranks, sizeof ranks);
    snprintf(text, room, "a start of %s '%.*s'%s%s%s", hc_operation_name(handle->request.operation),
             (int)handle->request.name_len, handle->request.name, len ? " awaits " : "", len ? ranks : "",
             len ? ", where this start was not made, and" : "");
}

void hc__plans_watch(hc_loop *loop, uint64_t now) {
    for (hc_handle *handle = loop->handles.plans; handle && !loop->failure.is_next; handle = handle->next) {
        uint64_t since = atomic_load_explicit(&handle->waited_since, memory_order_relaxed);
        if (since && since <= now)
            hc__watch_wait(loop, handle, now - since, describe);
    }
}
