/* SPDX-License-Identifier: Apache-2.0
 *
 * set_agreement.h - the agreement of a World's ranks on process sets made of them, for programs in any language.
 *
 * Each rank offers numbers that are free on it, and says in the same message which set it wants to be in. From the
 * offers of all ranks each of them derives the same sets. So one exchange makes a set, unless a node has no memory
 * reserved for it, or the ranks offer no common number: then there is a second one.
 */
#pragma once

#include "world/job.h"

/* What a rank asks for. Ranks of one color get a set, in the order of (key, rank). */
typedef struct hc_sets_call {
    const char *name;     /* of the exchange: "hpccoll.split" */
    const int32_t *ranks; /* of the World that is cut: World rank of each member */
    int32_t size, own;    /* own: this rank's place in it */
    int64_t key, color;
    uint64_t digest; /* of the arguments that are equal on all ranks */
    uint8_t colored; /* 0: this rank gets no set */
    uint8_t unfit;   /* 1: its key or color has no 64 bits */
    uint8_t crowded; /* 1: another thread of this rank made sets of the same World meanwhile: an error on all ranks */
} hc_sets_call;

/* The sets that all ranks have agreed on; this rank has taken the number, if it is in one. Ranks are places in
 * call.ranks. */
typedef struct hc_sets_made {
    uint32_t number, generation;
    int32_t *members; /* World ranks of this rank's set, in its order; the caller frees it, also after an error */
    int32_t size, rank;
    int32_t *inside; /* the places of all ranks that are in a set, in order; in the memory of `members` */
    int32_t ninside;
} hc_sets_made;

enum hc_sets_outcome {
    HC_SETS_MADE,
    HC_SETS_DIFFER, /* in their digests: the caller compares the arguments and names them */
    HC_SETS_UNFIT   /* a key or color has no 64 bits: the caller gives others, in the same order */
};

/* All ranks of the World call it. An outcome; or the same status on all ranks, and why; "": the callback has the text.
 */
int hc_sets_agree(hc_job *, const hc_sets_call *, const hc_exchange *, hc_sets_made *, char why[HC_WHY]);
/* Call it if this rank has not made its set after all: the others have it, and the World breaks with the reason. */
void hc_sets_fail(hc_job *, uint32_t number, int status, const char *why);
