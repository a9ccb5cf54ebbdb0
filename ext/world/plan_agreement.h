/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_agreement.h - the ranks of a World agree on a plan, in whatever languages their programs are.
 *
 * Each rank tells the others what it was given, in a report of one size. All find the same error in these reports, or
 * the same terms. Where the operation counts rows, a second exchange tells how many each rank has for each.
 */
#ifndef HC_PLAN_AGREEMENT_H
#define HC_PLAN_AGREEMENT_H

#include "loop/loop.h"
#include "world/arguments.h"

/* How the ranks of a World give each other bytes. All call it with one name and one size; `all` takes the bytes of each
 * rank, in their order. OK; HC_RESULT_SIZE: a rank has joined; or another status, whose text the callback keeps. */
typedef struct hc_exchange {
    int (*allgather)(void *of, const char *name, const void *mine, size_t bytes, void *all);
    void *of;
} hc_exchange;

#define HC_PLAN_NUMBERS 2048 /* plans between nodes that a rank can have at once */

/* What the plans of this rank use. */
typedef struct hc_plans_used {
    uint32_t generation;                    /* of the newest process set or plan here */
    uint64_t numbers[HC_PLAN_NUMBERS / 64]; /* bit n: a plan has the tags of number HC_MAX_SETS + n */
} hc_plans_used;

int hc_plans_between_nodes(const hc_plans_used *); /* how many there are */

/* What this rank was given: checked arguments. */
typedef struct hc_plan_proposal {
    const hc_arguments *given; /* of the plan */
    const hc_arguments *whole; /* which the ranks compare: of the group that the plan is a part of, or `given` */
    const hc_place *place;
    const int32_t *node_of; /* of each member */
    const hc_plans_used *used;
} hc_plan_proposal;

/* What the ranks have agreed on. */
typedef struct hc_plan_terms {
    hc_plan_agreed agreed;
    int number;          /* of the plan's tags between nodes, above those of process sets; -1: it needs none */
    uint32_t generation; /* of the plan */
    void *memory;        /* that `agreed` leads to; the caller frees it, also after an error */
} hc_plan_terms;

#define HC_PLAN_WHY 1024 /* bytes of an error */

/* All ranks of the World call it. OK; or a status, the same on all, and why; "": the callback has kept the text. */
int hc_plan_agree(const hc_plan_proposal *, const hc_exchange *, hc_plan_terms *, char why[HC_PLAN_WHY]);
/* The same for a rank that has refused its call: the others have an error that says why. */
void hc_plan_refuse(const hc_exchange *, int32_t size, uint8_t operation, int status, const char *why);

#endif
