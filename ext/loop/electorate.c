/* SPDX-License-Identifier: Apache-2.0
 *
 * electorate.c - the nodes of a process set that vote on its small calls: who they are, and whether they vote at all.
 */
#include "loop/state.h"
#include "loop/votes.h"

#include <stdlib.h>
#include <string.h>

/* 0: a rank cannot answer at any time, or the votes' sums would differ from those of requests. All ranks know it. */
static int may_vote(const hc_loop *loop, const hc__electorate *of) {
    return loop->config.heartbeat && !loop->config.one_thread && loop->config.wire == HC_WIRE_SAME && of->nodes > 1 &&
           of->nodes <= HC_VOTE_NODES && of->largest <= HC_SHORTCUT_RANKS;
}

static void measure(hc__electorate *of, const hc_votes_members *m) {
    int32_t ranks[HC_VOTE_NODES] = {0};
    for (int32_t i = 0; i < m->size; i++)
        of->nodes = m->nodes[i] >= of->nodes ? m->nodes[i] + 1 : of->nodes;
    for (int32_t i = 0; i < m->size && of->nodes <= HC_VOTE_NODES; i++) {
        int32_t node = m->nodes[i], local = ranks[node]++;
        if (local == 0)
            of->leaders[node] = m->ranks[i];
        of->largest = local >= of->largest ? local + 1 : of->largest;
        of->node_of[i] = node;
        of->local_of[i] = local;
    }
    of->me = m->nodes[m->own];
    of->size = m->size;
    of->is_leader = of->nodes <= HC_VOTE_NODES && of->leaders[of->me] == m->ranks[m->own];
}

hc_votes *hc_loop_votes_new(hc_loop *loop, uint32_t set, hc_shortcut *count, const hc_votes_members *m) {
    hc_votes *votes = aligned_alloc(_Alignof(hc_votes), sizeof *votes);
    if (!votes)
        return NULL;
    memset(votes, 0, sizeof *votes);
    votes->count = count;
    votes->of.node_of = malloc(2 * (size_t)m->size * sizeof *votes->of.node_of);
    votes->handle = hc_handle_new(HC_HANDLE_VOTE, set, 0, 0, NULL, 0, 0);
    if (votes->of.node_of && votes->handle && count) {
        votes->of.local_of = votes->of.node_of + m->size;
        votes->handle->context = votes;
        measure(&votes->of, m);
    }
    if (!may_vote(loop, &votes->of)) {
        hc_loop_votes_free(votes);
        return NULL;
    }
    hc_vote_init(&votes->vote, votes->of.nodes, votes->of.me);
    return votes;
}

void hc_loop_votes_free(hc_votes *votes) {
    if (!votes)
        return;
    hc_handle_release(votes->handle);
    free(votes->of.node_of);
    free(votes);
}
