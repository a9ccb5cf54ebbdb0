/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h - a reducescatter as its ranks' shares: a window of it is the same range of all of them, so that rank r's
 * part of a window is what rank r gets of it, whatever rows and tensors it has. All tensors are laid one after another
 * as in the longest share, that of rank 0; where the rows of a tensor do not come out even, the other shares have gaps.
 */
#ifndef HC_SHARES_H
#define HC_SHARES_H

#include "cuda/staged/copies.h"

typedef struct hc__shares {
    const hc_batch *batch;
    int32_t size;    /* ranks */
    int64_t *starts; /* npieces + 1: bytes of a share before each tensor, all at multiples of a unit */
    int32_t room;
} hc__shares;

static inline int64_t hc__share_row(const hc__shares *s, int32_t i) {
    return s->batch->pieces[i].row * (int64_t)hc_dtype_size(s->batch->dtype);
}
/* Bytes that rank r gets of tensor i, and the bytes of the tensor before them. */
static inline int64_t hc__share_bytes(const hc__shares *s, int32_t i, int32_t r) {
    return hc_share(s->batch->pieces[i].rows, s->size, r) * hc__share_row(s, i);
}
static inline int64_t hc__share_before(const hc__shares *s, int32_t i, int32_t r) {
    return hc_share_begin(s->batch->pieces[i].rows, s->size, r) * hc__share_row(s, i);
}
/* Where rank r's result of tensor i goes; NULL where nobody wants it, or the room has another size. */
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

#endif
