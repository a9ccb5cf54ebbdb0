/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h - cuts a reducescatter into windows. A share is all that one rank gets. A window is the same range of all
 * shares, so rank r's part of a window belongs to rank r, whatever tensors and rows it holds. The layout is that of
 * rank 0, whose share is the longest: tensors one after another; where rows do not divide evenly, the other shares have
 * gaps.
 */
#pragma once

#include "cuda/staged/copies.h"

typedef struct hc__shares {
    const hc_batch *batch;
    int32_t size;    /* ranks */
    int64_t *starts; /* npieces + 1: bytes of a share before each tensor, all at multiples of a unit */
    int32_t room;
} hc__shares;

static inline int64_t hc__share_row(const hc__shares *s, int32_t i) {
    return hc_piece_row_bytes(&s->batch->pieces[i], s->batch->dtype);
}
/* Bytes that rank r gets of tensor i, and the bytes of the tensor before them. */
static inline int64_t hc__share_bytes(const hc__shares *s, int32_t i, int32_t r) {
    return hc_share(s->batch->pieces[i].rows, s->size, r) * hc__share_row(s, i);
}
static inline int64_t hc__share_before(const hc__shares *s, int32_t i, int32_t r) {
    return hc_share_begin(s->batch->pieces[i].rows, s->size, r) * hc__share_row(s, i);
}
/* The memory for rank r's result of tensor i; NULL: no rank needs it, or it has the wrong size. */
static inline char *hc__share_out(const hc__shares *s, int32_t i, int32_t r) {
    const hc_piece *piece = &s->batch->pieces[i];
    int fits = piece->out_owned || piece->out_capacity == hc__share_bytes(s, i, r);
    return fits ? piece->out : NULL;
}

static inline int hc__shares_lay(hc__shares *s, const hc_batch *batch, int32_t size, int64_t unit) {
    s->batch = batch;
    s->size = size;
    if (hc_starts_reserve(&s->starts, &s->room, batch->npieces) < 0)
        return HC_NO_MEMORY;
    s->starts[0] = 0;
    for (int32_t i = 0; i < batch->npieces; i++)
        s->starts[i + 1] = s->starts[i] + (hc__share_bytes(s, i, 0) + unit - 1) / unit * unit;
    return HC_OK;
}
