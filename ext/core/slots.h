/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.h - the cache of agreed signatures, and which sources have raised each.
 *
 * Each state of a slot is a column of bits. A row is one 64-bit word of each column: 64 slots.
 */
#pragma once

#include "core/request.h"

typedef struct hc__slot {
    hc__sig *sig; /* NULL: free */
    uint64_t gen; /* position at which it was last assigned or freed */
    uint32_t name;
    int32_t older, newer; /* least recently used first */
    int32_t next;         /* the next slot of this name, more recently used first; -1: the last */
} hc__slot;

/* The columns of a row. From HC__HAVE on there is one column per source. */
enum hc__column {
    HC__USED,
    HC__SENT,          /* risen from here, not yet committed */
    HC__OUT,           /* to send up with the next message; at the root: ready */
    HC__ROOTED,        /* rooted operations: the root rank has raised it */
    HC__NEEDS_ROOT,    /* rooted operations */
    HC__RIVALS,        /* its name has another slot, or a first announcement in the tree */
    HC__CONFLICT_SENT, /* members have raised it and a rival; once per generation */
    HC__CONFLICT_OUT,
    HC__GONE, /* freed by the entry that is being applied */
    HC__HAVE
};

typedef struct hc__slots {
    hc__slot *at; /* 64 for each row */
    uint64_t *rows;
    uint32_t nwords, stride; /* rows, and columns of a row */
    uint32_t count;          /* slots in use */
    int32_t lru_oldest, lru_newest;
    uint64_t changed; /* position of the last change of any slot */
    uint64_t freed;   /* position of the last freeing of any slot */
} hc__slots;

static inline uint64_t *hc__row(const hc__slots *slots, uint32_t word) {
    return slots->rows + (size_t)word * slots->stride;
}
static inline uint64_t hc__row_out(const uint64_t *row) {
    return row[HC__OUT];
}
static inline uint64_t hc__row_conflict(const uint64_t *row) {
    return row[HC__CONFLICT_OUT];
}
static inline int hc__bit(uint64_t bits) { /* index of the lowest one */
    return __builtin_ctzll(bits);
}

int32_t hc__slot_find(const hc__set *, uint32_t name, const uint8_t *sig, uint32_t nbytes); /* -1: none */
uint32_t hc__slots_per_name(const hc__set *);                                               /* at most */
int hc__slot_assign(hc__set *, uint32_t name, hc__sig *); /* takes a reference; 0 or NO_MEMORY */
void hc__slot_free(hc__set *, int32_t slot);
void hc__slot_touch(hc__set *, int32_t slot);       /* makes it the most recently used one */
int hc__slot_raised(const hc__set *, int32_t slot); /* by any source */
void hc__slots_compare(hc__set *, uint32_t name);   /* recomputes RIVALS after the items of this name have changed */
void hc__slots_clear_gone(hc__set *);
void hc__slots_free(hc__set *);
