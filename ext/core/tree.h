/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.h - the items that the sources of this node of a set's tree have, and the items to send up.
 */
#pragma once

#include "core/request.h"

/* A first announcement at this node, with at most two signatures: that of the lowest rank, and one other. */
typedef struct hc__first {
    struct hc__first *prev, *next;         /* all of the set */
    struct hc__first *out_prev, *out_next; /* to send up; at the root: ready */
    hc__sig *sigs[2];
    int32_t ranks[2]; /* lowest set rank of each */
    uint32_t name;
    uint8_t nsigs, sent, out, rooted;
    uint64_t have[]; /* bits of sources */
} hc__first;

typedef struct hc__tree {
    hc__first *firsts, *firsts_last;
    hc__first *out, *out_last;
    uint8_t flags_sent, flags_out; /* hc__flag: sent up from here; to send up with the next message */
    uint8_t is_sending;            /* T4: the last message to the parent has not left */
} hc__tree;

/* ---- raising: what a source has ------------------------------------------------------------------ */
void hc__tree_have_slot(hc__set *, int32_t slot); /* of this rank; call hc__tree_rise() after it */
void hc__tree_have_first(hc__set *, uint32_t name, uint32_t source, hc__sig *, int32_t rank, int rooted);
void hc__tree_rise(hc__set *, uint32_t from_word, uint32_t to_word); /* T2, T3 for slots */
void hc__tree_conflict(hc__set *, int32_t slot);
void hc__tree_flag(hc__set *, uint8_t flag);
void hc__tree_joined(hc__set *, uint32_t source, uint32_t firm, uint32_t loose, int32_t last);

/* ---- questions ----------------------------------------------------------------------------------- */
int hc__tree_all_joined(const hc__set *, uint32_t source); /* 1: all its ranks have joined */
int hc__tree_has(const hc__set *, uint32_t name, uint32_t source);

/* ---- items for the next message up; at the root: for the next entry --------------------------------- */
typedef uint8_t *hc__write_first(const hc__first *, uint8_t *);
int hc__tree_any_out(const hc__set *); /* 1: there are slots or first announcements */
uint8_t *hc__tree_write_firsts(const hc__set *, uint8_t *, hc__write_first *); /* u32 n, n first announcements */
void hc__tree_clear_out(hc__set *);

void hc__first_drop(hc__set *, hc__first *);
void hc__tree_clear(hc__set *); /* the log has ended */
