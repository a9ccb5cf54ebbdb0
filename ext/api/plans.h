/* SPDX-License-Identifier: Apache-2.0
 *
 * plans.h - persistent operations.
 */
#pragma once

#include "api/calls.h"
#include "api/codes.h"
#include "api/requests.h"

/* All ranks call it with their calls: OK and the terms, or the same error on all (error set). They compare `whole`, of
 * which `given` may be a part. `node_of`: of each rank. */
int hc__plan_agree(const hc__read *given, const hc__read *whole, hpccoll_world *, const int32_t *node_of,
                   hc_plan_terms *);
/* Call it after this rank has refused its call (error set): the other ranks get an error, too. Returns the status. */
int hc__plan_refuse(const hc__call *, hpccoll_world *, int status);
#define HC__PLAN_ALIVE 0x68706c616eull

/* How a plan of one kind is started and ended. */
typedef struct hc__plan_steps {
    int (*start)(hpccoll_plan *, int waits);
    int (*test)(const hpccoll_plan *); /* 1: what was started is done */
    void (*wait)(const hpccoll_plan *);
    int (*outcome)(hpccoll_plan *); /* the status of what is done (error set) */
} hc__plan_steps;

struct hpccoll_plan {
    uint64_t state; /* HC__PLAN_ALIVE, or 0 */
    hpccoll_world *world;
    const hc__plan_steps *steps; /* NULL: a list, or its World has ended */
    hc_plan *c;                  /* of a call or a message; else NULL */
    hc_handle *handle;           /* like `c` */
    hc_halo *halo;               /* of a halo exchange; else NULL */
    int number;                  /* of its tags between nodes; -1: no tags */
    uint8_t started, is_list, byte[1];
    int n; /* plans in a list */
    hpccoll_plan **parts;
    hc_plan_memory *memory; /* NULL: a list, or its World has ended */
    hc__after *after;       /* called after each start; NULL: no callback */
    int *from;              /* for a receive, like the next two */
    int64_t *received;
    size_t element;
    hpccoll_plan *next, **link; /* in the list of its base, or of freed plans */
};

/* plan_memory.c */
/* NULL (error set): no memory. */
hpccoll_plan *hc__plan_new(hpccoll_world *);
void hc__plan_link(hpccoll_plan *); /* adds it to its World, which ends it */
/* The first frees the resources of a plan, the second keeps its memory for a later plan. */
void hc__plan_give_back(hpccoll_plan *);
void hc__plan_rest(hpccoll_plan *);
/* Frees the resources of the plans of a World (NULL: of all Worlds), after the end of its loop or set. */
void hc__plans_free(hc__base *, const hpccoll_world *);
