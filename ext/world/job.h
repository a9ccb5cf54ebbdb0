/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h - what one start has made on this rank, and the process sets and plans that are made of it.
 *
 * Every function here concerns this rank alone. What the ranks must agree on first (numbers, generations, segments) is
 * agreed in the program's language, or in plan_agreement.h.
 */
#ifndef HC_JOB_H
#define HC_JOB_H

#include "transport/hierarchy/hierarchy.h"
#include "transport/shm/shm.h"
#include "world/plan_agreement.h"

#include <pthread.h>

/* Code of another library that uses the job; `ended` is called when the loop is gone, before the net is. */
typedef struct hc_job_user {
    void (*ended)(void *of);
    void *of;
    struct hc_job_user *next;
} hc_job_user;

/* Bit n: this rank is in no set of number n. Number 0 is the set of all ranks. */
typedef struct hc_set_numbers {
    uint64_t bits[HC_MAX_SETS / 64];
} hc_set_numbers;

typedef struct hc_job {
    hc_loop *loop;
    hc_net *net; /* NULL: one node holds all ranks */
    hc_node_control *node_control;
    int32_t *node_of; /* of each rank */
    int32_t rank, size, fanout;
    hc_hierarchy_config hierarchy; /* its knobs and its algorithm, for all data planes; the rest is each one's */
    char nonce[17];                /* a word that no other job has, for names of shared memory */
    pthread_mutex_t lock;          /* of the next three */
    hc_plans_used used;
    hc_set_numbers free_sets;
    hc_job_user *users;
} hc_job;
void hc_job_init(hc_job *);
void hc_job_add_user(hc_job *, hc_job_user *);
void hc_job_remove_user(hc_job *, hc_job_user *);
void hc_job_end_users(hc_job *);
hc_plans_used hc_job_used(hc_job *); /* a copy */
hc_set_numbers hc_job_free_sets(hc_job *);
void hc_job_take_set_number(hc_job *, int);
void hc_job_give_set_number_back(hc_job *, int);
void hc_job_note_generation(hc_job *, uint32_t);
void hc_job_take_plan_number(hc_job *, int); /* of a plan's tags; -1: nothing */
void hc_job_give_plan_number_back(hc_job *, int);

/* Some ranks of the job, of which this rank is one. */
typedef struct hc_members {
    const int32_t *ranks; /* borrowed */
    int32_t size, own;    /* own: this rank's number among them */
    int32_t *nodes;       /* of each member; numbered by first appearance */
    int32_t *locals;      /* local ranks, in the node control segment, of the members on this node */
    int32_t nlocals, own_local;
} hc_members;
/* OK, or NO_MEMORY; hc_members_free() in both cases. */
int hc_members_find(const hc_job *, const int32_t *ranks, int32_t size, hc_members *);
void hc_members_free(hc_members *);

/* A command to the loop itself, which no other rank delays; NULL: NO_MEMORY. Takes the handle. [any thread] */
int hc_job_command(const hc_job *, hc_handle *);

/* Data planes of the members for host memory, with the tags of `number`: in the node and between nodes. `place`: what
 * the second was made of. The segment is taken as soon as one of them owns it, also where the other one fails. */
int hc_plane_make(const hc_job *, const hc_members *, uint32_t number, int64_t chunk_most, hc_segment *,
                  hc_hierarchy_config *place, hc_node **, hc_data **);

/* A process set before it is added to the loop: its caller may give `parts` a maker of other data planes. */
typedef struct hc_set_draft {
    hc_set_config place;
    hc_child *children;
    hc_hierarchy_config plane; /* of parts.host; borrows the members */
    hc_set_parts parts;        /* no host: it was added, and all parts are the loop's */
    hc_shortcut *shortcut;     /* of the node, where that is the whole set; else NULL */
} hc_set_draft;
/* OK or a status; hc_set_draft_free() in both cases. */
int hc_set_draft_make(const hc_job *, const hc_members *, uint32_t number, uint32_t generation, hc_segment *,
                      hc_set_draft *);
int hc_set_add(const hc_job *, hc_set_draft *);
void hc_set_draft_free(hc_set_draft *);
/* All of that at once, without a maker. *shortcut: as in the draft. */
int hc_set_make(const hc_job *, const int32_t *ranks, int32_t size, uint32_t number, uint32_t generation, hc_segment *,
                hc_shortcut **shortcut);

/* The plan whose terms all have agreed on. `handle`: of its arguments, and the caller's. The segment: as above. */
int hc_plan_build(const hc_job *, const hc_members *, const hc_plan_terms *, hc_handle *handle, hc_segment *,
                  hc_plan **);

#endif
