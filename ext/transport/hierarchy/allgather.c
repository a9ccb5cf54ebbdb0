/* SPDX-License-Identifier: Apache-2.0
 *
 * allgather.c - allgather of slices whose first dimension only their owners know.
 *
 * First a gather of the row counts of all tensors of the batch. Then one gather a tensor, straight from the
 * caller's memory to the result; but small tensors travel packed together.
 */
#include "transport/hierarchy/hierarchy_state.h"

#include <stdlib.h>

#define PACKED_BYTES ((int64_t)256 << 10) /* results that are gathered together */

static int64_t rows_from(const hc__hierarchy *h, int32_t rank, int32_t piece) {
    return h->allgather.rows[(int64_t)rank * h->batch->npieces + piece];
}

static int64_t row_bytes(const hc__hierarchy *h, int32_t piece) {
    return h->batch->pieces[piece].row * (int64_t)hc_dtype_size(h->batch->dtype);
}

static int64_t bytes_from(const hc__hierarchy *h, int32_t rank, int32_t piece) {
    return rows_from(h, rank, piece) * row_bytes(h, piece);
}

static int64_t rows_in_all(const hc__hierarchy *h, int32_t piece) {
    int64_t rows = 0;
    for (int32_t r = 0; r < h->place.size; r++)
        rows += rows_from(h, r, piece);
    return rows;
}

static int begin_counts(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    const hc_batch *b = h->batch;
    size_t n = (size_t)b->npieces;
    a->own_rows = malloc(n * sizeof *a->own_rows + 1);
    a->rows = malloc(n * (size_t)h->place.size * sizeof *a->rows + 1);
    if (!a->own_rows || !a->rows)
        return HC_NO_MEMORY;
    for (int32_t i = 0; i < b->npieces; i++)
        a->own_rows[i] = b->pieces[i].in ? b->pieces[i].rows : 0;
    for (int32_t r = 0; r < h->place.size; r++)
        h->gather.lengths[r] = (int64_t)(n * sizeof *a->own_rows);
    return hc__gather_start(h, a->own_rows, a->rows);
}

/* The result of a piece gets its place, its caller the counts. */
static int place_piece(hc__hierarchy *h, int32_t i, void **spare, void **out) {
    hc_piece *piece = &h->batch->pieces[i];
    for (int32_t r = 0; piece->recv_rows && r < h->place.size; r++)
        piece->recv_rows[r] = rows_from(h, r, i);
    return hc__place_result(h, piece, rows_in_all(h, i), spare, out);
}

/* How far the pieces from a->first on fit into one packed gather, by numbers that all ranks know. */
static int32_t find_end(const hc__hierarchy *h, int64_t *total) {
    int32_t end = h->allgather.first;
    *total = 0;
    do
        *total += rows_in_all(h, end) * row_bytes(h, end);
    while (++end < h->batch->npieces && *total + rows_in_all(h, end) * row_bytes(h, end) <= PACKED_BYTES);
    return end;
}

static int pack(hc__hierarchy *h, int64_t total) {
    hc__allgather *a = &h->allgather;
    int64_t at = 0;
    a->packed_in = malloc((size_t)h->gather.lengths[h->place.rank] + 1);
    a->packed_out = malloc((size_t)total + 1);
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
    free(a->packed_in);
    free(a->packed_out);
    a->packed_in = a->packed_out = NULL;
    return HC_OK;
}

static int begin_pieces(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    int64_t total;
    a->end = find_end(h, &total);
    for (int32_t r = 0; r < h->place.size; r++) {
        h->gather.lengths[r] = 0;
        for (int32_t i = a->first; i < a->end; i++)
            h->gather.lengths[r] += bytes_from(h, r, i);
    }
    if (a->end - a->first > 1) {
        int status = pack(h, total);
        return status < 0 ? status : hc__gather_start(h, a->packed_in, a->packed_out);
    }
    void *out;
    int status = place_piece(h, a->first, &a->spare, &out);
    return status < 0 ? status : hc__gather_start(h, h->batch->pieces[a->first].in, out);
}

static int allgather_start(hc__hierarchy *h) {
    h->allgather = (hc__allgather){0};
    return begin_counts(h);
}

static int allgather_test(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    for (;;) {
        int status = hc__gather_test(h);
        if (status != HC_DONE)
            return status;
        if (a->packed_out && (status = unpack(h)) < 0)
            return status;
        a->first = a->end; /* after the counts: 0 */
        if (a->first == h->batch->npieces)
            return HC_DONE;
        status = begin_pieces(h);
        if (status < 0)
            return status;
    }
}

static void allgather_end(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    free(a->own_rows);
    free(a->rows);
    free(a->packed_in);
    free(a->packed_out);
    hc_result_free(a->spare);
    *a = (hc__allgather){0};
}

const hc__operation hc__op_ALLGATHER = {allgather_start, allgather_test, allgather_end};
