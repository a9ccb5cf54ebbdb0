/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - plans: persistent operations, agreed once and started many times.
 *
 * A plan is like a process set with one batch. The program, and not a log, orders its starts. It has its own data
 * plane, so it neither blocks other operations nor waits for them (rules B3 and P1 to P4 of docs/control-plane.md).
 *
 * Few bytes inside a node need no driver: the thread that starts the plan writes its part into the plan's segment, and
 * the waiting thread takes the result from there. If its partners are late, or its part cannot be written yet, the
 * plan's handle goes to the loop like any other handle. Then the driver's sleep, signs of life, reports of long waits,
 * and the ends of the set and the World apply to it. A small message inside the node is posted by the thread that
 * starts its plan, and polled by the waiting thread. Both take the driver's place, but need neither the inbox nor the
 * background thread. All other plans go to the driver at their start.
 */
#include "loop/clock.h"
#include "loop/p2p.h"
#include "loop/plan.h"
#include "loop/batch.h"
#include "loop/state.h"
#include "loop/waiting.h"

#include <stdlib.h>
#include <string.h>

/* ---- create and free ------------------------------------------------------------------------------- */

static int compose(hc_plan *plan, int32_t set_size) {
    hc_handle *handle = plan->handle;
    hc_item item = {.ticket = handle->request.ticket, .agreed = &handle->request, .count = handle->request.ntensors};
    hc_action run = {.kind = HC_AC_RUN, .set = handle->set, .items = &item, .nitems = 1};
    hc__set_queue queue = {.size = set_size};
    plan->run = hc__run_compose(plan->loop, &queue, &run);
    if (!plan->run)
        return HC_NO_MEMORY;
    size_t bytes = (size_t)plan->run->batch.npieces * sizeof *plan->pieces;
    plan->pieces = malloc(bytes);
    if (!plan->pieces)
        return HC_NO_MEMORY;
    memcpy(plan->pieces, plan->run->batch.pieces, bytes);
    return HC_OK;
}

/* 1: an eager message inside the node, which leaves at once even if its receive is not posted. */
static int is_small_message(const hc_loop *loop, const hc_handle *handle) {
    const hc_p2p_op *op = handle->op;
    int32_t own = loop->ranks.node_of[loop->config.engine.rank];
    if (!op || handle->staging || op->bytes > HC_P2P_EAGER_MAX)
        return 0;
    return op->peer >= 0 ? loop->ranks.node_of[op->peer] == own : !loop->parts.net;
}

hc_plan *hc_plan_new(hc_loop *loop, hc_handle *handle, int32_t set_size) {
    hc_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->loop = loop;
    plan->handle = handle;
    plan->peer = handle->op ? handle->op->peer : -1;
    plan->by_caller = (uint8_t)is_small_message(loop, handle);
    handle->plan = plan;
    if (!handle->op && compose(plan, set_size) != HC_OK) {
        hc_plan_free(plan);
        return NULL;
    }
    return plan;
}

hc_batch *hc_plan_batch(hc_plan *plan) {
    return plan->run ? &plan->run->batch : NULL;
}

void hc_plan_use(hc_plan *plan, hc_data *data, int by_caller) {
    plan->data = data;
    plan->by_caller = (uint8_t)by_caller;
}

void hc_plan_free(hc_plan *plan) {
    if (!plan)
        return;
    if (plan->data)
        plan->data->ops->free(plan->data);
    hc__run_free(plan->run);
    free(plan->pieces);
    plan->handle->plan = NULL;
    free(plan);
}

/* ---- the caller ------------------------------------------------------------------------------------ */

/* Resets the handle. The loop may still hold a reference for a moment, but reads nothing of the handle any more. */
static void rearm(hc_plan *plan) {
    hc_handle *handle = plan->handle;
    handle->status = HC_OK;
    hc_free(handle->text);
    free(handle->sums);
    handle->text = NULL;
    handle->sums = NULL;
    handle->position = 0;
    handle->warnings = handle->named_silent = handle->traced_wait = handle->modified = 0;
    if (handle->op)
        handle->op->peer = plan->peer;
    atomic_store_explicit(&handle->waited_since, 0, memory_order_relaxed);
    atomic_store_explicit(&handle->done, 0, memory_order_relaxed);
}

static void hand_over(hc_plan *plan, int waits) {
    plan->state = HC__WITH_LOOP;
    rearm(plan);
    if (plan->handle->op && hc__drive_message(plan->loop, plan->handle, waits))
        return;
    hc_loop_submit(plan->loop, plan->handle, waits);
}

/* 1: over. */
static int look(hc_plan *plan) {
    if (plan->data->ops->test(plan->data) != HC_DONE)
        return 0;
    plan->state = HC__OVER;
    return 1;
}

int hc_plan_start(hc_plan *plan, int waits) {
    hc_loop *loop = plan->loop;
    if (atomic_load_explicit(&loop->forked, memory_order_relaxed))
        return HC_FORKED;
    if (atomic_load_explicit(&loop->failure.broken, memory_order_relaxed) != HC_OK)
        return HC_BROKEN;
    atomic_fetch_add_explicit(&loop->calls.plan_starts, 1, memory_order_relaxed);
    if (!plan->by_caller || plan->handle->op) {
        hand_over(plan, waits);
        return HC_OK;
    }
    if (plan->handle->status != HC_OK)
        rearm(plan); /* clears the last start's failure */
    plan->state = HC__WITH_CALLER;
    plan->data->ops->start(plan->data, &plan->run->batch);
    int progress = plan->data->ops->test(plan->data);
    if (progress == HC_DONE)
        plan->state = HC__OVER;
    else if (progress == HC_IDLE) /* else the others would wait for a part that only a later test writes */
        hand_over(plan, waits);
    return HC_OK;
}

/* In the child of a fork() the partners, and the memory that they share, are the parent's: ends a start FORKED. */
static void end_if_forked(hc_plan *plan) {
    if (!atomic_load_explicit(&plan->loop->forked, memory_order_relaxed))
        return;
    if (plan->state == HC__WITH_CALLER)
        hand_over(plan, 1);
    else if (plan->state == HC__WITH_LOOP && !hc_handle_done(plan->handle))
        hc__handle_finish(plan->loop, plan->handle, HC_FORKED, hc_status_text(HC_FORKED));
}

int hc_plan_test(hc_plan *plan) {
    end_if_forked(plan);
    if (plan->state == HC__WITH_CALLER && !look(plan))
        return 0;
    if (plan->state == HC__WITH_LOOP && hc_handle_done(plan->handle))
        plan->state = HC__OVER;
    return plan->state == HC__OVER;
}

int hc_plan_poll(hc_plan *plan) {
    end_if_forked(plan);
    if (plan->state == HC__WITH_LOOP && plan->handle->op && hc__drive_briefly(plan->loop, plan->handle))
        plan->state = HC__OVER;
    for (int i = 0; i < HC__LOOKS && plan->state == HC__WITH_CALLER; i++)
        look(plan);
    return plan->state == HC__OVER;
}

/* 1: over. */
static int await_partners(hc_plan *plan, uint64_t ns) {
    uint64_t most = hc__looks_for(plan->loop, HC__PLAN_NS), limit = hc__loop_now() + (ns < most ? ns : most);
    do {
        if (look(plan))
            return 1;
        hc__wait_a_moment(plan->loop);
    } while (hc__loop_now() < limit);
    return look(plan);
}

int hc_plan_wait(hc_plan *plan, uint64_t ns) {
    end_if_forked(plan);
    if (plan->state == HC__WITH_CALLER && !await_partners(plan, ns))
        hand_over(plan, 1);
    if (plan->state == HC__WITH_LOOP && hc_loop_wait(plan->loop, &plan->handle, 1, ns))
        plan->state = HC__OVER;
    return plan->state == HC__OVER;
}
