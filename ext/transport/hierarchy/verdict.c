/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict.c - the ranks vote whether each has memory for its result of a piece; one "no" refuses the piece on all
 * ranks.
 *
 * They vote before any row reaches a result, so no result is touched, the ranks stay in step, and the next batch can
 * run. A vote costs one small gather, so it is taken only where a rank may have no memory: the result is large, or it
 * is the caller's, whose rows can be checked only after the counts are known.
 */
#include "transport/hierarchy/verdict.h"

#include "transport/hierarchy/gather_bytes.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES 96

static int make_room(hc__hierarchy *h, int64_t reserves) {
    void **grown = reserves > HC__RESERVES
                       ? NULL
                       : hc_realloc(h->results.reserves, (size_t)h->results.nreserves * sizeof *grown,
                                    (size_t)reserves * sizeof *grown);
    if (!grown)
        return 0;
    memset(grown + h->results.nreserves, 0, (size_t)(reserves - h->results.nreserves) * sizeof *grown);
    h->results.reserves = grown;
    h->results.nreserves = reserves;
    return 1;
}

/* 1: a small result of this piece will find memory. Untouched pages of a reserve cost no memory. */
static int has_reserve(hc__hierarchy *h, const hc_piece *piece) {
    int64_t at = piece - h->batch->pieces;
    if (at >= h->results.nreserves && !make_room(h, (at | 63) + 1))
        return 0;
    if (!h->results.reserves[at])
        h->results.reserves[at] = hc_result_new(HC__ASKED_BYTES);
    return h->results.reserves[at] != NULL;
}

int64_t hc__room_of(hc__hierarchy *h, const hc_piece *piece) {
    int64_t row_bytes = hc_piece_row_bytes(piece, h->batch->dtype);
    if (!piece->out)
        return has_reserve(h, piece) ? HC__ROOM_LATER : HC__ROOM_UNSURE;
    return row_bytes ? piece->out_capacity / row_bytes : piece->out_rows; /* rows without bytes count as well */
}

void hc__refuse_piece(const hc__hierarchy *h, hc_piece *piece, int32_t rank, const hc__vote *vote) {
    char text[WHY_BYTES];
    if (piece->out_owned) {
        hc_result_free(piece->out);
        piece->out = NULL;
        piece->out_owned = 0;
    }
    if (vote->status != HC_NO_MEMORY) {
        hc_piece_refuse_rows(piece, rank, h->place.world[rank], vote->has, vote->needs);
        return;
    }
    snprintf(text, sizeof text, "has no memory for its result of %lld bytes; the World goes on",
             (long long)vote->needs);
    hc_piece_refuse(piece, vote->status, rank, h->place.world[rank], text);
}

int hc__verdict_start(hc__hierarchy *h, const hc_piece *piece, int status, int64_t has) {
    hc__vote vote = {.status = status, .has = has, .needs = piece->out_rows};
    h->results.votes = hc_calloc((size_t)h->place.size, sizeof *h->results.votes);
    if (!h->results.votes)
        return HC_NO_MEMORY;
    if (status == HC_OK && has >= 0 && has != piece->out_rows)
        vote.status = HC_RESULT_SIZE;
    if (status == HC_NO_MEMORY) {
        h->base.text = NULL; /* not a failure of the World */
        vote.needs *= hc_piece_row_bytes(piece, h->batch->dtype);
    }
    for (int32_t r = 0; r < h->place.size; r++)
        h->gather.lengths[r] = sizeof vote;
    h->results.votes[h->place.rank] = vote;
    return hc__gather_start(h, &h->results.votes[h->place.rank], h->results.votes);
}

int hc__verdict_take(hc__hierarchy *h, hc_piece *piece) {
    int refused = 0;
    for (int32_t r = 0; r < h->place.size && !refused; r++) {
        refused = h->results.votes[r].status != HC_OK;
        if (refused)
            hc__refuse_piece(h, piece, r, &h->results.votes[r]);
    }
    hc__verdict_end(h);
    return refused;
}

void hc__verdict_end(hc__hierarchy *h) {
    hc_free(h->results.votes);
    h->results.votes = NULL;
}
