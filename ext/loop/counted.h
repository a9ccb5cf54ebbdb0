/* SPDX-License-Identifier: Apache-2.0
 *
 * counted.h - requests that the ranks agree on by their count (counted.c), as the driver takes them.
 */
#ifndef HC_LOOP_COUNTED_H
#define HC_LOOP_COUNTED_H

#include "loop/batch.h"

#define HC__COUNTED_BATCH UINT64_MAX /* the number of such a request's batch, which is in no log */

/* Takes a request of this set that all ranks have counted: its batch follows those that have started. */
void hc__counted_take(hc_loop *, hc__set_queue *, hc_handle *);
/* Ends it with its batch. */
void hc__counted_end(hc_loop *, const hc__run *, int status);
/* 1: keeps back a handle of a set that counts a request on this rank. */
int hc__counted_keeps(hc_loop *, hc_handle *);
/* The handles that were kept back and are no longer, in their order; NULL: none. */
hc_handle *hc__counted_kept(hc_loop *);
/* The count of a set's request is off. [any thread] */
void hc__counted_off(hc_loop *, uint32_t set);

#endif
