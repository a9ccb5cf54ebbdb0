/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict.h - one outcome for a piece, on all ranks.
 */
#pragma once

#include "transport/batch.h"

typedef struct hc__hierarchy hc__hierarchy;

/* A rank's vote: does it have memory for its result of one piece? */
typedef struct hc__vote {
    int64_t status; /* OK, RESULT_SIZE, NO_MEMORY */
    int64_t has, needs;
} hc__vote;

/* Starts the vote of all ranks. `status`: of hc__place_result() on this rank; `has`: rows of the caller's `out`, or -1.
 * Call hc__gather_test() until it is done, then hc__verdict_take(). */
int hc__verdict_start(hc__hierarchy *, const hc_piece *, int status, int64_t has);
/* 1: the piece is refused on all ranks; 0: all ranks have memory for it. */
int hc__verdict_take(hc__hierarchy *, hc_piece *);
void hc__verdict_end(hc__hierarchy *);
enum { HC__ROOM_LATER = -1, HC__ROOM_UNSURE = -2 };
/* Rows of the caller's `out`. Without an `out`: ROOM_LATER, a result of at most HC__ASKED_BYTES will find memory;
 * ROOM_UNSURE, this rank may have to refuse even a small result, so all ranks vote. */
int64_t hc__room_of(hc__hierarchy *, const hc_piece *);
/* Refuses the piece on all ranks, because of `rank`. */
void hc__refuse_piece(const hc__hierarchy *, hc_piece *, int32_t rank, const hc__vote *);
