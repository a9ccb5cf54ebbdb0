/* SPDX-License-Identifier: Apache-2.0
 *
 * radices.h - the ways to split n members into stages of few members each.
 *
 * A member's position is a number of several digits, one per stage: the stage's radix is the number of values of its
 * digit, and the members of a stage differ in this digit alone. The first digit counts the nearest members.
 */
#ifndef HC_RADICES_H
#define HC_RADICES_H

#include <stdint.h>

#define HC__STAGES_MOST 31 /* of 2 members each: 2^31 */
#define HC__SPLITS_MOST 23

/* The product of the radices is the number of positions. If it is less than n, the members beyond it have none: each of
 * the first `extra` groups of the first stage has one such member, its last. `near`: the first stages whose members are
 * known to share a switch. */
typedef struct hc__stages {
    int32_t depth, extra, near;
    int32_t radix[HC__STAGES_MOST];
} hc__stages;

/* The first split is one stage of all members. */
typedef struct hc__splits {
    int32_t n, count;
    hc__stages stages[HC__SPLITS_MOST];
} hc__splits;

/* `group`: the number of consecutive members, counted from the first, that are near each other; 0: not known. */
void hc__splits_of(int32_t n, int32_t group, hc__splits *);

#endif
