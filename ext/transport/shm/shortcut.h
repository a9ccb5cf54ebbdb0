/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcut.h - the ranks of a process set on one node exchange the bytes of a small blocking call, all of them or none.
 *
 * Each rank says what it asks for, beside its part of the data. Either all ranks have come with the same call, and have
 * its result, or none has, and then they agree in the engine. That is decided once for each call, by one atomic word.
 * No function here waits.
 */
#ifndef HC_SHORTCUT_H
#define HC_SHORTCUT_H

#include "transport/node.h"

#define HC_SHORTCUT_BYTES 1024 /* the largest part */
#define HC_SHORTCUT_WORDS 7
#define HC_SHORTCUT_RANKS 32

enum hc_shortcut_state { HC_SHORTCUT_OPEN, HC_SHORTCUT_TAKEN, HC_SHORTCUT_OFF };

typedef struct hc_shortcut hc_shortcut;

/* A node's, which owns it; NULL: it has none, having one rank or too many. One thread at a time uses it. */
hc_shortcut *hc_shm_shortcut(const hc_node *);
/* Comes with the next call. OPEN: look() until it is not; TAKEN; OFF: ask the engine. */
int hc_shortcut_come(hc_shortcut *, const uint64_t said[HC_SHORTCUT_WORDS], const void *part, size_t bytes);
int hc_shortcut_look(hc_shortcut *);
int hc_shortcut_give_up(hc_shortcut *); /* TAKEN, if all have come after all; else OFF */
/* TAKEN: what a local rank gave. It stays until this rank comes with its next call. */
const void *hc_shortcut_part(const hc_shortcut *, int32_t local_rank);
int hc_shortcut_misses(const hc_shortcut *); /* calls in a row that were off */
/* The ranks have agreed on a call in the engine, at that position of the log, which is the same on all of them: with
 * it they number their calls. Called behind every agreed call without a name and every join. */
void hc_shortcut_renumber(hc_shortcut *, uint64_t position);

#endif
