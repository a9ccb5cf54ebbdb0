/* SPDX-License-Identifier: Apache-2.0
 *
 * stages.c - allreduce, reduce-scatter, broadcast, reduce in stages of few members; "direct" is the one stage of all.
 *
 *     parts   In each stage the members of a group scatter what they work on: each adds up one part of it, in the order
 *             of the members. The results come back the other way, unless the operation is a reduce-scatter.
 *     whole   In each stage all members of a group send everything to each other (short messages).
 *
 * With two members in each stage these are Rabenseifner's algorithm (ICCS 2004) and recursive doubling; with more,
 * recursive multiplying. An allreduce begins with the nearest members, so the largest parts stay near, and nodes that
 * are numbered along the leaf switches share few links above them. In a reduce-scatter each member keeps its own part,
 * so it begins with the farthest.
 *
 * "direct" sends contributions and results but no partial sums. So float16 travels as float16, the sum is still formed
 * in float32 with one rounding, and every element is added in the order of the members, whatever the length: the bits
 * do not depend on fusion ("deterministic"). Several stages send partial sums. Each stage adds in float32, and rounds
 * its result where float16 travels; a mean is divided by a power of two in each stage, so partial sums stay in range.
 *
 * A broadcast (van de Geijn's: Barnett et al., "Interprocessor collective communication library (InterCom)", SHPCC
 * 1994) scatters parts down the same groups: in each stage the members that hold their group's block, the root first,
 * give the others theirs. The parts come together as the results of an allreduce do. A member receives each element
 * once, the root none. A reduce is the mirror image: it adds up as an allreduce does, and then the parts go to the root
 * as they would come from it.
 */
#include "transport/net/algorithms.h"

#include <stdlib.h>

#define OPERANDS_ON_STACK 64

static hc__stage_place place_of(const hc__channel *channel) {
    return hc__stage_place_of(channel->stages, channel->team->me);
}

/* An allreduce begins with the nearest members, a reduce-scatter with the farthest. */
static hc__steps steps_of(const hc__channel *channel) {
    return channel->form.scatters ? HC__NEAREST_LAST : HC__NEAREST_FIRST;
}

static int32_t stage_of(const hc__channel *channel, int32_t step) {
    return hc__stage_of_step(channel->stages, step, steps_of(channel));
}

/* ---- blocks --------------------------------------------------------------------------------------------------- */

typedef struct block {
    int64_t at, n;
} block;

/* Part i of n of the elements of a block. */
static block part(block whole, int32_t n, int32_t i) {
    int64_t begin = hc__even_part(whole.n, n, i);
    return (block){whole.at + begin, hc__even_part(whole.n, n, i + 1) - begin};
}

/* The parts of the members from this position on begin here. */
static int64_t begin_of(const hc__channel *channel, int32_t position) {
    const hc__stages *s = channel->stages;
    return position == hc__stage_distance(s, s->depth) ? channel->count
                                                       : hc__part_of(channel, hc__stage_member(s, position));
}

/* The elements that a position works on after this number of steps. */
static block block_after(const hc__channel *channel, int32_t position, int32_t steps) {
    const hc__stages *s = channel->stages;
    block found = {0, channel->count};
    if (channel->form.scatters) {
        int32_t positions = hc__stage_distance(s, s->depth - steps), first = position - position % positions;
        found.at = begin_of(channel, first);
        found.n = begin_of(channel, first + positions) - found.at;
        return found;
    }
    for (int32_t step = 0; step < steps; step++)
        found = part(found, s->radix[step], hc__stage_digit(s, step, position));
    return found;
}

int64_t hc__stages_scratch(const hc__channel *channel) {
    const hc__stages *s = channel->stages;
    hc__stage_place p = place_of(channel);
    int64_t most = 0;
    for (int32_t step = 0; p.position >= 0 && step < s->depth; step++) {
        int64_t n = channel->form.whole ? channel->count : block_after(channel, p.position, step + 1).n;
        int64_t senders = s->radix[stage_of(channel, step)] - (p.extra < 0);
        most = n * senders > most ? n * senders : most;
    }
    int64_t given = channel->form.scatters && p.extra >= 0 ? part((block){0, channel->count}, s->radix[0], 0).n : 0;
    return given > most ? given : most;
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

static int add(hc__channel *channel, int64_t at, int64_t n, int32_t operands, int32_t own, hc__reduction reduction) {
    int64_t size = (int64_t)hc_dtype_size(channel->kind);
    const void *on_stack[OPERANDS_ON_STACK];
    const void **from = operands <= OPERANDS_ON_STACK ? on_stack : hc_malloc((size_t)operands * sizeof *from);
    if (!from)
        return HC_NO_MEMORY;
    char *mine = channel->work + at * size;
    for (int32_t q = 0, slot = 0; q < operands; q++)
        from[q] = q == own ? mine : channel->scratch + n * size * slot++;
    if (n > 0)
        hc__add_up(channel, mine, from, operands, n, reduction);
    if (from != on_stack)
        hc_free(from);
    return HC_MOVED;
}

int hc__sum_in_order(hc__channel *channel) {
    return add(channel, 0, channel->count, channel->team->n, channel->team->me, channel->reduction);
}

/* Adds what the members of a group have sent in this step: in an allreduce's first step, also the member without a
 * position. */
static int add_step(hc__channel *channel, const hc__stage_place *p, int32_t step) {
    int32_t stage = stage_of(channel, step), digit = hc__stage_digit(channel->stages, stage, p->position);
    int32_t operands = channel->stages->radix[stage] + (!channel->form.scatters && step == 0 && p->extra >= 0);
    block mine = channel->form.whole ? (block){0, channel->count} : block_after(channel, p->position, step + 1);
    return add(
        channel, mine.at, mine.n, operands, digit,
        hc__stage_reduction(channel->stages, step, steps_of(channel), channel->form.divides, channel->reduction));
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* 1: this position has its group's block before the step's scatter of a broadcast, or after the step's gather of a
 * reduce. The root's position has all; if the root has no position, the members of its group have the first parts. */
static int holds(const hc__channel *channel, int32_t position, int32_t step) {
    if (channel->root < 0)
        return 0;
    const hc__stages *s = channel->stages;
    hc__stage_place root = hc__stage_place_of(s, channel->root);
    int32_t distance = hc__stage_distance(s, step);
    if (root.position < 0)
        return step > 0 && position / distance == root.first / distance;
    return position / distance == root.position / distance;
}

/* Sends to the others of my group in this step, and receives from them: into scratch (outward), or where their results
 * belong. */
static int exchange(hc__channel *channel, const hc__stage_place *p, int32_t step, int outward) {
    const hc__stages *s = channel->stages;
    int32_t stage = stage_of(channel, step), radix = s->radix[stage], digit = hc__stage_digit(s, stage, p->position);
    block all = {0, channel->count}, mine = channel->form.whole ? all : block_after(channel, p->position, step + 1);
    int takes_extra = step == 0 && p->extra >= 0 && !channel->form.scatters, status = HC_OK;
    int receives = outward || !holds(channel, p->position, step);
    for (int32_t q = 0, slot = 0; q < radix && status >= 0 && receives; q++) {
        int32_t position = hc__stage_neighbour(s, stage, p->position, q);
        block theirs = outward || q == digit ? mine : block_after(channel, position, step + 1);
        if (q != digit && outward)
            status = hc__receive_scratch(channel, hc__stage_member(s, position), mine.n * slot++, mine.n);
        else if (q != digit)
            status = hc__receive_part(channel, hc__stage_member(s, position), theirs.at, theirs.n);
    }
    if (takes_extra && outward && status >= 0)
        status = hc__receive_scratch(channel, p->extra, mine.n * (radix - 1), mine.n);
    for (int32_t i = 1; i < radix && status >= 0; i++) { /* each member begins with another one */
        int32_t position = hc__stage_neighbour(s, stage, p->position, (digit + i) % radix);
        block given = !outward ? mine : channel->form.whole ? all : block_after(channel, position, step + 1);
        if (outward || !holds(channel, position, step))
            status = hc__send_part(channel, hc__stage_member(s, position), given.at, given.n);
    }
    if (takes_extra && !outward && p->extra != channel->root && status >= 0)
        status = hc__send_part(channel, p->extra, mine.at, mine.n);
    return status < 0 ? status : HC_MOVED;
}

/* The elements that an extra member exchanges with position `first + i` of its group: it gives its data, in parts that
 * the group adds up, and gets the result. */
static block given_to(const hc__channel *channel, const hc__stage_place *p, int32_t i) {
    block all = {0, channel->count};
    if (channel->form.whole)
        return all;
    return channel->form.scatters ? part(all, channel->stages->radix[0], i) : block_after(channel, p->first + i, 1);
}

static block own_part(const hc__channel *channel, int32_t member) {
    int64_t at = hc__part_of(channel, member);
    return (block){at, hc__part_of(channel, member + 1) - at};
}

/* The position before an extra member returns the result to that member. */
static int32_t returner(const hc__channel *channel, const hc__stage_place *p) {
    return p->first + channel->stages->radix[0] - 1;
}

static int extra_round(hc__channel *channel, const hc__stage_place *p, int32_t round) {
    const hc__stages *s = channel->stages;
    int from_one = channel->form.whole || channel->form.scatters, status = HC_OK;
    if (round == 2)
        return HC_DONE;
    for (int32_t i = 0; i < s->radix[0] && status >= 0 && (round == 0 || !from_one); i++) {
        block b = given_to(channel, p, i);
        int32_t member = hc__stage_member(s, p->first + i);
        status = round == 0 ? hc__send_part(channel, member, b.at, b.n) : hc__receive_part(channel, member, b.at, b.n);
    }
    if (round == 1 && from_one) {
        block b = channel->form.scatters ? own_part(channel, channel->team->me) : (block){0, channel->count};
        status = hc__receive_part(channel, hc__stage_member(s, returner(channel, p)), b.at, b.n);
    }
    return status < 0 ? status : HC_MOVED;
}

/* A reduce-scatter's rounds for the members without a position: before the first step, and after the last. */
static int take_extra(hc__channel *channel, const hc__stage_place *p) {
    block b = given_to(channel, p, p->position - p->first);
    int status = p->extra < 0 ? HC_OK : hc__receive_scratch(channel, p->extra, 0, b.n);
    return status < 0 ? status : HC_MOVED;
}

static int add_extra(hc__channel *channel, const hc__stage_place *p) {
    hc__reduction r = channel->reduction;
    block b = given_to(channel, p, p->position - p->first);
    if (r.reduction == HC_AVERAGE)
        r = (hc__reduction){HC_SUM, 1.0};
    return p->extra < 0 ? HC_MOVED : add(channel, b.at, b.n, 2, 0, r);
}

static int return_extra(hc__channel *channel, const hc__stage_place *p) {
    if (p->extra < 0 || p->position != returner(channel, p))
        return HC_MOVED;
    block b = channel->form.scatters ? own_part(channel, p->extra) : (block){0, channel->count};
    int status = hc__send_part(channel, p->extra, b.at, b.n);
    return status < 0 ? status : HC_MOVED;
}

int hc__round_stages(hc__channel *channel, int32_t round) {
    const hc__stages *s = channel->stages;
    hc__stage_place p = place_of(channel);
    int folds = channel->form.scatters && s->extra > 0, ends_outward = channel->form.scatters || channel->form.whole,
        status = HC_MOVED;
    int32_t step = round - folds, depth = s->depth;
    if (p.position < 0)
        return extra_round(channel, &p, round);
    if (folds && round == 0)
        return take_extra(channel, &p);
    if (step == 0 && folds)
        status = add_extra(channel, &p);
    if (step > 0 && step <= depth)
        status = add_step(channel, &p, step - 1);
    if (status < 0)
        return status;
    if (step < depth)
        return exchange(channel, &p, step, 1);
    if (ends_outward)
        return step == depth && s->extra > 0 ? return_extra(channel, &p) : HC_DONE;
    return step == 2 * depth ? HC_DONE : exchange(channel, &p, 2 * depth - 1 - step, 0);
}

/* ---- broadcast, reduce ------------------------------------------------------------------------------------------- */

/* The member that holds the block of my group in this step; -1: no member of the group does. */
static int32_t holder(const hc__channel *channel, const hc__stage_place *p, int32_t step) {
    const hc__stages *s = channel->stages;
    hc__stage_place root = hc__stage_place_of(s, channel->root);
    int32_t at = root.position < 0 ? root.first : root.position, positions = hc__stage_distance(s, step + 1);
    if (p->position / positions != at / positions)
        return -1;
    if (root.position < 0 && step == 0)
        return channel->root;
    return hc__stage_member(s, hc__stage_neighbour(s, step, p->position, hc__stage_digit(s, step, at)));
}

/* A step of a broadcast's scatter: the member that holds its group's block gives each of the others its part. Or of a
 * reduce's gather: it gets their parts. */
static int share(hc__channel *channel, const hc__stage_place *p, int32_t step, int gathers) {
    const hc__stages *s = channel->stages;
    int32_t radix = s->radix[step], digit = hc__stage_digit(s, step, p->position), held_by = holder(channel, p, step);
    int (*const give)(hc__channel *, int32_t, int64_t, int64_t) = gathers ? hc__receive_part : hc__send_part;
    int (*const get)(hc__channel *, int32_t, int64_t, int64_t) = gathers ? hc__send_part : hc__receive_part;
    int status = HC_OK;
    if (held_by < 0)
        return HC_MOVED;
    if (!holds(channel, p->position, step)) {
        block mine = block_after(channel, p->position, step + 1);
        status = get(channel, held_by, mine.at, mine.n);
        return status < 0 ? status : HC_MOVED;
    }
    for (int32_t i = 1; i < radix && status >= 0; i++) {
        int32_t position = hc__stage_neighbour(s, step, p->position, (digit + i) % radix);
        block theirs = block_after(channel, position, step + 1);
        status = give(channel, hc__stage_member(s, position), theirs.at, theirs.n);
    }
    return status < 0 ? status : HC_MOVED;
}

int hc__round_broadcast_stages(hc__channel *channel, int32_t round) {
    hc__stage_place p = place_of(channel);
    int32_t depth = channel->stages->depth;
    if (p.position < 0) { /* the root gives only; another one gets only */
        int gives = channel->team->me == channel->root;
        return round == 1 ? HC_DONE : extra_round(channel, &p, gives ? 0 : 1);
    }
    if (round < depth)
        return share(channel, &p, round, 0);
    return round == 2 * depth ? HC_DONE : exchange(channel, &p, 2 * depth - 1 - round, 0);
}

int hc__round_reduce_stages(hc__channel *channel, int32_t round) {
    hc__stage_place p = place_of(channel);
    int32_t depth = channel->stages->depth;
    int status = HC_MOVED;
    if (p.position < 0)
        return round == 1 && channel->team->me != channel->root ? HC_DONE : extra_round(channel, &p, round);
    if (round > 0 && round <= depth)
        status = add_step(channel, &p, round - 1);
    if (status < 0 || round == 2 * depth)
        return status < 0 ? status : HC_DONE;
    return round < depth ? exchange(channel, &p, round, 1) : share(channel, &p, 2 * depth - 1 - round, 1);
}
