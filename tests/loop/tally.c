/* SPDX-License-Identifier: Apache-2.0
 *
 * tally.c - the votes of nodes add up to the bits of an allreduce by request, in one stage and in several.
 *
 * usage: tally SEED CASES
 */
#include "loop/state.h"
#include "loop/votes.h"
#include "transport/net/algorithms.h"
#include "transport/net_threads.h"

#define NODES 40
#define LARGEST 4

typedef struct test_case {
    int32_t nodes, size;
    int32_t ranks[NODES * LARGEST], node_of[NODES * LARGEST], first[NODES];
    hc_shortcut_agreed agreed;
    int64_t count;
    size_t bytes;
} test_case;

static test_case now;
static hc_votes *votes[NODES];
static char given[NODES][HC_VOTE_BYTES], summed[NODES][HC_VOTE_BYTES];

/* ---- votes --------------------------------------------------------------------------------------------------- */

static void make_votes(void) {
    static hc_loop loop;
    static uint64_t count; /* of ranks: not used here */
    loop.config.heartbeat = 1;
    loop.config.wire = HC_WIRE_SAME;
    for (int32_t i = 0; i < now.nodes; i++) {
        const hc_votes_members m = {.ranks = now.ranks, .nodes = now.node_of, .size = now.size, .own = now.first[i]};
        votes[i] = hc_loop_votes_new(&loop, 0, (hc_shortcut *)&count, &m);
        CHECK(votes[i], "%d nodes have no votes", (int)now.nodes);
        votes[i]->call = (hc_shortcut_call){.agreed = now.agreed, .count = now.count, .bytes = now.bytes};
        hc_ballot *ballot = hc_vote_cast(&votes[i]->vote, 1, HC_VOTE_YES);
        ballot->bytes = (uint32_t)now.bytes;
        memset(ballot->agreed, 0, sizeof ballot->agreed);
        memcpy(ballot->value, given[i], now.bytes);
    }
}

/* Sends what a node gives in its present stage. */
static void give(int32_t node) {
    const hc_vote *vote = &votes[node]->vote;
    for (int32_t i = 0; i < vote->npartners; i++) {
        hc_vote *theirs = &votes[vote->partners[i].node]->vote;
        if (vote->partners[i].sends_in != vote->at)
            continue;
        hc_ballot *ballot = hc_vote_note(theirs, hc_vote_partner_at(theirs, node), 1, HC_VOTE_YES);
        CHECK(ballot, "node %d votes twice in stage %d", (int)node, (int)vote->at);
        *ballot = vote->ballot;
    }
}

static void vote(void) {
    int32_t left = now.nodes;
    uint8_t over[NODES] = {0};
    for (int32_t i = 0; i < now.nodes; i++)
        give(i);
    for (int round = 0; left > 0; round++) {
        CHECK(round < 1000, "%d nodes wait", (int)left);
        for (int32_t i = 0; i < now.nodes; i++) {
            if (over[i] || hc_vote_look(&votes[i]->vote) != HC_SHORTCUT_TAKEN)
                continue;
            hc__tally(votes[i]);
            over[i] = !hc_vote_advance(&votes[i]->vote);
            left -= over[i];
            if (!over[i])
                give(i);
        }
    }
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

static void sum(double node_divisor) {
    static const hc__net_model model = {2e-5, 1e-9, 1e-10};
    static hc__channel channels[NODES];
    static hc__team teams[NODES];
    hc_net *nets[NODES];
    int32_t peers[NODES], left = now.nodes;
    hc__splits splits;
    hc__splits_of(now.nodes, 0, &splits);
    CHECK(hc_local_net_new(now.nodes, nets) == HC_OK, "net");
    const hc__reduction reduction = {now.agreed.reduction,
                                     now.agreed.reduction == HC_AVERAGE ? now.size / node_divisor : 1.0};
    for (int32_t i = 0; i < now.nodes; i++) {
        peers[i] = i;
        teams[i] = (hc__team){nets[i], &hc_host_arithmetic, peers, now.nodes, i, &splits};
        hc__channel_init(&channels[i], &teams[i], &model, 0);
        memcpy(summed[i], given[i], now.bytes);
        CHECK(hc__allreduce_start(&channels[i], summed[i], now.count, now.agreed.dtype, reduction,
                                  (hc__means){HC__AUTO, 0}) == HC_OK,
              "start");
    }
    uint8_t over[NODES] = {0};
    while (left > 0)
        for (int32_t i = 0; i < now.nodes; i++)
            if (!over[i] && hc__channel_test(&channels[i]) == HC_DONE) {
                over[i] = 1;
                left--;
            }
    for (int32_t i = 0; i < now.nodes; i++) {
        hc__channel_free(&channels[i]);
        nets[i]->ops->free(nets[i]);
    }
}

/* ---- cases --------------------------------------------------------------------------------------------------- */

static int may_be_voted(void) {
    int is_product = now.agreed.reduction == HC_PRODUCT;
    return hc_reduction_defined(now.agreed.reduction, now.agreed.dtype) &&
           !(now.nodes > HC__FEW_MEMBERS && is_product && hc_dtype_size(now.agreed.dtype) == 2);
}

/* Returns the ranks of the largest node. */
static int32_t choose(uint64_t *random) {
    int32_t largest = 0;
    now.nodes = 2 + (int32_t)below(random, below(random, 3) ? NODES - 1 : HC__FEW_MEMBERS - 1);
    now.size = 0;
    for (int32_t node = 0; node < now.nodes; node++) {
        int32_t ranks = 1 + (int32_t)below(random, LARGEST);
        now.first[node] = now.size;
        largest = ranks > largest ? ranks : largest;
        for (int32_t i = 0; i < ranks; i++, now.size++) {
            now.ranks[now.size] = now.size;
            now.node_of[now.size] = node;
        }
    }
    do
        now.agreed = (hc_shortcut_agreed){.operation = HC_ALLREDUCE,
                                          .reduction = (uint8_t)below(random, HC_REDUCTION_COUNT),
                                          .dtype = (uint8_t)below(random, HC_DTYPE_COUNT),
                                          .prescale = 1.0,
                                          .postscale = 1.0};
    while (!may_be_voted());
    int64_t size = (int64_t)hc_dtype_size(now.agreed.dtype);
    now.count = 1 + below(random, HC_VOTE_BYTES / size);
    now.bytes = (size_t)(now.count * size);
    for (int32_t node = 0; node < now.nodes; node++)
        fill_random(given[node], now.agreed.dtype, now.count, next_random(random));
    return largest;
}

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: tally SEED CASES");
    uint64_t random = strtoull(argv[1], NULL, 10);
    int cases = atoi(argv[2]);
    for (int i = 0; i < cases; i++) {
        int32_t largest = choose(&random);
        double node_divisor = 1.0;
        while (now.agreed.dtype >= HC_FLOAT16 && node_divisor < largest)
            node_divisor *= 2.0;
        make_votes();
        vote();
        sum(node_divisor);
        for (int32_t node = 0; node < now.nodes; node++) {
            CHECK(!memcmp(votes[node]->vote.ballot.value, summed[node], now.bytes),
                  "node %d of %d: %s of %s has other bits than a request's", (int)node, (int)now.nodes,
                  hc_reduction_name(now.agreed.reduction), hc_dtype_name(now.agreed.dtype));
            hc_loop_votes_free(votes[node]);
        }
    }
    printf("%d cases\n", cases);
    return 0;
}
