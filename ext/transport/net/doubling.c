/* SPDX-License-Identifier: Apache-2.0
 *
 * doubling.c - allreduce with partners at distances 1, 2, 4...: recursive doubling, and Rabenseifner's algorithm.
 *
 * Recursive doubling exchanges everything log2(n) times: the least latency. Rabenseifner's algorithm halves the data in
 * each round of a reduce-scatter and doubles it in each round of an allgather: 2 log2(n) messages and the least bytes
 * (Rabenseifner, ICCS 2004). Both need a power of two, so the surplus members first add their data to a neighbour's,
 * and get the result last (the scheme of MPICH). The first half alone is the reduce-scatter, with blocks cut at the
 * members' parts.
 *
 * In an allreduce the largest parts go to the nearest member, so nodes that are numbered along the leaf switches share
 * few links above them. For that the blocks are in the order of the positions' reversed bits, and sums are added in the
 * order of recursive doubling. In a reduce-scatter each member keeps its own part, so the farthest partner comes first.
 */
#include "transport/net/algorithms.h"

/* A member's place after the fold. */
typedef struct place {
    int32_t core;     /* the power of two */
    int32_t levels;   /* its logarithm */
    int32_t extra;    /* pairs (0, 1), (2, 3) ... (2 extra - 2, 2 extra - 1) were folded */
    int32_t position; /* in the core; -1: folded away */
    int32_t buddy;    /* the other of the pair, or -1 */
    int32_t block;    /* Rabenseifner's: the block that it sums */
} place;

static place find_place(const hc__team *t) {
    place p = {.core = 1, .levels = 0, .buddy = -1};
    while (p.core <= t->n / 2) {
        p.core *= 2;
        p.levels++;
    }
    p.extra = t->n - p.core;
    p.position = t->me - p.extra;
    if (t->me < 2 * p.extra) {
        p.buddy = t->me ^ 1;
        p.position = t->me % 2 ? t->me / 2 : -1;
    }
    return p;
}

static int32_t member_at(const place *p, int32_t position) {
    return position < p->extra ? 2 * position + 1 : position + p->extra;
}

/* Round 0 of both algorithms. */
static int fold(hc__channel *a, const place *p) {
    if (p->buddy < 0)
        return HC_MOVED;
    int status = p->position < 0 ? hc__send_part(a, p->buddy, 0, a->count)
                                 : hc__receive_scratch(a, p->buddy, 0, a->count);
    return status < 0 ? status : HC_MOVED;
}

/* The last round of both algorithms: the folded member gets all, or (reduce-scatter) its part. */
static int unfold(hc__channel *a, const place *p) {
    if (p->buddy < 0)
        return HC_MOVED;
    int32_t served = p->position < 0 ? a->team->me : p->buddy;
    int64_t at = a->scatters ? hc__part_of(a, served) : 0;
    int64_t n = a->scatters ? hc__part_of(a, served + 1) - at : a->count;
    int status = p->position < 0 ? hc__receive_part(a, p->buddy, at, n) : hc__send_part(a, p->buddy, at, n);
    return status < 0 ? status : HC_MOVED;
}

int hc__round_recursive_doubling(hc__channel *a, int32_t round) {
    place p = find_place(a->team);
    if (round == 0)
        return fold(a, &p);
    if (round == p.levels + 2)
        return HC_DONE;
    if (p.position >= 0) { /* add the data of the last round */
        if (round == 1 && p.buddy >= 0)
            hc__combine(a, 0, a->count, 1, 0); /* the buddy has the lower number */
        if (round > 1)
            hc__combine(a, 0, a->count, (p.position >> (round - 2)) & 1, round == p.levels + 1);
    }
    if (round == p.levels + 1)
        return unfold(a, &p);
    if (p.position < 0)
        return HC_MOVED;

    int32_t partner = member_at(&p, p.position ^ (1 << (round - 1)));
    int status = hc__receive_scratch(a, partner, 0, a->count);
    if (status >= 0)
        status = hc__send_part(a, partner, 0, a->count);
    return status < 0 ? status : HC_MOVED;
}

/* The block of a position; the position of a block is the same. */
static int32_t block_of(const hc__channel *a, const place *p, int32_t position) {
    int32_t reversed = 0;
    if (a->scatters)
        return position;
    for (int32_t level = 0; level < p->levels; level++)
        reversed |= ((position >> level) & 1) << (p->levels - 1 - level);
    return reversed;
}

static int32_t member_of_block(const hc__channel *a, const place *p, int32_t block) {
    return member_at(p, block_of(a, p, block));
}

/* The first element of a block; in a reduce-scatter the block has the parts of its member and of its buddy. */
static int64_t begin(const hc__channel *a, const place *p, int32_t block) {
    if (!a->scatters)
        return hc__even_part(a->count, p->core, block);
    return hc__part_of(a, block < p->extra ? 2 * block : block + p->extra);
}

/* Elements of the aligned run of `size` blocks that holds `block`. */
static void run(const hc__channel *a, const place *p, int32_t block, int32_t size, int64_t *at, int64_t *n) {
    int32_t first = block & ~(size - 1);
    *at = begin(a, p, first);
    *n = begin(a, p, first + size) - *at;
}

/* Sends the partner's half of my run of 2 * half blocks, and receives my half. */
static int halve(hc__channel *a, const place *p, int32_t half) {
    int64_t at, n;
    int32_t other = p->block ^ half, partner = member_of_block(a, p, other);
    run(a, p, p->block, half, &at, &n);
    int status = hc__receive_scratch(a, partner, 0, n);
    run(a, p, other, half, &at, &n);
    if (status >= 0)
        status = hc__send_part(a, partner, at, n);
    return status < 0 ? status : HC_MOVED;
}

static int redouble(hc__channel *a, const place *p, int32_t half) {
    int64_t at, n;
    int32_t other = p->block ^ half, partner = member_of_block(a, p, other);
    run(a, p, other, half, &at, &n);
    int status = hc__receive_part(a, partner, at, n);
    run(a, p, p->block, half, &at, &n);
    if (status >= 0)
        status = hc__send_part(a, partner, at, n);
    return status < 0 ? status : HC_MOVED;
}

int hc__round_rabenseifner(hc__channel *a, int32_t round) {
    place p = find_place(a->team);
    int32_t out = round - 1, back = out - p.levels; /* the step in each of the two halves */
    int32_t last = a->scatters ? 0 : p.levels;
    p.block = p.position < 0 ? -1 : block_of(a, &p, p.position);
    if (round == 0)
        return fold(a, &p);
    if (back == last + 1)
        return HC_DONE;
    if (p.position >= 0) { /* what the last round received */
        if (round == 1 && p.buddy >= 0)
            hc__combine(a, 0, a->count, 1, 0);
        if (out > 0 && back <= 0) {
            int32_t half = p.core >> out;
            int64_t at, n;
            run(a, &p, p.block, half, &at, &n);
            hc__combine(a, at, n, (p.block & half) != 0, back == 0);
        }
    }
    if (back == last)
        return unfold(a, &p);
    if (p.position < 0)
        return HC_MOVED;
    return back < 0 ? halve(a, &p, p.core >> (out + 1)) : redouble(a, &p, 1 << back);
}
