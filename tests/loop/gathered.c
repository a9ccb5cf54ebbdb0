/* SPDX-License-Identifier: Apache-2.0
 *
 * gathered.c - what ranks give to calls that gather: votes of random nodes, merged in a random order, have the part,
 * the rows and the counts of each rank; a damaged vote is not sound, or is read without leaving its memory.
 *
 * usage: gathered SEED CASES
 */
#include "loop/votes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "case %d: %s:%d: not so: %s\n", present, __FILE__, __LINE__, #condition); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

typedef struct gift {
    uint8_t part[HC_SHORTCUT_SMALL];
    hc_shortcut_call call;
} gift;

static int present;
static uint64_t state;
static gift gifts[HC_SHORTCUT_RANKS];
static hc_ballot ballots[HC_SHORTCUT_RANKS];

static int32_t below(int32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int32_t)(state % (uint64_t)n);
}

/* Rows of one byte, with counts that are shares, others, or none. */
static void draw(gift *g, int32_t rank, int32_t size) {
    int form = below(3);
    do {
        int32_t rows = below(2) ? below(HC_VOTE_GATHERED / size) : below(40);
        g->call = (hc_shortcut_call){.own = {rows, rank}, .rank = rank, .size = size, .bytes = (size_t)rows};
        g->call.traits = form < 2 ? HC_OP_COUNTS : 0;
        for (int32_t to = 0; to < size; to++)
            g->call.counts[to] = form == 1 ? rows * to : (int32_t)hc_share(rows, size, to);
    } while (!hc__given_fits(&g->call));
    for (size_t i = 0; i < g->call.bytes; i++)
        g->part[i] = (uint8_t)below(256);
}

static void give(const gift *g, hc_ballot *ballot) {
    hc__given given = {.rank = (uint16_t)g->call.rank, .bytes = (uint32_t)g->call.bytes};
    memcpy(&given.own, &g->call.own, sizeof given.own);
    hc__given_add(ballot, &g->call, &given, g->part, g->call.traits ? g->call.counts : NULL);
}

static void check(const hc_votes *votes, int32_t size) {
    for (int32_t rank = 0; rank < size; rank++) {
        const hc__given *given = votes->given[rank];
        const hc_shortcut_call *call = &gifts[rank].call;
        const int32_t *counts = hc__given_counts(given);
        CHECK(given->rank == rank && given->bytes == call->bytes);
        CHECK(memcmp(&given->own, &call->own, sizeof given->own) == 0);
        CHECK(memcmp(hc__given_part(given), gifts[rank].part, call->bytes) == 0);
        for (int32_t to = 0; call->traits && to < size; to++)
            CHECK((counts ? counts[to] : hc_share(call->own.rows, size, to)) == call->counts[to]);
    }
}

/* In a block of exactly so many bytes, so that the sanitizer sees an access behind it. */
static void damage(const hc_ballot *whole, int32_t size) {
    size_t bytes = (size_t)below((int32_t)whole->bytes + 1);
    unsigned char *block = malloc(bytes + !bytes);
    memcpy(block, whole->value, bytes);
    for (int i = below(4); bytes && i > 0; i--)
        block[below((int32_t)bytes)] ^= (unsigned char)(1 << below(8));
    hc__given_is_sound(block, bytes, size);
    free(block);
}

static void run(hc_votes *votes) {
    const hc_ballot *operands[HC_SHORTCUT_RANKS];
    int32_t size = 1 + below(HC_SHORTCUT_RANKS), nodes = 1 + below(size), own = below(nodes);
    memset(ballots, 0, sizeof ballots);
    for (int32_t rank = 0; rank < size; rank++) {
        draw(&gifts[rank], rank, size);
        give(&gifts[rank], &ballots[rank % nodes]);
    }
    for (int32_t node = 0; node < nodes; node++) {
        CHECK(hc__given_is_sound(ballots[node].value, ballots[node].bytes, size));
        damage(&ballots[node], size);
        operands[node] = &ballots[(node + own) % nodes];
    }
    votes->call.size = size;
    hc__given_merge(&ballots[own], operands, nodes);
    CHECK(hc__given_take(votes, ballots[own].value));
    check(votes, size);
    if (nodes > 1) { /* a node without a position gets the result */
        const hc_ballot *result = &ballots[own];
        hc__given_merge(&ballots[(own + 1) % nodes], &result, 1);
        CHECK(hc__given_take(votes, ballots[(own + 1) % nodes].value));
        check(votes, size);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    hc_votes *votes = aligned_alloc(_Alignof(hc_votes), sizeof *votes);
    if (!votes)
        return 2;
    memset(votes, 0, sizeof *votes);
    state = strtoull(argv[1], NULL, 10) * UINT64_C(0x9E3779B97F4A7C15);
    for (present = 0; present < atoi(argv[2]); present++)
        run(votes);
    free(votes);
    printf("%d cases\n", present);
    return 0;
}
