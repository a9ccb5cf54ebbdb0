/* SPDX-License-Identifier: Apache-2.0
 *
 * halo_agreement.h - the agreement of a set's ranks on a halo exchange.
 */
#pragma once

#include "world/halo.h"

/* What the ranks have agreed on. */
typedef struct hc__halo_terms {
    uint32_t generation;             /* of the plan */
    int is_ordered;                  /* 1: all ranks have the same hc__halo_order() */
    size_t segment_bytes;            /* of the largest node; 0: no face is in shared memory */
    int64_t places[2 * HC_MAX_DIMS]; /* of side 2d + upper in the segment; -1: its face is a message */
} hc__halo_terms;

/* All ranks call it: as hc_halo_new(). */
int hc__halo_agree(const hc_halo_place *, const hc_halo_given *, const hc_exchange *, int refused, hc__halo_terms *,
                   char why[HC_WHY]);
