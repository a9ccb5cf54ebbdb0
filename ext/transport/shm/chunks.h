/* SPDX-License-Identifier: Apache-2.0
 *
 * chunks.h - the chunks of a batch, and the elements of each.
 */
#pragma once

#include "transport/node.h"
#include "transport/shm/pieces.h"

#define HC__ALIGNMENT 64 /* bytes: the alignment of ranges */

/* The parts of the open batch, and the ranks that carry them between nodes. */
typedef struct hc__batch_parts {
    const int64_t *bounds; /* where the parts begin: count + 1 */
    int64_t whole[2];      /* the bounds of an allreduce's one part */
    int32_t count, own_from, own_end;
    hc_rails rails;
    int64_t window; /* elements of each part per chunk, at most */
} hc__batch_parts;

/* The chunks of the open batch, and how many have passed each stage here. */
typedef struct hc__chunks {
    int64_t count, packed, reduced, spread;
    int share_done;      /* of chunk `reduced`: waits for the other ranks of my rail */
    int32_t spread_next; /* shares of chunk `spread` that are copied */
    int slots, depth;    /* of a rank; of results */
    size_t slot_stride, result_stride;
    int64_t scattered; /* scatter: elements per rank and round */
} hc__chunks;

/* The elements of one part on one rail, in a chunk. */
hc__range hc__rail_elements(const hc__shm *, int64_t chunk, int32_t rail, int32_t part);
/* The places of a chunk: all of them, the places of a rail, and the places that a rank reduces. */
hc__range hc__chunk_places(const hc__shm *, int64_t chunk);
hc__range hc__rail_places(const hc__shm *, int64_t chunk, int32_t rail);
hc__range hc__share_places(const hc__shm *, int64_t chunk, int32_t rank);

/* Iterates over the runs of elements in a range of a chunk's places, with the first place of each. */
typedef struct hc__runs {
    const hc__shm *shm;
    int64_t chunk, place;
    hc__range places;
    int32_t rail, part;
} hc__runs;

hc__runs hc__runs_of(const hc__shm *, int64_t chunk, hc__range places);
int hc__runs_next(hc__runs *, hc__range *elements, int64_t *place);
