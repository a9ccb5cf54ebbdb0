/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h - the job of this rank after its start, and its process sets and plans.
 *
 * Every function here concerns only this rank. The ranks agree on numbers, generations and segments before, in the
 * program's language or in plan_agreement.c.
 */
#pragma once

#include "transport/hierarchy/hierarchy.h"
#include "transport/shm/shm.h"
#include "transport/shm/slices.h"
#include "world/in_flight.h"
#include "world/node_order.h"
#include "world/order.h"
#include "world/plan_agreement.h"
#include "world/plan_memory.h"
#include "world/plane_maker.h"

#include <pthread.h>

/* Code of another library that uses the job. The job calls `ended` after it has freed the loop and before the net. */
typedef struct hc_job_user {
    void (*ended)(void *of);
    void *of;
    struct hc_job_user *next;
} hc_job_user;

/* Bit n: number n is free on this rank. Number 0 is the set of all ranks. */
typedef struct hc_set_numbers {
    uint64_t bits[HC_MAX_SETS / 64];
} hc_set_numbers;

typedef struct hc_free_sets {
    hc_set_numbers free, offered; /* offered: to ranks that make sets now */
} hc_free_sets;

/* Numbers of this job's plans and sets. */
typedef struct hc_numbers {
    hc_plans_used plans;
    hc_free_sets sets;
} hc_numbers;

typedef struct hc_job {
    hc_loop *loop;
    hc_net *net; /* NULL: one node holds all ranks */
    hc_node_control *node_control;
    int32_t *node_of;      /* of each rank; numbered by first appearance */
    hc_node_place *places; /* of each node; NULL: the nodes stand in the order of their numbers */
    int32_t rank, size, local_rank, local_size, fanout;
    hc_hierarchy_config hierarchy;  /* knobs and algorithm for all data planes; each plane sets the rest */
    char nonce[17];                 /* unique to the job, for names of shared memory */
    hc_slices *slices;              /* memory of process sets on this node; from the first set on */
    const hc_plane_source *devices; /* makes planes for device memory; NULL: none */
    pthread_mutex_t lock;           /* protects the next two */
    hc_numbers numbers;
    hc_job_user *users;
    hc_in_flight in_flight;
    hc_plan_memories plans;
    hc_order orders[HC_MAX_SETS]; /* by set number */
} hc_job;
void hc_job_init(hc_job *);
void hc_job_add_user(hc_job *, hc_job_user *);
void hc_job_remove_user(hc_job *, hc_job_user *);
void hc_job_end_users(hc_job *);
hc_plans_used hc_job_used(hc_job *); /* a copy */
/* Numbers that are free and not offered: the lowest `few`, which no other thread gets before hc_job_withdraw_sets(); or
 * all of them (0), which others may get, too. */
hc_set_numbers hc_job_offer_sets(hc_job *, int few);
void hc_job_withdraw_sets(hc_job *, hc_set_numbers);
/* 1: the number is this caller's. `shared`: others may have it, too. */
int hc_job_take_set_number(hc_job *, int, int shared);
void hc_job_give_set_number_back(hc_job *, int);
void hc_job_note_generation(hc_job *, uint32_t);
void hc_job_take_plan_number(hc_job *, int); /* of a plan's tags; -1: does nothing */
void hc_job_give_plan_number_back(hc_job *, int);

/* Some ranks of the job; this rank is a member. */
typedef struct hc_members {
    const int32_t *ranks; /* borrowed */
    int32_t size, own;    /* own: this rank's index in `ranks` */
    int32_t *nodes;       /* of each member; numbered by the nodes' places, or by first appearance */
    int32_t *locals;      /* local ranks, in the node control segment, of the members on this node */
    int32_t nlocals, own_local;
    int32_t group; /* from the first node on so many share a switch, but for some of the last; 0: not known */
} hc_members;
/* OK, or NO_MEMORY; hc_members_free() in both cases. */
int hc_members_find(const hc_job *, const int32_t *ranks, int32_t size, hc_members *);
void hc_members_free(hc_members *);

/* Makes data planes of the members for host memory, with the tags of `number`: for the node and between nodes. `place`:
 * the configuration of the second. A plane that owns the segment takes it, also if the other plane fails. */
int hc_plane_make(const hc_job *, const hc_members *, uint32_t number, int64_t chunk_most, hc_segment *,
                  hc_hierarchy_config *place, hc_node **, hc_data **);

/* A process set before it is added to the loop. */
typedef struct hc_set_draft {
    hc_set_config place;
    hc_child *children;
    hc_hierarchy_config plane; /* of parts.host; borrows the members */
    hc_set_parts parts;        /* no host: the set was added, and the loop owns all parts */
    hc_shortcut *shortcut;     /* for the set's order */
    hc_votes *votes;           /* likewise */
    char why[HC_WHY];          /* why it was not made; "": the status says it */
} hc_set_draft;
/* `segment`: of the set of all ranks, number 0, made for it; NULL for other sets, which get a slice. OK or a status;
 * hc_set_draft_free() in both cases. */
int hc_set_draft_make(hc_job *, const hc_members *, uint32_t number, uint32_t generation, hc_segment *, hc_set_draft *);
int hc_set_add(hc_job *, hc_set_draft *);
void hc_set_draft_free(hc_set_draft *);
/* Makes and adds a set. OK; or a status, and why. */
int hc_set_make(hc_job *, const int32_t *ranks, int32_t size, uint32_t number, uint32_t generation, hc_segment *,
                char why[HC_WHY]);
/* Removes a set after the end of its log. */
int hc_set_remove(hc_job *, uint32_t number);

/* Builds the plan after all ranks have agreed on its terms. `handle`: has the arguments; the caller keeps it. The
 * segment: as above. */
int hc_plan_build(const hc_job *, const hc_members *, const hc_plan_terms *, hc_handle *handle, hc_segment *,
                  hc_plan **);
