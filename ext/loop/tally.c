/* SPDX-License-Identifier: Apache-2.0
 *
 * tally.c - adds up what the nodes of a process set give with their votes, or gathers it.
 *
 * All nodes add up the same sums in the same order, which is that of an allreduce by request: few nodes in the order of
 * the deterministic mode, more of them in the same stages.
 */
#include "loop/votes.h"

#include <string.h>

static int adds_up(const hc_shortcut_call *call) {
    return (hc_operation_traits[call->agreed.operation] & HC_OP_REDUCES) != 0;
}

/* As for a batch: nodes exchange sums of a mean that hold a power of two less, which rounds nothing and keeps them in
 * the range of the type; the total is divided by the rest. */
static double node_divisor(const hc_votes *votes) {
    const hc_shortcut_agreed *agreed = &votes->call.agreed;
    double divisor = 1.0;
    while (agreed->reduction == HC_AVERAGE && agreed->dtype >= HC_FLOAT16 && divisor < votes->of.largest)
        divisor *= 2.0;
    return divisor;
}

void hc__tally_give(hc_votes *votes, const void *const *parts, int32_t n) {
    const hc_shortcut_call *call = &votes->call;
    const hc_shortcut_agreed *agreed = &call->agreed;
    votes->own.bytes = n > 0 ? (uint32_t)call->bytes : 0;
    if (votes->own.bytes == 0)
        return;
    if (adds_up(call))
        hc_host_reduce(votes->own.value, agreed->dtype, parts, n, agreed->dtype, agreed->reduction, call->count,
                       agreed->prescale * agreed->postscale, node_divisor(votes));
    else
        memcpy(votes->own.value, parts[0], call->bytes);
}

/* The reduction of the present stage. A mean of integers is divided at the end. */
static hc__reduction reduction_now(const hc_votes *votes) {
    static const hc__stages at_once = {.depth = 1};
    const hc_shortcut_agreed *agreed = &votes->call.agreed;
    int is_mean = agreed->reduction == HC_AVERAGE;
    hc__reduction whole = {agreed->reduction, is_mean ? votes->of.size / node_divisor(votes) : 1.0};
    return hc__stage_reduction(votes->of.in_stages ? &votes->of.split : &at_once, votes->vote.at, HC__NEAREST_FIRST,
                               agreed->dtype >= HC_FLOAT16, whole);
}

static void add_up(hc_votes *votes, const hc_ballot *const *operands, int32_t n) {
    const hc_shortcut_call *call = &votes->call;
    const void *values[HC_VOTE_OPERANDS];
    hc__reduction now = reduction_now(votes);
    int dtype = call->agreed.dtype;
    for (int32_t i = 0; i < n; i++)
        values[i] = operands[i]->value;
    hc_host_reduce(votes->vote.ballot.value, dtype, values, n, dtype, now.reduction, call->count, 1.0, now.divisor);
}

/* Takes over the value that one of them has: the root's of a broadcast, or a result. */
static void take_over(hc_ballot *own, const hc_ballot *const *operands, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (operands[i] != own && operands[i]->bytes > 0) {
            memcpy(own->value, operands[i]->value, operands[i]->bytes);
            own->bytes = operands[i]->bytes;
        }
}

void hc__tally(hc_votes *votes) {
    const hc_ballot *operands[HC_VOTE_OPERANDS];
    int32_t n = hc_vote_operands(&votes->vote, operands);
    if (hc__gathers(votes->call.agreed.operation))
        hc__given_merge(&votes->vote.ballot, operands, n);
    else if (n > 1 && adds_up(&votes->call) && votes->call.bytes > 0)
        add_up(votes, operands, n);
    else
        take_over(&votes->vote.ballot, operands, n);
}
