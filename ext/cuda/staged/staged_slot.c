/* SPDX-License-Identifier: Apache-2.0
 *
 * staged_slot.c - the pieces of a chunk, in memory that its slot keeps.
 */
#include "cuda/staged/staged.h"

#include <stdlib.h>
#include <string.h>

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
