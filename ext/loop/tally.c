/* SPDX-License-Identifier: Apache-2.0
 *
 * tally.c - adds up what the nodes of a process set give with their votes.
 *
 * All nodes add up the same sums in the same order, which is that of an allreduce with direct messages. So results have
 * the bits that they would have had as requests in the deterministic mode.
 */
#include "loop/votes.h"

#include <string.h>

static int adds_up(const hc__motion *motion) {
    return (hc_operation_traits[motion->agreed.operation] & HC_OP_REDUCES) != 0;
}

/* As for a batch: nodes exchange sums of a mean that hold a power of two less, which rounds nothing and keeps them in
 * the range of the type; the total is divided by the rest. */
static double node_divisor(const hc_votes *votes) {
    const hc_shortcut_agreed *agreed = &votes->motion.agreed;
    double divisor = 1.0;
    while (agreed->reduction == HC_AVERAGE && agreed->dtype >= HC_FLOAT16 && divisor < votes->of.largest)
        divisor *= 2.0;
    return divisor;
}

void hc__tally_give(hc_votes *votes, const void *const *parts, int32_t n) {
    const hc__motion *motion = &votes->motion;
    const hc_shortcut_agreed *agreed = &motion->agreed;
    votes->own.bytes = n > 0 ? (uint32_t)motion->bytes : 0;
    if (votes->own.bytes == 0)
        return;
    if (adds_up(motion))
        hc_host_reduce(votes->own.value, agreed->dtype, parts, n, agreed->dtype, agreed->reduction, motion->count,
                       agreed->prescale * agreed->postscale, node_divisor(votes));
    else
        memcpy(votes->own.value, parts[0], motion->bytes);
}

void hc__tally(hc_votes *votes) {
    const hc__motion *motion = &votes->motion;
    const hc_shortcut_agreed *agreed = &motion->agreed;
    const void *values[HC_VOTE_NODES];
    double divisor = agreed->reduction == HC_AVERAGE ? votes->of.size / node_divisor(votes) : 1.0;
    for (int32_t node = 0; node < votes->of.nodes; node++)
        values[node] = hc_vote_of(&votes->vote, node, votes->own.number)->value;
    if (adds_up(motion))
        hc_host_reduce(votes->result, agreed->dtype, values, votes->of.nodes, agreed->dtype, agreed->reduction,
                       motion->count, 1.0, divisor);
    else if (motion->bytes > 0)
        memcpy(votes->result, values[votes->of.node_of[agreed->root]], motion->bytes);
}
