/* SPDX-License-Identifier: Apache-2.0
 *
 * radices.c - splits a number of members into stages.
 *
 * Stages of any radix replace the fold to a power of two: 4,608 members are 16 x 16 x 9 x 2, and no member does the
 * work of two. Rabenseifner and Traff ("More Efficient Reduction Algorithms for Non-Power-of-Two Number of Processors",
 * EuroPVM/MPI 2004) eliminate the fold by stages of 3 and 2. A number with a large prime factor keeps a small fold: a
 * member without a position gives each member of its group the part of its data that this member adds up anyhow.
 *
 * Where every so many members share a switch, the first stages split these: 18 nodes per leaf switch and 256 of these
 * are 6 x 3 x 4 x 4 x 4 x 4, so that the largest parts stay below their switch.
 */
#include "transport/net/radices.h"
#include "core/hc.h"

#include <string.h>

static const int32_t largest_radices[] = {2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64};

/* The largest divisor of n from 2 to most; 1: there is none. */
static int32_t divisor_of(int32_t n, int32_t most) {
    for (int32_t d = most < n ? most : n; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

/* Appends stages whose product is n, the largest radix first. 0: a prime factor of n is larger than `most`. */
static int factor(hc__stages *stages, int32_t n, int32_t most) {
    while (n > 1) {
        int32_t radix = divisor_of(n, most);
        if (radix == 1)
            return 0;
        stages->radix[stages->depth++] = radix;
        n /= radix;
    }
    return 1;
}

/* Stages of n members with a radix of `most` at most. The members without a position are as few per group as possible:
 * none, or one beside as many others as possible. */
static int split(hc__stages *stages, int32_t n, int32_t most) {
    *stages = (hc__stages){0};
    if (factor(stages, n, most))
        return 1;
    for (int32_t first = most < n ? most : n - 1; first > 1; first--)
        for (int32_t groups = n / first; groups * (first + 1) >= n; groups--) {
            *stages = (hc__stages){.depth = 1, .extra = n - first * groups, .radix = {first}};
            if (factor(stages, groups, most))
                return 1;
        }
    return 0;
}

/* The same, where the first stages split the members of a group; 0: the sizes do not allow it. */
static int split_groups(hc__stages *stages, int32_t n, int32_t group, int32_t most) {
    *stages = (hc__stages){0};
    return group > 1 && group < n && n % group == 0 && factor(stages, group, most) && factor(stages, n / group, most);
}

static int32_t count_near(const hc__stages *stages, int32_t group) {
    int32_t near = 0, members = 1;
    while (group > 1 && near < stages->depth && stages->extra == 0 && group % (members * stages->radix[near]) == 0)
        members *= stages->radix[near++];
    return near;
}

static int is_known(const hc__splits *splits, const hc__stages *stages) {
    for (int32_t i = 0; i < splits->count; i++)
        if (!memcmp(&splits->stages[i], stages, sizeof *stages))
            return 1;
    return 0;
}

static void add(hc__splits *splits, hc__stages stages, int32_t group) {
    stages.near = count_near(&stages, group);
    if (!is_known(splits, &stages))
        splits->stages[splits->count++] = stages;
}

void hc__splits_of(int32_t n, int32_t group, hc__splits *splits) {
    *splits = (hc__splits){.n = n, .count = 1, .stages = {{.depth = 1, .radix = {n}}}};
    for (size_t i = 0; i < sizeof largest_radices / sizeof *largest_radices; i++) {
        hc__stages stages;
        int32_t most = largest_radices[i];
        if (most < n && split(&stages, n, most))
            add(splits, stages, group);
        if (most < n && split_groups(&stages, n, group, most))
            add(splits, stages, group);
    }
}

/* ---- few bytes ----------------------------------------------------------------------------------------------- */

/* In messages: those of a stage are posted together, and the result goes to members without a position. */
static double messages_in_succession(const hc__stages *stages) {
    double messages = stages->extra > 0;
    for (int32_t stage = 0; stage < stages->depth; stage++)
        messages += 1.0 + HC__FURTHER * (stages->radix[stage] - 2 + (stage == 0 && stages->extra > 0));
    return messages;
}

static int has_small_groups(const hc__stages *stages) {
    for (int32_t stage = 0; stage < stages->depth; stage++)
        if (stages->radix[stage] > HC__FEW_MEMBERS)
            return 0;
    return 1;
}

const hc__stages *hc__few_bytes(const hc__splits *splits) {
    const hc__stages *best = NULL;
    for (int32_t i = 1; i < splits->count && splits->n > HC__FEW_MEMBERS; i++) {
        const hc__stages *next = &splits->stages[i];
        if (has_small_groups(next) && (!best || messages_in_succession(next) < messages_in_succession(best)))
            best = next;
    }
    return best;
}

/* ---- places -------------------------------------------------------------------------------------------------- */

int32_t hc__stage_member(const hc__stages *s, int32_t position) {
    int32_t group = position / s->radix[0];
    return position + (group < s->extra ? group : s->extra);
}

hc__stage_place hc__stage_place_of(const hc__stages *s, int32_t member) {
    int32_t radix = s->radix[0], group = member / (radix + 1);
    if (group >= s->extra)
        return (hc__stage_place){member - s->extra, (member - s->extra) / radix * radix, -1};
    int32_t digit = member % (radix + 1);
    return (hc__stage_place){digit < radix ? group * radix + digit : -1, group * radix, group * (radix + 1) + radix};
}

int32_t hc__stage_distance(const hc__stages *s, int32_t stage) {
    int32_t product = 1;
    for (int32_t i = 0; i < stage; i++)
        product *= s->radix[i];
    return product;
}

int32_t hc__stage_digit(const hc__stages *s, int32_t stage, int32_t position) {
    return position / hc__stage_distance(s, stage) % s->radix[stage];
}

int32_t hc__stage_neighbour(const hc__stages *s, int32_t stage, int32_t position, int32_t value) {
    return position + (value - hc__stage_digit(s, stage, position)) * hc__stage_distance(s, stage);
}

double hc__stage_power(const hc__stages *s, int32_t stage) {
    int32_t operands = s->radix[stage] + (stage == 0 && s->extra > 0);
    double power = 1.0;
    while (power < operands)
        power *= 2.0;
    return power;
}

int32_t hc__stage_of_step(const hc__stages *s, int32_t step, hc__steps order) {
    return order == HC__NEAREST_LAST ? s->depth - 1 - step : step;
}

hc__reduction hc__stage_reduction(const hc__stages *s, int32_t step, hc__steps order, int divides, hc__reduction r) {
    int last = step == s->depth - 1;
    if (r.reduction != HC_AVERAGE || (last && !divides))
        return r;
    if (!divides)
        return (hc__reduction){HC_SUM, 1.0};
    if (!last)
        return (hc__reduction){HC_AVERAGE, hc__stage_power(s, hc__stage_of_step(s, step, order))};
    for (int32_t before = 0; before < step; before++)
        r.divisor /= hc__stage_power(s, hc__stage_of_step(s, before, order));
    return r;
}
