/* SPDX-License-Identifier: Apache-2.0
 *
 * results.c - the memory for the rows that a rank receives: the caller's, or new memory.
 */
#include "transport/hierarchy/results.h"

#include "transport/hierarchy/hierarchy_state.h"

#include <stdio.h>

static void *take_reserve(hc__hierarchy *h, int64_t bytes) {
    void *reserve = NULL;
    for (int64_t i = 0; bytes <= HC__ASKED_BYTES && !reserve && i < h->results.nreserves; i++) {
        reserve = h->results.reserves[i];
        h->results.reserves[i] = NULL;
    }
    return reserve;
}

static int allocate(hc__hierarchy *h, int64_t bytes, void **memory) {
    *memory = hc_result_new((size_t)bytes);
    if (!*memory)
        *memory = take_reserve(h, bytes);
    if (*memory)
        return HC_OK;
    snprintf(h->results.why, sizeof h->results.why, "for its result of %lld bytes", (long long)bytes);
    h->base.text = h->results.why;
    return HC_NO_MEMORY;
}

void hc__expect_result(hc__hierarchy *h, int64_t passing) {
    if (h->node->ops->expect)
        h->node->ops->expect(h->node, passing);
}

int hc__place_result(hc__hierarchy *h, hc_piece *piece, int64_t rows, void **spare, void **out) {
    int64_t bytes = rows * hc_piece_row_bytes(piece, h->batch->dtype);
    hc__expect_result(h, bytes + piece->count * (int64_t)hc_dtype_size(h->batch->dtype));
    piece->out_rows = rows;
    *out = NULL;
    if (piece->out && piece->out_capacity == bytes) {
        *out = piece->out;
        return HC_OK;
    }
    if (!piece->out && !piece->drop) {
        int status = allocate(h, bytes, &piece->out);
        *out = piece->out;
        piece->out_owned = piece->out != NULL;
        return status;
    }
    if (piece->out)
        h->late = HC_RESULT_SIZE;
    if (!spare)
        return HC_OK;
    hc_result_free(*spare);
    int status = allocate(h, bytes, spare);
    *out = *spare;
    return status;
}
