/* SPDX-License-Identifier: Apache-2.0
 *
 * staged_slot.c - the pieces of a chunk, in memory that its slot keeps.
 */
#include "cuda/staged/staged.h"

#include <stdlib.h>
#include <string.h>

/* A copy of 1 MiB takes 26 us on an H200 over PCIe 5, 7 of them for its launch: smaller chunks lose to launches. The
 * first copy down of a batch and the last one up overlap with nothing, so that few chunks lose, too. */
#define CHUNK_LEAST ((int64_t)1 << 20)
#define CHUNK_MOST ((int64_t)8 << 20)
#define CHUNKS 16 /* of a batch, if their size allows it */

int64_t hc__staged_chunk_of(const hc__staged *s, int64_t bytes) {
    int64_t chunk = hc__aligned(bytes / CHUNKS);
    if (s->chunk_bytes > 0)
        return s->chunk_bytes;
    return chunk < CHUNK_LEAST ? CHUNK_LEAST : chunk > CHUNK_MOST ? CHUNK_MOST : chunk;
}

hc_piece *hc__staged_pieces(hc__staged_slot *slot, int32_t n) {
    if (n > slot->room) {
        hc_piece *pieces = realloc(slot->pieces, 2 * (size_t)n * sizeof *pieces);
        if (!pieces)
            return NULL;
        slot->pieces = pieces;
        slot->room = 2 * n;
    }
    memset(slot->pieces, 0, (size_t)n * sizeof *slot->pieces);
    return slot->pieces;
}
