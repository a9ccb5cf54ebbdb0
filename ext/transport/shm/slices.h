/* SPDX-License-Identifier: Apache-2.0
 *
 * slices.h - memory for the process sets on a node: slices of one file, which keep their memory for the next set.
 *
 * The file is that of the set of all ranks, behind that set's memory. A set has a slice on each node, named by the
 * lowest of its members there (its leader) and by the set's number: no two sets have the same at one time. A slice has
 * no memory until its leader reserves some. When the last member has left, the slice is as it was before the first one
 * took it, so the next set may take it without a word to the other ranks.
 */
#pragma once

#include "transport/shm/control_segment.h"
#include "transport/shm/segment.h"

#define HC_SLICES_KEPT 8       /* the slices of set numbers 1 to 8 keep their memory; others give it back */
#define HC_SLICE_UNIT 16384ull /* bytes; the unit of sizes that ranks tell each other */

typedef struct hc_slices hc_slices;

/* `first`: the segment of the set of all ranks; borrowed during the call. OK, or a status and, unless it is NO_MEMORY,
 * why. */
int hc_slices_new(const hc_segment *first, hc_node_control *, hc_slices **, char *why, size_t why_room);
void hc_slices_free(hc_slices *); /* after all slices were left. NULL is allowed */

/* Units that a slice for so many members needs. */
uint16_t hc_slice_units(int32_t members);
/* Units reserved of the slice that this rank leads; -1: members of an earlier set still use it. */
int32_t hc_slice_reserved(const hc_slices *, uint32_t number);
/* Reserves memory for so many members, in the slice that this rank leads and nobody uses. OK, or a status and why. */
int hc_slice_reserve(hc_slices *, uint32_t number, int32_t members, char *why, size_t why_room);
/* Takes part in the use of a slice, which is reserved for its members, or is in use by them. hc_segment_close() of the
 * result leaves it. `leader`: a local rank. OK, or a status and why. */
int hc_slice_take(hc_slices *, int32_t leader, uint32_t number, uint32_t generation, int32_t members, hc_segment *,
                  char *why, size_t why_room);
