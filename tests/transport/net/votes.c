/* SPDX-License-Identifier: Apache-2.0
 *
 * votes.c - nodes vote on calls in random interleavings: all have one outcome per call, every call ends, and each node
 * reads the values of that call.
 *
 * A node comes to a call with a signature, puts it off, or goes to the engine without a word. The engine agrees on a
 * call when all nodes have gone there. A node that waits may ask at any time and any number of times.
 *
 * usage: votes SEEDS
 */
#include "transport/net/vote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 12
#define MOST_IN_FLIGHT 256

#define CHECK(condition)                                                                                    \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            fprintf(stderr, "seed %llu: %s:%d: not so: %s\n", seed_of_run, __FILE__, __LINE__, #condition); \
            exit(1);                                                                                        \
        }                                                                                                   \
    } while (0)

enum phase { COMPUTES, WAITS, IN_ENGINE };

typedef struct message {
    enum hc_vote_kind kind;
    uint64_t number, agreed, value;
} message;

typedef struct edge {
    message queue[MOST_IN_FLIGHT];
    int from, to;
} edge;

typedef struct node {
    hc_vote vote;
    enum phase phase;
    int call;
    uint64_t number;   /* of its next call */
    uint64_t words[2]; /* its count of ranks, of which it has one: number << 8 | 1 (it has come), 255 (off) */
    int engines[CALLS], taken[CALLS];
} node;

static unsigned long long seed_of_run;
static uint64_t state;
static int32_t nodes;
static node all[HC_VOTE_NODES];
static edge edges[HC_VOTE_NODES][HC_VOTE_NODES];
static uint64_t outcomes[2]; /* calls that were taken, and others */

static uint64_t draw(uint64_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

/* ---- the count of a node (tests/loop and tests/memory_model have the real one) ----------------------------- */

static enum hc_shortcut_state count_at(const node *n, uint64_t number) {
    uint64_t word = n->words[number % 2];
    if (word >> 8 < number)
        return HC_SHORTCUT_OPEN;
    return word == (number << 8 | 1) ? HC_SHORTCUT_TAKEN : HC_SHORTCUT_OFF;
}

static enum hc_shortcut_state set_count(node *n, uint64_t number, uint64_t value) {
    if (count_at(n, number) == HC_SHORTCUT_OPEN)
        n->words[number % 2] = number << 8 | value;
    return count_at(n, number);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

static void post(int32_t from, int32_t to, message m) {
    edge *e = &edges[from][to];
    CHECK(e->to - e->from < MOST_IN_FLIGHT);
    e->queue[e->to++ % MOST_IN_FLIGHT] = m;
}

static void deliver(int32_t from, int32_t to) {
    edge *e = &edges[from][to];
    message m = e->queue[e->from++ % MOST_IN_FLIGHT];
    node *n = &all[to];
    enum hc_shortcut_state count = m.kind == HC_VOTE_ASK ? set_count(n, m.number, 255) : count_at(n, m.number);
    hc_ballot *ballot = m.kind == HC_VOTE_ASK ? NULL : hc_vote_note(&n->vote, from, m.number, m.kind);
    if (ballot && m.kind == HC_VOTE_YES) {
        ballot->agreed[0] = m.agreed;
        ballot->bytes = sizeof m.value;
        memcpy(ballot->value, &m.value, sizeof m.value);
    }
    if (hc_vote_answer(m.kind, count) == HC_VOTE_NO)
        post(to, from, (message){.kind = HC_VOTE_NO, .number = m.number});
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

static uint64_t value_of(int32_t me, uint64_t number) {
    return number * HC_VOTE_NODES + (uint64_t)me;
}

static void vote(int32_t me, enum hc_vote_kind kind, uint64_t agreed) {
    node *n = &all[me];
    message m = {kind, n->number, agreed, value_of(me, n->number)};
    hc_ballot *own = hc_vote_note(&n->vote, me, n->number, kind);
    if (own && kind == HC_VOTE_YES)
        own->agreed[0] = agreed;
    for (int32_t to = 0; to < nodes; to++)
        if (to != me)
            post(me, to, m);
}

static void go_to_engine(node *n) {
    n->phase = IN_ENGINE;
    n->engines[n->call] = 1;
}

/* The first call has no number, so it is agreed. */
static void come(int32_t me) {
    node *n = &all[me];
    uint64_t way = draw(16), agreed = draw(32) ? 7 : 8;
    enum hc_shortcut_state count = HC_SHORTCUT_OFF;
    if (n->number && way > 1)
        count = set_count(n, n->number, way == 2 ? 255 : 1);
    if (count == HC_SHORTCUT_TAKEN && way == 3) { /* its ranks have different calls */
        vote(me, HC_VOTE_NO, 0);
        count = HC_SHORTCUT_OFF;
    }
    if (count == HC_SHORTCUT_TAKEN) {
        vote(me, HC_VOTE_YES, agreed);
        n->phase = WAITS;
    } else {
        if (n->number && draw(2)) /* may say so to all, even twice */
            vote(me, HC_VOTE_NO, 0);
        go_to_engine(n);
    }
}

static void ask(int32_t me) {
    for (int32_t to = 0; to < nodes; to++)
        if (!hc_vote_of(&all[me].vote, to, all[me].number) && edges[me][to].to - edges[me][to].from < 8)
            post(me, to, (message){.kind = HC_VOTE_ASK, .number = all[me].number});
}

static void end_call(node *n, uint64_t number) {
    n->number = number;
    n->call++;
    n->phase = COMPUTES;
}

/* 1: the call of a node that waits has ended. */
static int look(int32_t me) {
    node *n = &all[me];
    enum hc_shortcut_state outcome = hc_vote_outcome(&n->vote, n->number);
    if (outcome == HC_SHORTCUT_OPEN)
        return 0;
    if (outcome == HC_SHORTCUT_OFF) {
        go_to_engine(n);
        return 1;
    }
    for (int32_t from = 0; from < nodes; from++) {
        uint64_t value;
        memcpy(&value, hc_vote_of(&n->vote, from, n->number)->value, sizeof value);
        CHECK(from == me || value == value_of(from, n->number));
    }
    n->taken[n->call] = 1;
    end_call(n, n->number + 1);
    return 1;
}

/* 1: the engine has agreed on a call, which numbers the next one. */
static int agree(void) {
    for (int32_t i = 0; i < nodes; i++)
        if (all[i].phase != IN_ENGINE || all[i].call != all[0].call)
            return 0;
    uint64_t number = (all[0].number / 1000 + 1) * 1000;
    for (int32_t i = 0; i < nodes; i++)
        end_call(&all[i], number);
    return 1;
}

/* ---- a run ------------------------------------------------------------------------------------------------- */

static int is_over(void) {
    for (int32_t i = 0; i < nodes; i++)
        if (all[i].call < CALLS)
            return 0;
    return 1;
}

/* A node in its last call answers on, as its driver does. */
static int step(void) {
    int32_t me = (int32_t)draw((uint64_t)nodes), other = (int32_t)draw((uint64_t)nodes);
    node *n = &all[me];
    if (draw(3) && edges[other][me].from < edges[other][me].to) {
        deliver(other, me);
        return 1;
    }
    if (n->phase == WAITS && look(me))
        return 1;
    if (n->phase == WAITS && draw(8) == 0)
        ask(me);
    if (n->phase == COMPUTES && n->call < CALLS && draw(4) == 0)
        come(me);
    return agree();
}

static void run(unsigned long long seed) {
    seed_of_run = seed;
    state = (seed + 1) * 0x9E3779B97F4A7C15u;
    nodes = 1 + (int32_t)draw(HC_VOTE_NODES);
    memset(all, 0, sizeof all);
    memset(edges, 0, sizeof edges);
    for (int32_t i = 0; i < nodes; i++)
        hc_vote_init(&all[i].vote, nodes, i);
    for (int i = 0; !is_over(); i++) {
        CHECK(i < 1000000); /* else a node waits for ever */
        step();
    }
    for (int call = 0; call < CALLS; call++) {
        outcomes[!all[0].taken[call]]++;
        for (int32_t i = 0; i < nodes; i++)
            CHECK(all[i].taken[call] == all[0].taken[call] && all[i].engines[call] == !all[i].taken[call]);
    }
}

int main(int argc, char **argv) {
    unsigned long long seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    for (unsigned long long seed = 0; seed < seeds; seed++)
        run(seed);
    CHECK(outcomes[0] > seeds && outcomes[1] > seeds);
    printf("fine\n");
    return 0;
}
