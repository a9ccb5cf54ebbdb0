/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcut.h - the ranks of a process set on one node exchange the bytes of a small blocking call, all of them or none.
 *
 * Each rank publishes its call beside its part of the data. If all ranks have made the same call, all have its result;
 * otherwise none has, and they agree in the engine. One atomic word decides this once per call. No function here waits.
 */
#pragma once

#include "transport/node.h"

#define HC_SHORTCUT_BYTES 262144 /* the largest part, of two ranks */
#define HC_SHORTCUT_SMALL 1024   /* the largest part in a set on several nodes */
#define HC_SHORTCUT_RESULT 4096  /* the largest result of votes: what all ranks of a set have given */
#define HC_SHORTCUT_WORDS 7
#define HC_SHORTCUT_RANKS 32 /* of a set whose ranks give rows */
#define HC_SHORTCUT_MOST 256 /* of a node */

/* LARGE: of callers, for what no shortcut holds. */
enum hc_shortcut_state { HC_SHORTCUT_OPEN, HC_SHORTCUT_TAKEN, HC_SHORTCUT_OFF, HC_SHORTCUT_LARGE };

typedef struct hc_shortcut hc_shortcut;

/* What a rank publishes in a call. */
typedef struct hc_shortcut_offer {
    const void *agreed; /* HC_SHORTCUT_WORDS, which must be equal on all ranks */
    uint64_t own;       /* may differ between ranks */
    const int32_t *counts;
    int32_t ncounts; /* at most one per rank; the same on all ranks with equal words */
    const void *part;
    size_t bytes;               /* at most hc_shortcut_bytes() */
    size_t own_from, own_bytes; /* bytes of the part that no other rank reads */
    uint8_t has_core;           /* each rank of the node has a core of its own */
} hc_shortcut_offer;

/* The largest part of a rank of a node. */
size_t hc_shortcut_bytes(int32_t local_size);
/* The shortcut of a node, which owns it; NULL: the node has one rank or too many, or is a plan's. One thread at a time
 * may use it. */
hc_shortcut *hc_shm_shortcut(const hc_node *);
/* Joins the next call. OPEN: call look() until it is not; TAKEN: all ranks have joined; OFF: use the engine. */
int hc_shortcut_join(hc_shortcut *, const hc_shortcut_offer *);
int hc_shortcut_look(hc_shortcut *);
int hc_shortcut_give_up(hc_shortcut *);  /* TAKEN if all ranks have joined meanwhile; else OFF */
void hc_shortcut_decline(hc_shortcut *); /* instead of join(): OFF for all ranks */
/* After TAKEN: what a local rank has published, valid until this rank's next call. */
uint64_t hc_shortcut_own(const hc_shortcut *, int32_t local_rank);
const int32_t *hc_shortcut_counts(const hc_shortcut *, int32_t local_rank);
const void *hc_shortcut_part(const hc_shortcut *, int32_t local_rank, int32_t ncounts, size_t bytes);
int hc_shortcut_misses(const hc_shortcut *); /* calls in a row that were off, without those that a rank declined */
/* Numbers the next calls from the position of the log at which the engine agreed on a call; it is the same on all
 * ranks. Call it after every agreed call without a name and every join. */
void hc_shortcut_renumber(hc_shortcut *, uint64_t position);

/* ---- of a set on several nodes: the count of the ranks of one node ------------------------------------- */

/* Its leader votes for the node (transport/net/vote.h) when all ranks of the node have joined, and tells them the
 * outcome. hc_shortcut_join() and what follows then concern this node alone. */
hc_shortcut *hc_shm_count(const hc_node *); /* as hc_shm_shortcut(), also of a node with one rank */
/* The number of the next call; 0: no vote, because the ranks must agree on the next call, which numbers the others. */
uint64_t hc_shortcut_number(const hc_shortcut *);
/* The count of any call, for a thread beside the one that joins: OPEN, TAKEN (all ranks of the node have joined,
 * perhaps with different calls), or OFF, also of a call that is over. */
enum hc_shortcut_state hc_shortcut_at(const hc_shortcut *, uint64_t number);
enum hc_shortcut_state hc_shortcut_close(hc_shortcut *,
                                         uint64_t number); /* the same, after it has put it off if open */
/* The outcome of the votes on a call that all ranks of the node have joined, from the leader to the other ranks of the
 * node: OPEN at first. `result`: of a call that was taken; at most HC_SHORTCUT_RESULT bytes. For any thread. */
void hc_shortcut_tell(hc_shortcut *, uint64_t number, enum hc_shortcut_state, const void *result, size_t bytes);
enum hc_shortcut_state hc_shortcut_told(const hc_shortcut *, uint64_t number);
const void *hc_shortcut_result(const hc_shortcut *, uint64_t number);
