/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcuts.c - unnamed blocking calls of few bytes, without a request, if all ranks of a node call at about the same
 * time (loop/shortcut.c).
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/list.h"
#include "api/shortcuts.h"

/* 1: the result has no memory yet, and the caller takes it from the handle of a request. */
static int must_allocate(const hc__read *read) {
    const hc_arguments *a = &read->arguments;
    return hc_arguments_has(a, HC_OP_RESULT_ALLOCATED) && hc_arguments_gets(a, &read->place) && !a->operands[1].data;
}

/* Tries the call in a set on several nodes. The state, or a status (error set). */
static int vote(const hc__read *read, hpccoll_world *world, hc_shortcut_call *call) {
    hc_votes *votes = hc__order(world)->votes;
    int state = hc_loop_vote(world->base->job->loop, world->number, votes, call, UINT64_MAX);
    if (state < 0)
        return hc__error(state, "%s: %s", hc_operation_name(read->arguments.operation), hc_loop_vote_text(votes));
    return state;
}

static int meet(const hpccoll_world *world, const hc_order *order, const hc_shortcut_call *call) {
    hc_loop *loop = world->base->job->loop;
    int state = hc_loop_shortcut(loop, world->number, order->shortcut, call);
    return state == HC_SHORTCUT_OPEN ? hc_loop_shortcut_wait(loop, order->shortcut, call) : state;
}

static int may_count(const hc__base *base, hc_order *order) {
    return !base->python && hc_order_may_shorten(order, 1);
}

int hc__shortcut(const hc__read *read, hpccoll_world *world, int64_t *counts, int *tried) {
    const hc__base *base = world->base;
    hc_shortcut_call call;
    hc_order *order = hc__order(world);
    *tried = 0;
    if (!may_count(base, order) || hc_in_flight_any(&base->job->in_flight) || (world->size > 1 && !order->shortcut))
        return 0;
    if (must_allocate(read) || !hc_arguments_shortcut(&read->arguments, &read->place, order, &call))
        return 0;
    int state = order->votes ? vote(read, world, &call) : meet(world, order, &call);
    *tried = state != HC_SHORTCUT_LARGE;
    if (state != HC_SHORTCUT_TAKEN)
        return state < 0 ? state : 0;
    if (counts && hc_arguments_gets(&read->arguments, &read->place))
        hc_loop_shortcut_rows(order->shortcut, &call, counts);
    hc_loop_shortcut_end(base->job->loop, order->shortcut, &call);
    return 1;
}

void hc__count(hpccoll_world *world, hc_handle *h) {
    hc_order *order = hc__order(world);
    const hc_counting by = {order->shortcut, order->votes, world->rank, world->size};
    if (may_count(world->base, order))
        hc_loop_count(world->base->job->loop, &by, h, UINT64_MAX);
}
