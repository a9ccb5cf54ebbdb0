/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_agreement.h - the agreement of a World's ranks on a plan, for programs in any language.
 *
 * Each rank sends its arguments to the others, in a report of fixed size. All ranks derive the same error or the same
 * terms from the reports. If the operation counts rows, a second exchange has the rows of each rank for each rank.
 */
#pragma once

#include "loop/loop.h"
#include "rendezvous/exchange.h"
#include "world/arguments.h"

#define HC_PLAN_NUMBERS 2048 /* limit of a rank's plans between nodes */

/* Numbers in use on this rank. */
typedef struct hc_plans_used {
    uint32_t generation;                    /* of this rank's newest process set or plan */
    uint64_t numbers[HC_PLAN_NUMBERS / 64]; /* bit n: a plan has the tags of number HC_MAX_SETS + n */
} hc_plans_used;

int hc_plans_between_nodes(const hc_plans_used *); /* their number */

/* This rank's checked arguments. */
typedef struct hc_plan_proposal {
    const hc_arguments *given; /* of the plan */
    const hc_arguments *whole; /* for the comparison: of the group that has the plan, or `given` */
    const hc_place *place;
    const int32_t *node_of; /* of each member */
    const hc_plans_used *used;
} hc_plan_proposal;

/* The result of the agreement. */
typedef struct hc_plan_terms {
    hc_plan_agreed agreed;
    int number;          /* of the plan's tags between nodes, above those of process sets; -1: no tags */
    uint32_t generation; /* of the plan */
    void *memory;        /* `agreed` points into it; the caller frees it, also after an error */
} hc_plan_terms;

/* All ranks of the World call it. OK; or the same status on all, and why; "": the callback has the text. */
int hc_plan_agree(const hc_plan_proposal *, const hc_exchange *, hc_plan_terms *, char why[HC_WHY]);
/* Call it instead after this rank has refused its call: the other ranks get an error with the reason. */
void hc_plan_refuse(const hc_exchange *, uint8_t operation, int status, const char *why);
