/* SPDX-License-Identifier: Apache-2.0
 *
 * allgather.c - allgather of arrays whose first dimension only their owners know.
 *
 * First the ranks gather the row counts of all tensors of the batch. Then one gather per tensor moves the rows from the
 * caller's memory to the result; small tensors are packed together.
 */
#include "transport/hierarchy/allgather.h"

#include "transport/hierarchy/gather_bytes.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/results.h"
#include "transport/hierarchy/verdict.h"

#include <stdlib.h>

#define PACKED_BYTES ((int64_t)256 << 10) /* results that are gathered together */

static hc__slice *slice_of(const hc__hierarchy *h, int32_t rank, int32_t piece) {
    return &h->allgather.slices[(int64_t)rank * h->batch->npieces + piece];
}

static int64_t rows_here(const hc_piece *piece) {
    return piece->in ? piece->rows : 0;
}

static int64_t rows_from(const hc__hierarchy *h, int32_t rank, int32_t piece) {
    return slice_of(h, rank, piece)->rows;
}

static int64_t bytes_from(const hc__hierarchy *h, int32_t rank, int32_t piece) {
    return rows_from(h, rank, piece) * hc__row_bytes(h, piece);
}

static int64_t rows_in_all(const hc__hierarchy *h, int32_t piece) {
    int64_t rows = 0;
    for (int32_t r = 0; r < h->place.size; r++)
        rows += rows_from(h, r, piece);
    return rows;
}

static int begin_counts(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    const size_t bytes = (size_t)h->batch->npieces * sizeof *a->own_slices;
    for (int32_t i = 0; i < h->batch->npieces; i++) {
        const hc_piece *piece = &h->batch->pieces[i];
        a->own_slices[i] = (hc__slice){rows_here(piece), hc__room_of(h, piece)};
    }
    for (int32_t r = 0; r < h->place.size; r++)
        h->gather.lengths[r] = (int64_t)bytes;
    return hc__gather_start(h, a->own_slices, a->slices);
}

/* The same counts on all ranks, which know them. */
static void take_equal_counts(hc__hierarchy *h) {
    for (int32_t i = 0; i < h->batch->npieces; i++)
        for (int32_t r = 0; r < h->place.size; r++)
            *slice_of(h, r, i) = (hc__slice){rows_here(&h->batch->pieces[i]), HC__ROOM_LATER};
}

/* Sets all row counts of a refused piece to 0, so that no rows move. */
static void drop_rows(hc__hierarchy *h, int32_t piece) {
    for (int32_t r = 0; r < h->place.size; r++)
        slice_of(h, r, piece)->rows = 0;
}

/* Refuses pieces whose `out` has the wrong rows on some rank; all ranks know all rows now. */
static void check_rooms(hc__hierarchy *h) {
    for (int32_t i = 0; i < h->batch->npieces; i++) {
        int64_t rows = rows_in_all(h, i);
        for (int32_t r = 0; r < h->place.size; r++) {
            int64_t room = slice_of(h, r, i)->room;
            if (room < 0 || room == rows)
                continue;
            hc__refuse_piece(h, &h->batch->pieces[i], r,
                             &(hc__vote){.status = HC_RESULT_SIZE, .has = room, .needs = rows});
            drop_rows(h, i);
            break;
        }
    }
}

/* Sets the memory for the result of a piece, and gives the caller the counts. */
static int place_piece(hc__hierarchy *h, int32_t i, void **spare, void **out) {
    hc_piece *piece = &h->batch->pieces[i];
    *out = NULL;
    if (piece->status != HC_OK)
        return HC_OK;
    for (int32_t r = 0; piece->recv_rows && r < h->place.size; r++)
        piece->recv_rows[r] = rows_from(h, r, i);
    return hc__place_result(h, piece, rows_in_all(h, i), spare, out);
}

/* 1: a rank may lack memory even for a small result. */
static int is_unsure(const hc__hierarchy *h, int32_t piece) {
    int unsure = 0;
    for (int32_t r = 0; r < h->place.size; r++)
        unsure |= slice_of(h, r, piece)->room == HC__ROOM_UNSURE;
    return unsure;
}

/* The end of the pieces from a->first that fit into one packed gather; from numbers that all ranks know. */
static int32_t find_end(const hc__hierarchy *h, int64_t *total) {
    int32_t end = h->allgather.first;
    *total = rows_in_all(h, end) * hc__row_bytes(h, end);
    if (is_unsure(h, end++))
        return end;
    for (; end < h->batch->npieces && !is_unsure(h, end); end++) {
        int64_t bytes = rows_in_all(h, end) * hc__row_bytes(h, end);
        if (*total + bytes > PACKED_BYTES)
            break;
        *total += bytes;
    }
    return end;
}

static int pack(hc__hierarchy *h, int64_t total) {
    hc__allgather *a = &h->allgather;
    int64_t at = 0;
    a->packed_in = hc_malloc((size_t)h->gather.lengths[h->place.rank] + 1);
    a->packed_out = hc_malloc((size_t)total + 1);
    if (!a->packed_in || !a->packed_out)
        return HC_NO_MEMORY;
    for (int32_t i = a->first; i < a->end; i++) {
        int64_t bytes = bytes_from(h, h->place.rank, i);
        hc_host_copy(a->packed_in + at, h->batch->pieces[i].in, (size_t)bytes);
        at += bytes;
    }
    return HC_OK;
}

static int unpack(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    for (int32_t i = a->first; i < a->end; i++) {
        void *out;
        int status = place_piece(h, i, NULL, &out);
        if (status < 0)
            return status;
        char *to = out;
        int64_t at = 0;
        for (int32_t r = 0; r < h->place.size; r++) {
            int64_t bytes = bytes_from(h, r, i);
            if (out)
                hc_host_copy(to + at, a->packed_out + h->gather.offsets[r], (size_t)bytes);
            h->gather.offsets[r] += bytes; /* where rank r's next piece begins */
            at += bytes;
        }
    }
    hc_free(a->packed_in);
    hc_free(a->packed_out);
    a->packed_in = a->packed_out = NULL;
    return HC_OK;
}

static void set_lengths(hc__hierarchy *h) {
    const hc__allgather *a = &h->allgather;
    for (int32_t r = 0; r < h->place.size; r++) {
        h->gather.lengths[r] = 0;
        for (int32_t i = a->first; i < a->end; i++)
            h->gather.lengths[r] += bytes_from(h, r, i);
    }
}

static int move_piece(hc__hierarchy *h) {
    set_lengths(h);
    return hc__gather_start(h, h->batch->pieces[h->allgather.first].in, h->allgather.out);
}

static int begin_pieces(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    int64_t total;
    a->end = find_end(h, &total);
    if (a->end - a->first > 1) {
        set_lengths(h);
        int status = pack(h, total);
        return status < 0 ? status : hc__gather_start(h, a->packed_in, a->packed_out);
    }
    int status = place_piece(h, a->first, &a->spare, &a->out);
    a->asks = !h->batch->equal_rows && (total > HC__ASKED_BYTES || is_unsure(h, a->first));
    if (a->asks)
        return hc__verdict_start(h, &h->batch->pieces[a->first], status, -1);
    return status < 0 ? status : move_piece(h);
}

static int move_if_agreed(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    a->asks = 0;
    if (hc__verdict_take(h, &h->batch->pieces[a->first])) {
        drop_rows(h, a->first);
        a->out = NULL;
    }
    return move_piece(h);
}

static int allgather_start(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    const size_t n = (size_t)h->batch->npieces;
    *a = (hc__allgather){0};
    a->own_slices = hc_malloc(n * sizeof *a->own_slices + 1);
    a->slices = hc_malloc(n * (size_t)h->place.size * sizeof *a->slices + 1);
    if (!a->own_slices || !a->slices)
        return HC_NO_MEMORY;
    if (!h->batch->equal_rows)
        return begin_counts(h);
    take_equal_counts(h);
    return begin_pieces(h);
}

/* Ends a stage and starts the next. DONE: it was the last. */
static int next_stage(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    int status;
    if (a->asks)
        return move_if_agreed(h);
    if (a->end == 0)
        check_rooms(h);
    if (a->packed_out && (status = unpack(h)) < 0)
        return status;
    a->first = a->end; /* after the counts: 0 */
    return a->first == h->batch->npieces ? HC_DONE : begin_pieces(h);
}

static int allgather_test(hc__hierarchy *h) {
    for (;;) {
        int status = hc__gather_test(h);
        if (status != HC_DONE)
            return status;
        status = next_stage(h);
        if (status != HC_OK)
            return status;
    }
}

static void allgather_end(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    hc_free(a->own_slices);
    hc_free(a->slices);
    hc_free(a->packed_in);
    hc_free(a->packed_out);
    hc_result_free(a->spare);
    hc__verdict_end(h);
    *a = (hc__allgather){0};
}

const hc__operation hc__op_ALLGATHER = {allgather_start, allgather_test, allgather_end};
