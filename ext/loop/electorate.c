/* SPDX-License-Identifier: Apache-2.0
 *
 * electorate.c - the nodes of a process set that vote on its small calls: who they are, and whether they vote at all.
 */
#include "loop/state.h"
#include "loop/votes.h"

#include <stdlib.h>
#include <string.h>

/* 0: the votes' sums would differ from those of requests. All ranks know it. */
static int may_vote(const hc_loop *loop, const hc__electorate *of) {
    return loop->config.wire == HC_WIRE_SAME && of->nodes > 1 && of->nodes <= HC_VOTE_NODES &&
           of->largest <= HC_SHORTCUT_MOST;
}

static int32_t count_nodes(const hc_votes_members *m) {
    int32_t nodes = 0;
    for (int32_t i = 0; i < m->size; i++)
        nodes = m->nodes[i] >= nodes ? m->nodes[i] + 1 : nodes;
    return nodes;
}

/* `leaders`, `ranks`: World rank of the leader, and number of ranks, of each node. */
static void measure(hc__electorate *of, const hc_votes_members *m, int32_t *leaders, int32_t *ranks) {
    int32_t me = m->nodes[m->own];
    for (int32_t i = 0; i < m->size; i++) {
        int32_t node = m->nodes[i], local = ranks[node]++;
        if (local == 0)
            leaders[node] = m->ranks[i];
        of->largest = local >= of->largest ? local + 1 : of->largest;
        if (node == me && local < HC_SHORTCUT_MOST)
            of->locals[of->nlocals++] = i;
    }
    of->size = m->size;
    of->leader = leaders[me];
    of->is_leader = of->leader == m->ranks[m->own];
}

/* The stages of the nodes. 0: there are none. */
static int split(hc__electorate *of, const hc_votes_members *m) {
    hc__splits splits;
    hc__splits_of(of->nodes, m->group, &splits);
    const hc__stages *few = hc__few_bytes(&splits);
    of->in_stages = of->nodes > HC__FEW_MEMBERS;
    of->adds_wide = m->exact_sums;
    if (few)
        of->split = *few;
    return few || !of->in_stages;
}

/* Finds the leaders of this node's partners. Only this node's own leader has partners. */
static int find_partners(hc_votes *votes, const hc_votes_members *m, const int32_t *leaders) {
    hc__electorate *of = &votes->of;
    if (!of->is_leader)
        return HC_OK;
    int status = hc_vote_new(&votes->vote, of->in_stages ? &of->split : NULL, of->nodes, m->nodes[m->own]);
    if (status < 0)
        return status;
    of->leaders = malloc((size_t)votes->vote.npartners * sizeof *of->leaders);
    for (int32_t i = 0; of->leaders && i < votes->vote.npartners; i++)
        of->leaders[i] = leaders[votes->vote.partners[i].node];
    return of->leaders ? HC_OK : HC_NO_MEMORY;
}

/* 0: these nodes do not vote, or there is no memory. */
static int find_nodes(const hc_loop *loop, hc_votes *votes, const hc_votes_members *m) {
    hc__electorate *of = &votes->of;
    of->nodes = count_nodes(m);
    of->adds_in_order = loop->config.deterministic || !hc_vote_adds_as(m->algorithm);
    int32_t *of_nodes = calloc(2 * (size_t)of->nodes, sizeof *of_nodes);
    of->locals = malloc((size_t)m->size * sizeof *of->locals);
    int found = of_nodes && of->locals;
    if (found)
        measure(of, m, of_nodes, of_nodes + of->nodes);
    found = found && may_vote(loop, of) && split(of, m) && find_partners(votes, m, of_nodes) == HC_OK;
    free(of_nodes);
    return found;
}

hc_votes *hc_loop_votes_new(hc_loop *loop, uint32_t set, hc_shortcut *count, const hc_votes_members *m) {
    hc_votes *votes = aligned_alloc(_Alignof(hc_votes), sizeof *votes);
    if (!votes)
        return NULL;
    memset(votes, 0, sizeof *votes);
    votes->count = count;
    votes->handle = hc_handle_new(HC_HANDLE_VOTE, set, 0, 0, NULL, 0, 0);
    if (!votes->handle || !count || !find_nodes(loop, votes, m)) {
        hc_loop_votes_free(votes);
        return NULL;
    }
    votes->handle->context = votes;
    return votes;
}

void hc_loop_votes_free(hc_votes *votes) {
    if (!votes)
        return;
    hc_handle_release(votes->handle);
    hc_vote_free(&votes->vote);
    free(votes->of.locals);
    free(votes->of.leaders);
    free(votes);
}
