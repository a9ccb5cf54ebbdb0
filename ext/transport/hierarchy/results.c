/* SPDX-License-Identifier: Apache-2.0
 *
 * results.c - where the rows go that a rank receives: memory of the caller, or new memory.
 */
#include "transport/hierarchy/hierarchy_state.h"

int hc__place_result(hc__hierarchy *h, hc_piece *piece, int64_t rows, void **spare, void **out) {
    int64_t bytes = rows * piece->row * (int64_t)hc_dtype_size(h->batch->dtype);
    piece->out_rows = rows;
    *out = NULL;
    if (piece->out && piece->out_capacity == bytes) {
        *out = piece->out;
        return HC_OK;
    }
    if (!piece->out && !piece->drop) {
        *out = piece->out = hc_result_new((size_t)bytes);
        piece->out_owned = 1;
        return piece->out ? HC_OK : HC_NO_MEMORY;
    }
    if (piece->out)
        h->late = HC_RESULT_SIZE;
    if (!spare)
        return HC_OK;
    hc_result_free(*spare);
    *out = *spare = hc_result_new((size_t)bytes);
    return *spare ? HC_OK : HC_NO_MEMORY;
}
