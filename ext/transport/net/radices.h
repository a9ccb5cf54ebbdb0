/* SPDX-License-Identifier: Apache-2.0
 *
 * radices.h - the ways to split n members into stages of few members each.
 *
 * A member's position is a number of several digits, one per stage: the stage's radix is the number of values of its
 * digit, and the members of a stage differ in this digit alone. The first digit counts the nearest members.
 */
#pragma once

#include <stdint.h>

#define HC__STAGES_MOST 31 /* of 2 members each: 2^31 */
#define HC__SPLITS_MOST 23
#define HC__FURTHER 0.2 /* the time of one more message that is posted beside the first, as a part of the first's */
#define HC__FEW_BYTES 1024
#define HC__FEW_MEMBERS 8 /* few bytes travel in stages of at most 8 members each */

/* The product of the radices is the number of positions. If it is less than n, the members beyond it have none: each of
 * the first `extra` groups of the first stage has one such member, its last. `near`: the first stages whose members are
 * known to share a switch. */
typedef struct hc__stages {
    int32_t depth, extra, near;
    int32_t radix[HC__STAGES_MOST];
} hc__stages;

/* Where a member is. */
typedef struct hc__stage_place {
    int32_t position; /* or -1 */
    int32_t first;    /* the lowest position of its group in the first stage */
    int32_t extra;    /* the member of that group without a position, or -1 */
} hc__stage_place;
hc__stage_place hc__stage_place_of(const hc__stages *, int32_t member);
int32_t hc__stage_member(const hc__stages *, int32_t position);
/* Positions that differ by 1 in the digit of a stage are so far from each other; for the depth: all positions. */
int32_t hc__stage_distance(const hc__stages *, int32_t stage);
int32_t hc__stage_digit(const hc__stages *, int32_t stage, int32_t position);
/* The position whose digit of this stage is `value`, and whose others are those of `position`. */
int32_t hc__stage_neighbour(const hc__stages *, int32_t stage, int32_t position, int32_t value);
/* The least power of two that is at least the number of operands of a stage. */
double hc__stage_power(const hc__stages *, int32_t stage);

/* AVERAGE: a member that has the complete sum divides it by `divisor`, once. */
typedef struct hc__reduction {
    int reduction; /* enum hc_reduction */
    double divisor;
} hc__reduction;

/* The order in which the steps of an operation go through the stages. */
typedef enum hc__steps { HC__NEAREST_FIRST, HC__NEAREST_LAST } hc__steps;
int32_t hc__stage_of_step(const hc__stages *, int32_t step, hc__steps);
/* What a step does of a reduction. A mean is divided at the end; `divides`: each step divides by the power of two of
 * its stage, and the last one by the rest. */
hc__reduction hc__stage_reduction(const hc__stages *, int32_t step, hc__steps, int divides, hc__reduction);

/* The first split is one stage of all members. */
typedef struct hc__splits {
    int32_t n, count;
    hc__stages stages[HC__SPLITS_MOST];
} hc__splits;

/* `group`: the number of consecutive members, counted from the first, that are near each other; 0: not known. */
void hc__splits_of(int32_t n, int32_t group, hc__splits *);

/* The stages of an allreduce of few bytes: the fewest messages in succession. They do not depend on the length, so that
 * a sum has the same bits wherever it is formed (vote.h). NULL: all members at once. */
const hc__stages *hc__few_bytes(const hc__splits *);
