/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - the parts of a node's segment, and the marks that tell which parts may be read or written.
 */
#pragma once

#include "transport/node.h"

#include <stdatomic.h>

typedef struct hc__shm hc__shm;
typedef struct hc__small hc__small; /* small.h */

#define HC__LINE 128 /* two lines of 64 bytes: the prefetcher fetches pairs */

typedef struct hc__mark {
    _Alignas(HC__LINE) _Atomic uint64_t value;
} hc__mark;

enum hc__mark_kind { HC__PACKED, HC__REDUCED, HC__PUBLISHED, HC__MARKS };

typedef struct hc__marks {
    hc__mark of[HC__MARKS];
} hc__marks;

/* The progress of a scan of all ranks' marks, so that a repeated scan costs one load and not one per rank. */
typedef struct hc__mark_scan {
    uint64_t target;
    int32_t next;
} hc__mark_scan;

/* Where the parts of the segment are. */
typedef struct hc__places {
    hc__mark *left; /* number of nodes that were freed */
    hc__marks *marks;
    hc__small *small;
    uint8_t *slots, *results;
    size_t chunk; /* bytes of the longest chunk */
} hc__places;

void hc__shm_lay_out(hc__shm *); /* finds the parts of the segment */
/* Makes a segment of hc_shm_bytes(), which nobody uses, as if it were new: what a new node relies on is zero. */
void hc__shm_clear(void *base, int32_t local_size);
/* Cuts the room into slots and `depth` results for chunks of so many bytes; INVALID where they do not fit. Three slots
 * keep the ranks of a node busy, and few slots stay in the caches. */
#define HC__DEPTH_IN_NODE 3
int hc__cut_regions(hc__shm *, size_t slot_bytes, size_t result_bytes, int depth);
uint8_t *hc__shm_slot(const hc__shm *, int32_t rank, int64_t chunk);
uint8_t *hc__shm_result(const hc__shm *, int64_t chunk);

/* Sets the other ranks; `locals`: their local ranks in the node control segment. */
void hc__shm_set_peers(hc__shm *, const int32_t *locals);
/* Copies data to the segment, with the stores that suit the distance of the readers. */
void hc__shm_show(hc__shm *, void *to, const void *from, size_t bytes);
/* The same for data that this core has just written. Streaming stores take that at a rate which says nothing about the
 * readers, so it is not measured. */
void hc__shm_show_cached(hc__shm *, void *to, const void *from, size_t bytes);
void hc__shm_expect(hc_node *, int64_t passing);

void hc__mark_set(hc__shm *, enum hc__mark_kind, uint64_t value); /* also wakes the other ranks */
int hc__mark_reached(const hc__shm *, int32_t rank, enum hc__mark_kind, uint64_t value);
/* 1 when the marks of ranks first, first + step, ... have all reached `value`. */
int hc__marks_reached(const hc__shm *, hc__mark_scan *, int32_t first, int32_t step, enum hc__mark_kind,
                      uint64_t value);
