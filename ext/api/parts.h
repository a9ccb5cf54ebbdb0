/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h - makes the parts of a World: nodes, segments, the loop, process sets.
 */
#ifndef HC_API_PARTS_H
#define HC_API_PARTS_H

#include "api/base.h"
#include "rendezvous/rendezvous.h"

/* Makes the loop of this rank, with its node control segment and net. All ranks call it, after the exchange of their
 * reports. */
int hc__parts_make(hc__base *, hc_rendezvous *);
void hc__parts_free(hc__base *);

/* Makes a segment in two steps; all ranks of `agree` call it. `leads`: this rank creates it; `takes_part`: this rank
 * attaches to it; neither: it only takes part in the agreement. */
typedef struct hc__agreement {
    int (*agree)(void *of, int status, const char *why); /* returns the same status on all ranks (error set) */
    void *of;
} hc__agreement;
int hc__segment_make(hc_segment *, const char *name, size_t bytes, int leads, int takes_part, hc__agreement);

/* Makes a process set with these members; this rank is a member. OK, or a status (error set). It takes the segment,
 * also after an error; NULL: the set gets a slice, and is not the set of all ranks. */
int hc__set_make(hc__base *, uint32_t number, uint32_t generation, const int32_t *ranks, int32_t size, hc_segment *);
/* Makes a segment for the members of each node; `what` names it. A rank that is no member only takes part in the
 * agreement. */
int hc__members_segment(const hc__base *, const char *what, const int32_t *members, int32_t size, size_t bytes,
                        hc__agreement, hc_segment *);
/* Makes the segment of a process set. A rank that is no member only takes part in the agreement. */
int hc__set_segment(hc__base *, uint32_t number, const int32_t *members, int32_t size, hc__agreement, hc_segment *);

#endif
