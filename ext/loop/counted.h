/* SPDX-License-Identifier: Apache-2.0
 *
 * counted.h - requests that the ranks agree on by their count (counted.c), as the driver takes them.
 */
#pragma once

#include "loop/batch.h"

#define HC__COUNTED_BATCH UINT64_MAX /* the number of such a request's batch, which is in no log */

/* Takes a request of this set that all ranks have counted: its batch follows those that have started. */
void hc__counted_take(hc_loop *, hc__set_queue *, hc_handle *);
/* Ends it with its batch. */
void hc__counted_end(hc_loop *, const hc__run *, int status);
/* Reports such batches that run for long, of which the engine knows nothing, and breaks the World at the limit. */
void hc__counted_watch(hc_loop *, uint64_t now);
/* 1: keeps back a handle of a set that counts a request on this rank. */
int hc__counted_keeps(hc_loop *, hc_handle *);
/* The handles that were kept back and are no longer, in their order; NULL: none. */
hc_handle *hc__counted_kept(hc_loop *);
/* The count of a set's request is off. [any thread] */
void hc__counted_off(hc_loop *, uint32_t set);

/* ---- equal rows: equal_rows.c ---- */

typedef int64_t hc__extremes[2]; /* the count has their minimum over all ranks */
/* What this rank says of its rows; allocates its results. */
void hc__equal_say(hc_handle *, int32_t rank, int32_t size, hc__extremes);
/* What all ranks have said; NULL: the count is off. Marks a request with equal rows, or frees the results. */
void hc__equal_settle(hc_handle *, int32_t rank, const int64_t *);
