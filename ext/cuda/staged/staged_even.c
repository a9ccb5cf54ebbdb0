/* SPDX-License-Identifier: Apache-2.0
 *
 * staged_even.c - elementwise operations and broadcast through the host. Every rank has memory for all of every tensor.
 * A rank copies down only what it sends, and copies up only what it receives: in a reduce, only the root copies up.
 */
#include "cuda/staged/staged.h"

static int64_t bytes_of(const hc_batch *b, int32_t i) {
    return b->pieces[i].count * (int64_t)hc_dtype_size(b->dtype);
}

int hc__staged_even_begin(hc__staged *s) {
    hc__staged_even *e = &s->even;
    const hc_batch *b = s->batch;
    if (hc_starts_reserve(&e->starts, &e->room, b->npieces) < 0)
        return HC_NO_MEMORY;
    e->starts[0] = 0;
    for (int32_t i = 0; i < b->npieces; i++)
        e->starts[i + 1] = e->starts[i] + hc__aligned(bytes_of(b, i));
    e->chunk = hc__staged_chunk_of(s, e->starts[b->npieces]);
    s->chunks = (e->starts[b->npieces] + e->chunk - 1) / e->chunk;
    return HC_OK;
}

/* Bytes [from, to) of tensor i, which lie at `place`. */
typedef struct span {
    int32_t i;
    int64_t from, to, place;
} span;

/* 1: a broadcast; only the root's values count. */
static int root_gives(const hc_batch *b) {
    return hc_operation_has(b->operation, HC_OP_ROOTED) && !hc_operation_has(b->operation, HC_OP_REDUCES);
}

static int reads(const hc__staged *s, const hc_piece *piece) {
    return piece->in && hc_operation_gives(s->batch->operation, s->batch->root, s->rank);
}

static int writes(const hc__staged *s, const hc_piece *piece) {
    int is_there = root_gives(s->batch) && s->rank == s->batch->root && piece->out == piece->in;
    return piece->out && !is_there;
}

static int add_copies(const hc__staged *s, hc__staged_slot *slot, const span *at) {
    const hc_piece *piece = &s->batch->pieces[at->i];
    int status = HC_OK;
    if (reads(s, piece))
        status = hc__copies_add(&slot->down, (const char *)piece->in + at->from, at->to - at->from, at->place);
    if (status >= 0 && writes(s, piece))
        status = hc__copies_add(&slot->up, (const char *)piece->out + at->from, at->to - at->from, at->place);
    return status;
}

/* The same range as the host's data plane sees it: in place, in pinned memory. */
static void cut_piece(const hc__staged *s, hc__staged_slot *slot, const span *at, hc_piece *cut) {
    const hc_piece *piece = &s->batch->pieces[at->i];
    char *data = slot->stage.host + at->place;
    int root = root_gives(s->batch) && s->rank == s->batch->root;
    *cut = *piece;
    cut->in = reads(s, piece) ? data : NULL;
    cut->out = root || writes(s, piece) ? data : NULL;
    cut->drop = cut->out == NULL;
    cut->count = (at->to - at->from) / (int64_t)hc_dtype_size(s->batch->dtype);
    cut->row = 1;
    cut->out_capacity = at->to - at->from;
    cut->out_owned = 0;
}

int hc__staged_even_cut(hc__staged *s, int64_t chunk, hc__staged_slot *slot) {
    const int64_t *starts = s->even.starts;
    int64_t begin = chunk * s->even.chunk, total = starts[s->batch->npieces];
    int64_t end = begin + s->even.chunk < total ? begin + s->even.chunk : total;
    int32_t pieces = s->batch->npieces, n = 0;
    int32_t first = hc_piece_at(starts, pieces, begin), last = hc_piece_at(starts, pieces, end - 1);
    hc_piece *cut = hc__staged_pieces(slot, last - first + 1);
    int status = cut ? hc__stage_reserve(&slot->stage, end - begin) : HC_NO_MEMORY;
    slot->batch = *s->batch;
    slot->batch.memory = HC_MEMORY_HOST;
    slot->batch.ncalls = 0;
    slot->batch.count = 0;
    for (int32_t i = first; i <= last && status >= 0; i++) {
        int64_t size = bytes_of(s->batch, i), lies = starts[i] > begin ? starts[i] : begin;
        span at = {i, lies - starts[i], end - starts[i] < size ? end - starts[i] : size, lies - begin};
        if (at.to <= at.from)
            continue;
        status = add_copies(s, slot, &at);
        cut_piece(s, slot, &at, &cut[n]);
        slot->batch.count += cut[n++].count;
    }
    slot->batch.pieces = cut;
    slot->batch.npieces = n;
    return status;
}
