/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy_allgather.c - allgather of slices whose first dimension only their owners know.
 *
 * First a gather of the row counts of all tensors of the batch, then one gather a tensor, straight from the
 * caller's memory to the result.
 */
#include "hierarchy.h"

#include <stdlib.h>

enum { COUNT, MOVE };

static int begin_counts(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    const hc_batch *b = h->batch;
    size_t n = (size_t)b->npieces;
    a->own = malloc(n * sizeof *a->own + 1);
    a->rows = malloc(n * (size_t)h->place.size * sizeof *a->rows + 1);
    if (!a->own || !a->rows)
        return HC_NO_MEMORY;
    for (int32_t i = 0; i < b->npieces; i++)
        a->own[i] = b->pieces[i].in && b->pieces[i].row > 0 ? b->pieces[i].count / b->pieces[i].row : 0;
    for (int32_t r = 0; r < h->place.size; r++)
        h->gather.lengths[r] = (int64_t)(n * sizeof *a->own);
    return hc__gather_start(h, a->own, a->rows);
}

static int begin_piece(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    const hc_batch *b = h->batch;
    hc_piece *piece = &b->pieces[a->piece];
    int64_t row_bytes = piece->row * (int64_t)hc_dtype_size(b->dtype), rows = 0;
    void *out;
    for (int32_t r = 0; r < h->place.size; r++) {
        int64_t here = a->rows[(int64_t)r * b->npieces + a->piece];
        h->gather.lengths[r] = here * row_bytes;
        if (piece->recv_rows)
            piece->recv_rows[r] = here;
        rows += here;
    }
    int status = hc__place_result(h, piece, rows, &a->spare, &out);
    return status < 0 ? status : hc__gather_start(h, piece->in, out);
}

int hc__allgather_start(hc__hierarchy *h) {
    h->allgather = (hc__allgather){.stage = COUNT};
    return begin_counts(h);
}

int hc__allgather_test(hc__hierarchy *h) {
    hc__allgather *a = &h->allgather;
    for (;;) {
        int status = hc__gather_test(h);
        if (status != HC_DONE)
            return status;
        a->piece += a->stage == MOVE;
        if (a->piece == h->batch->npieces)
            return HC_DONE;
        status = begin_piece(h);
        if (status < 0)
            return status;
        a->stage = MOVE;
    }
}

void hc__allgather_end(hc__hierarchy *h) {
    free(h->allgather.own);
    free(h->allgather.rows);
    hc_result_free(h->allgather.spare);
    h->allgather = (hc__allgather){.stage = COUNT};
}
