/* SPDX-License-Identifier: Apache-2.0
 *
 * staged_scatter.c - reducescatter through the host: each chunk is a window of all shares, and itself a reducescatter
 * of the host's data plane.
 *
 * The host's operation gives each rank rows of a tensor, so a window becomes a tensor of one row per rank. Where the
 * rows cannot be divided evenly, the first ranks have one row more: a second tensor has a row for each of these ranks.
 */
#include "cuda/staged/staged.h"

#include <stdlib.h>

#define LEAST_BYTES ((int64_t)4096) /* of a share in a chunk, however many ranks there are */

int hc__staged_scatter_begin(hc__staged *s) {
    hc__staged_scatter *t = &s->scatter;
    const hc_batch *b = s->batch;
    int status = hc__shares_lay(&t->shares, b, s->size, HC_PACK_UNIT);
    for (int32_t i = 0; i < b->npieces && status >= 0; i++)
        status = hc__place_on_device(s->device, b, &b->pieces[i], hc_share(b->pieces[i].rows, s->size, s->rank),
                                     &s->late, s->text);
    if (status < 0)
        return status;
    int64_t share = t->shares.starts[b->npieces];
    t->each = hc__staged_chunk_of(s, share * s->size) / s->size / HC_PACK_UNIT * HC_PACK_UNIT;
    t->each = t->each < LEAST_BYTES ? LEAST_BYTES : t->each;
    s->chunks = (share + t->each - 1) / t->each;
    return HC_OK;
}

/* Bytes [from, to) of tensor i in the shares of the first `ranks` ranks: their rows at `place`, my result at `out`. */
typedef struct band {
    int32_t i, ranks;
    int64_t from, to, place, out;
} band;

static int64_t band_row(const band *d) {
    return hc__aligned(d->to - d->from);
}

static int add_copies(const hc__staged *s, hc__staged_slot *slot, const band *d) {
    const hc__shares *shares = &s->scatter.shares;
    const char *in = s->batch->pieces[d->i].in, *out = hc__share_out(shares, d->i, s->rank);
    int status = HC_OK;
    for (int32_t r = 0; r < d->ranks && in && status >= 0; r++)
        status = hc__copies_add(&slot->down, in + hc__share_before(shares, d->i, r) + d->from, d->to - d->from,
                                d->place + r * band_row(d));
    if (out && s->rank < d->ranks && status >= 0)
        status = hc__copies_add(&slot->up, out + d->from, d->to - d->from, d->out);
    return status;
}

/* The padding of a row to 16 bytes is summed, too, but not used. set_addresses() completes the piece when the
 * stage has its size. */
static hc_piece cut_band(const hc__staged *s, const band *d) {
    const hc_piece *piece = &s->batch->pieces[d->i];
    int64_t row = band_row(d) / (int64_t)hc_dtype_size(s->batch->dtype);
    int wanted = hc__share_out(&s->scatter.shares, d->i, s->rank) != NULL;
    return (hc_piece){.count = d->ranks * row,
                      .row = row,
                      .rows = d->ranks,
                      .scale = piece->scale,
                      .drop = (uint8_t)!wanted,
                      .out_capacity = s->rank < d->ranks ? band_row(d) : 0};
}

/* The one or two bands of a tensor in a window: the rows of all ranks, and the extra row of the first ranks. */
static int32_t find_bands(const hc__staged *s, int32_t i, int64_t from, int64_t to, band bands[2]) {
    const hc__shares *shares = &s->scatter.shares;
    int64_t even = hc__share_bytes(shares, i, s->size - 1), most = hc__share_bytes(shares, i, 0);
    int32_t more = (int32_t)(s->batch->pieces[i].rows % s->size), n = 0;
    int64_t end = to < even ? to : even, begin = from > even ? from : even;
    to = to < most ? to : most;
    if (from < end)
        bands[n++] = (band){.i = i, .ranks = s->size, .from = from, .to = end};
    if (begin < to)
        bands[n++] = (band){.i = i, .ranks = more, .from = begin, .to = to};
    return n;
}

static void set_addresses(hc__staged *s, hc__staged_slot *slot, hc_piece *cut, const band *bands, int32_t n) {
    for (int32_t k = 0; k < n; k++) {
        cut[k].in = s->batch->pieces[bands[k].i].in ? slot->stage.host + bands[k].place : NULL;
        cut[k].out = cut[k].drop ? NULL : slot->stage.host + bands[k].out;
    }
}

/* Cuts all bands of the window [from, to); returns their number or a status. *end: bytes of the stage. */
static int32_t cut_window(hc__staged *s, hc__staged_slot *slot, int64_t from, int64_t to, band *bands, int64_t *end) {
    const int64_t *starts = s->scatter.shares.starts;
    int32_t pieces = s->batch->npieces, n = 0;
    *end = 0;
    for (int32_t i = hc_piece_at(starts, pieces, from); i < pieces && starts[i] < to; i++) {
        int64_t first = from > starts[i] ? from - starts[i] : 0;
        for (int32_t left = find_bands(s, i, first, to - starts[i], &bands[n]); left > 0; left--, n++) {
            bands[n].place = *end;
            bands[n].out = *end + bands[n].ranks * band_row(&bands[n]);
            *end = bands[n].out + band_row(&bands[n]);
            int status = add_copies(s, slot, &bands[n]);
            if (status < 0)
                return status;
        }
    }
    return n;
}

int hc__staged_scatter_cut(hc__staged *s, int64_t chunk, hc__staged_slot *slot) {
    const int64_t *starts = s->scatter.shares.starts;
    int64_t from = chunk * s->scatter.each, all = starts[s->batch->npieces], end;
    int64_t to = from + s->scatter.each < all ? from + s->scatter.each : all;
    band *bands = calloc(2 * (size_t)s->batch->npieces, sizeof *bands);
    hc_piece *cut = hc__staged_pieces(slot, 2 * s->batch->npieces);
    int32_t n = bands && cut ? cut_window(s, slot, from, to, bands, &end) : HC_NO_MEMORY;
    int status = n < 0 ? n : hc__stage_reserve(&slot->stage, end);
    slot->batch = *s->batch;
    slot->batch.memory = HC_MEMORY_HOST;
    slot->batch.ncalls = 0;
    slot->batch.count = 0;
    for (int32_t k = 0; k < n && status >= 0; k++) {
        cut[k] = cut_band(s, &bands[k]);
        slot->batch.count += cut[k].count;
    }
    if (status >= 0)
        set_addresses(s, slot, cut, bands, n);
    slot->batch.pieces = cut;
    slot->batch.npieces = n;
    free(bands);
    return status;
}

void hc__staged_scatter_end(hc__staged *s) {
    hc_free(s->scatter.shares.starts);
}
