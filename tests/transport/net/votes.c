/* SPDX-License-Identifier: Apache-2.0
 *
 * votes.c - nodes vote on calls in random interleavings, in one stage or in several: all have one outcome per call,
 * every call ends, and the result has the value of each node on that call once.
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

#define MOST 40
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
static node all[MOST];
static edge edges[MOST][MOST];
static uint64_t outcomes[2][2]; /* of few and of many nodes: calls that were taken, and others */

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
    int32_t partner = hc_vote_partner_at(&n->vote, from);
    CHECK(partner >= 0);
    hc_ballot *ballot = m.kind == HC_VOTE_ASK ? NULL : hc_vote_note(&n->vote, partner, m.number, m.kind);
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
    return number * MOST * MOST + (UINT64_C(1) << me); /* a sum of these shows a missing or doubled node */
}

/* Sends to the partners of the stages from `first` to `last`. */
static void send_in(int32_t me, int32_t first, int32_t last, message m) {
    const hc_vote *v = &all[me].vote;
    for (int32_t i = 0; i < v->npartners; i++)
        if (v->partners[i].sends_in >= first && v->partners[i].sends_in <= last)
            post(me, v->partners[i].node, m);
}

static void send_stage(int32_t me) {
    const hc_ballot *ballot = &all[me].vote.ballot;
    message m = {HC_VOTE_YES, ballot->number, ballot->agreed[0], 0};
    memcpy(&m.value, ballot->value, sizeof m.value);
    send_in(me, all[me].vote.at, all[me].vote.at, m);
}

static void vote(int32_t me, enum hc_vote_kind kind, uint64_t agreed) {
    node *n = &all[me];
    uint64_t value = value_of(me, n->number);
    hc_ballot *own = hc_vote_cast(&n->vote, n->number, kind);
    if (kind == HC_VOTE_NO) {
        send_in(me, 0, n->vote.stages, (message){.kind = HC_VOTE_NO, .number = n->number});
        return;
    }
    own->agreed[0] = agreed;
    own->bytes = sizeof value;
    memcpy(own->value, &value, sizeof value);
    send_stage(me);
}

static void go_to_engine(node *n) {
    n->phase = IN_ENGINE;
    n->engines[n->call] = 1;
}

/* In a smooth call all nodes come with the same call, and few of them ask: otherwise many nodes would take none. */
static int is_smooth(int call) {
    return (int)((seed_of_run * 0x9E3779B97F4A7C15u >> 20 >> call) & 1);
}

/* The first call has no number, so it is agreed. */
static void come(int32_t me) {
    node *n = &all[me];
    uint64_t way = draw(16), agreed = draw(32) ? 7 : 8;
    if (is_smooth(n->call)) {
        way = 15;
        agreed = 7;
    }
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
    const hc_vote *v = &all[me].vote;
    for (int32_t i = 0; i < v->npartners; i++) {
        const edge *e = &edges[me][v->partners[i].node];
        if (hc_vote_lacks(v, i) && e->to - e->from < 8)
            post(me, v->partners[i].node, (message){.kind = HC_VOTE_ASK, .number = all[me].number});
    }
}

static void end_call(node *n, uint64_t number) {
    n->number = number;
    n->call++;
    n->phase = COMPUTES;
}

static void add_up(hc_vote *v) {
    const hc_ballot *operands[HC_VOTE_OPERANDS];
    uint64_t sum = 0, value;
    for (int32_t i = 0, count = hc_vote_operands(v, operands); i < count; i++) {
        CHECK(operands[i] && operands[i]->number == v->ballot.number);
        memcpy(&value, operands[i]->value, sizeof value);
        sum += value;
    }
    memcpy(v->ballot.value, &sum, sizeof sum);
}

static void check_result(const node *n) {
    uint64_t sum = 0, value;
    for (int32_t i = 0; i < nodes; i++)
        sum += value_of(i, n->number);
    memcpy(&value, n->vote.ballot.value, sizeof value);
    CHECK(value == sum);
}

/* 1: the call of a node that waits has ended. */
static int look(int32_t me) {
    node *n = &all[me];
    enum hc_shortcut_state state = hc_vote_look(&n->vote);
    if (state == HC_SHORTCUT_OPEN)
        return 0;
    if (state == HC_SHORTCUT_OFF) {
        send_in(me, n->vote.at + 1, n->vote.stages, (message){.kind = HC_VOTE_NO, .number = n->number});
        go_to_engine(n);
        return 1;
    }
    add_up(&n->vote);
    if (hc_vote_advance(&n->vote)) {
        send_stage(me);
        return 1;
    }
    check_result(n);
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
    int32_t me = (int32_t)draw((uint64_t)nodes), other = me;
    node *n = &all[me];
    if (n->vote.npartners > 0)
        other = n->vote.partners[draw((uint64_t)n->vote.npartners)].node;
    if (draw(3) && edges[other][me].from < edges[other][me].to) {
        deliver(other, me);
        return 1;
    }
    if (n->phase == WAITS && look(me))
        return 1;
    if (n->phase == WAITS && draw(is_smooth(n->call) ? 64 * (uint64_t)nodes : 8) == 0)
        ask(me);
    if (n->phase == COMPUTES && n->call < CALLS && draw(4) == 0)
        come(me);
    return agree();
}

/* The chosen stages, or any others of small groups. */
static void make_votes(void) {
    hc__splits splits;
    hc__splits_of(nodes, 0, &splits);
    const hc__stages *split = hc__few_bytes(&splits), *other = &splits.stages[draw((uint64_t)splits.count)];
    int is_small = 1;
    for (int32_t stage = 0; stage < other->depth; stage++)
        is_small &= other->radix[stage] <= HC__FEW_MEMBERS;
    CHECK((split != NULL) == (nodes > HC__FEW_MEMBERS));
    split = is_small && draw(2) ? other : split;
    for (int32_t i = 0; i < MOST; i++)
        hc_vote_free(&all[i].vote);
    memset(all, 0, sizeof all);
    memset(edges, 0, sizeof edges);
    for (int32_t i = 0; i < nodes; i++)
        CHECK(hc_vote_new(&all[i].vote, split, nodes, i) == HC_OK);
}

static void run(unsigned long long seed) {
    seed_of_run = seed;
    state = (seed + 1) * 0x9E3779B97F4A7C15u;
    nodes = 1 + (int32_t)draw(draw(2) ? HC__FEW_MEMBERS : MOST);
    make_votes();
    for (int i = 0; !is_over(); i++) {
        CHECK(i < 4000000); /* else a node waits for ever */
        step();
    }
    for (int call = 0; call < CALLS; call++) {
        outcomes[nodes > HC__FEW_MEMBERS][!all[0].taken[call]]++;
        for (int32_t i = 0; i < nodes; i++)
            CHECK(all[i].taken[call] == all[0].taken[call] && all[i].engines[call] == !all[i].taken[call]);
    }
}

int main(int argc, char **argv) {
    unsigned long long seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    for (unsigned long long seed = 0; seed < seeds; seed++)
        run(seed);
    for (int many = 0; many < 2; many++)
        CHECK(outcomes[many][0] > seeds && outcomes[many][1] > seeds);
    printf("fine\n");
    return 0;
}
