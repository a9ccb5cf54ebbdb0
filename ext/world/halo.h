/* SPDX-License-Identifier: Apache-2.0
 *
 * halo.h - halo exchanges on a grid: each rank sends the sides of its array to its neighbours, and receives theirs.
 *
 * Corners need no messages of their own: the sides of a dimension contain the halos of the other dimensions, and those
 * of earlier dimensions have arrived before. So an exchange takes 2 messages per dimension instead of one for each of
 * the 3^n - 1 neighbours.
 *
 * Faces of at most HC_HALO_PAIR_BYTES between ranks of a node go through shared memory of the plan, all others are
 * messages that are plans. A start allocates nothing.
 */
#pragma once

#include "rendezvous/exchange.h"
#include "world/arguments.h"
#include "world/grid.h"
#include "world/job.h"

#define HC_HALO_PAIR_BYTES (64 << 10) /* of the largest face in shared memory: a message copies as often */
#define HC_HALO_RUNS (1 << 16)        /* of sides that are compared with other plans: each takes 24 bytes */

/* This rank's array and its halo. The first dimensions are divided as those of the grid are. */
typedef struct hc_halo_given {
    const hc_grid *grid; /* of the ranks of the set */
    char *data;
    size_t element; /* bytes */
    int dtype;
    const char *type; /* as in hc_operand */
    int32_t ndim, nwidths;
    int64_t shape[HC_MAX_DIMS], strides[HC_MAX_DIMS]; /* strides in bytes */
    int64_t widths[HC_MAX_DIMS];                      /* of each divided dimension; 0: it has no halo */
    int corners;                                      /* 1: corners and edges, too */
    uint32_t number;                                  /* of the exchange in its set, for the tags of its messages */
    const char *said; /* what must be equal on all ranks; NULL: dtype, widths and corners. After a refusal: why */
} hc_halo_given;

/* Where a plan is made: this rank's place, and the World rank of each rank of the set. */
typedef struct hc_halo_place {
    hc_job *job;
    const int32_t *members;
    hc_place own;
} hc_halo_place;

typedef struct hc_halo hc_halo;

/* Sets the strides of a contiguous array, whose last dimension is the fastest one. */
void hc_halo_contiguous(hc_halo_given *);
/* OK; or INVALID and why: the array has no such halo. */
int hc_halo_check(const hc_halo_given *, char why[HC_WHY]);
/* Makes a plan. All ranks call it, and compare what they give: OK, or the same error and why ("": the exchange has the
 * text). `refused`: OK, or the status with which this rank has refused its arguments already. If all ranks refuse with
 * one text, each gets its own status. The caller owns the plan and the note of its memory, for hc_plan_memory_start().
 * A plan whose sides have more than HC_HALO_RUNS contiguous runs notes none: no start is refused because of it. */
int hc_halo_new(const hc_halo_place *, const hc_halo_given *, const hc_exchange *, int refused, hc_halo **,
                hc_plan_memory **, char why[HC_WHY]);
/* Makes one without the other ranks: all its faces are messages, and each is compared when it arrives. */
int hc_halo_alone(const hc_halo_place *, const hc_halo_given *, hc_halo **, char why[HC_WHY]);
size_t hc_halo_packed(const hc_halo *); /* bytes that a start copies from strided sides, and to strided halos */
/* OK, and the first stage has begun: the others begin in test and wait. BROKEN or FORKED: nothing was started.
 * `waits`: as for hc_plan_start(). */
int hc_halo_start(hc_halo *, int waits);
int hc_halo_test(hc_halo *);              /* 1: over, or not started; 0: not yet */
int hc_halo_poll(hc_halo *);              /* the same; as hc_plan_poll() */
int hc_halo_wait(hc_halo *, uint64_t ns); /* 1: over; 0: about `ns` have passed */
/* The status of a start that is over: that of its first face that has failed, with a text. */
int hc_halo_status(const hc_halo *, const char **text);
/* Do not call it while a start runs. It may come after hc_loop_free(). NULL is allowed. */
void hc_halo_free(hc_halo *);
