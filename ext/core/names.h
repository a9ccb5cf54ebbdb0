/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h - one record for each name that this rank has heard of in a set.
 */
#ifndef HC_CORE_NAMES_H
#define HC_CORE_NAMES_H

#include "core/request.h"

enum hc__phase {
    HC__ABSENT,   /* no own request */
    HC__PENDING,  /* enqueued, not raised */
    HC__ON_SLOT,  /* raised as a cached request */
    HC__ON_FIRST, /* raised as a first announcement */
    HC__BEHIND,   /* raised when the refusal before it is agreed */
    HC__RUNNING   /* agreed; in one or more batches */
};

struct hc__first; /* tree.h */

typedef struct hc__name {
    uint64_t key[2];
    hc__sig *mine;           /* own request, NULL when ABSENT */
    hc__sig *refused;        /* what this rank has refused and nobody has heard of yet, the oldest first; or NULL */
    struct hc__first *first; /* under way in the tree, or NULL */
    uint64_t ticket, since;  /* since: enqueued, or (waited) a caller began to wait */
    uint64_t position;       /* of the commit, when RUNNING */
    int64_t row;             /* own dims[0], where it is not agreed */
    int64_t *rows;           /* the same of many tensors, or NULL */
    uint32_t older, newer;   /* in the list of pending requests; the free list goes by `older` */
    int32_t slot;            /* the one committed last; the others behind it. -1: none */
    int32_t raised_slot;     /* ON_SLOT; else -1 */
    int32_t status;          /* RUNNING: the first error of a batch */
    uint32_t batches;        /* RUNNING: not yet done */
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
uint32_t hc__name_intern(hc__set *, const uint64_t key[2]); /* finds or makes it; HC__NONE: out of memory */
void hc__name_forget(hc__set *, uint32_t name);             /* if nothing holds it any more */
void hc__names_free(hc__set *);

#endif
