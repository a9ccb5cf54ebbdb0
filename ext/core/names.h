/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h - one record per name that this rank knows in a set.
 */
#pragma once

#include "core/request.h"

enum hc__phase {
    HC__ABSENT,   /* no request of this rank */
    HC__PENDING,  /* enqueued, not raised */
    HC__ON_SLOT,  /* raised as a cached request */
    HC__ON_FIRST, /* raised as a first announcement */
    HC__BEHIND,   /* waits for the agreement on a refusal */
    HC__RUNNING   /* agreed; in one or more batches */
};

struct hc__first; /* tree.h */

typedef struct hc__name {
    uint64_t key[2];
    hc__sig *mine;           /* this rank's request; NULL when ABSENT */
    hc__sig *refused;        /* refusals of this rank that are not agreed yet, oldest first; or NULL */
    struct hc__first *first; /* in the tree, or NULL */
    uint64_t ticket, since;  /* since: time of the enqueue, or (waited) when a caller began to wait */
    uint64_t position;       /* of the commit, when RUNNING */
    uint64_t order;          /* of this rank's call without a name (numbers.h); else 0 */
    int64_t row;             /* this rank's dims[0], if it is not agreed */
    int64_t *rows;           /* the same for several tensors, or NULL */
    uint32_t older, newer;   /* links of the list of pending requests; the free list uses `older` */
    int32_t slot;            /* the slot committed last, head of the name's list; -1: none */
    int32_t raised_slot;     /* ON_SLOT; else -1 */
    int32_t status;          /* RUNNING: the first error of a batch */
    uint32_t batches;        /* RUNNING: number of batches not done yet */
    uint8_t phase, waited;
    uint8_t pinned; /* in use by a caller of hc__finish() and the like */
} hc__name;

typedef struct hc__names {
    hc__name *at;
    uint32_t *table; /* index + 1, 0: empty; linear probing */
    uint32_t room, count, mask, free_list;
} hc__names;

/* A name is an index into names.at, which stays while the record lives; HC__NONE: there is none. */
uint32_t hc__name_find(const hc__set *, const uint64_t key[2]);
uint32_t hc__name_intern(hc__set *, const uint64_t key[2]);            /* finds or makes it; HC__NONE: out of memory */
void hc__name_rename(hc__set *, uint32_t name, const uint64_t key[2]); /* to one that is not known here */
void hc__name_forget(hc__set *, uint32_t name);                        /* if nothing uses it any more */
void hc__names_free(hc__set *);
