/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h - makes the parts of a World: nodes, segments, the loop, process sets.
 */
#pragma once

#include "api/base.h"
#include "rendezvous/rendezvous.h"

/* Makes the loop of this rank, with its node control segment and net. All ranks call it, after the exchange of their
 * reports. */
int hc__parts_make(hc__base *, hc_rendezvous *);
void hc__parts_free(hc__base *);

/* Makes a process set with these members; this rank is a member. OK, or a status (error set). It takes the segment,
 * also after an error; NULL: the set gets a slice, and is not the set of all ranks. */
int hc__set_make(hc__base *, uint32_t number, uint32_t generation, const int32_t *ranks, int32_t size, hc_segment *);
