/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy_scatter.c - reducescatter: rows are summed, each rank keeps its own.
 *
 * Inside one node the node scatters by itself, tensor by tensor. Between nodes the allreduce pipeline runs, on
 * pieces cut so that only the own rows have somewhere to go: 2(N - 1)/N of the bytes cross the wire where
 * (N - 1)/N could do, and in return uneven nodes, groups and narrow types need no second algorithm.
 */
#include "hierarchy.h"

#include <stdlib.h>

static int64_t rows_of(const hc_piece *piece) {
    return piece->row > 0 ? piece->count / piece->row : 0;
}

/* cut = three pieces of one: the rows before mine, mine, and those after. */
static void cut_piece(const hc__hierarchy *h, const hc_piece *piece, void *out, hc_piece *cut) {
    int64_t size = (int64_t)hc_dtype_size(h->batch->dtype);
    int64_t begin = hc__share_begin(rows_of(piece), h->place.size, h->place.rank) * piece->row;
    int64_t end = hc__share_begin(rows_of(piece), h->place.size, h->place.rank + 1) * piece->row;
    int64_t at[4] = {0, begin, end, piece->count};
    for (int i = 0; i < 3; i++) {
        cut[i] = *piece;
        cut[i].in = piece->in ? (const char *)piece->in + at[i] * size : NULL;
        cut[i].count = at[i + 1] - at[i];
        cut[i].out = i == 1 ? out : NULL;
        cut[i].drop = cut[i].out == NULL;
    }
}

static int start_between_nodes(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    const hc_batch *b = h->batch;
    hc_piece *cut = realloc(p->cut_pieces, 3 * (size_t)b->npieces * sizeof *cut);
    if (!cut)
        return HC_NO_MEMORY;
    p->cut_pieces = cut;
    p->cut = *b;
    p->cut.pieces = cut;
    p->cut.npieces = 3 * b->npieces;
    p->cut.count = 0;
    for (int32_t i = 0; i < b->npieces; i++) {
        hc_piece *piece = &b->pieces[i];
        void *out;
        int64_t rows = hc__share(rows_of(piece), h->place.size, h->place.rank);
        int status = hc__place_result(h, piece, rows, NULL, &out);
        if (status < 0)
            return status;
        cut_piece(h, piece, out, cut + 3 * i);
        p->cut.count += piece->count;
    }
    return hc__pipeline_start(h, &p->cut);
}

/* The next tensor's scatter inside the node; the batch it is given is cut, as above, to one piece. */
static int scatter_next(hc__hierarchy *h) {
    hc__scatter *s = &h->scatter;
    hc_piece *piece = &h->batch->pieces[s->piece];
    if (!s->placed) {
        void *out;
        int64_t rows = rows_of(piece);
        int status = hc__place_result(h, piece, hc__share(rows, h->place.size, h->place.rank), NULL, &out);
        if (status < 0)
            return status;
        s->one = *piece;
        s->one.out = out;
        s->one.drop = out == NULL;
        s->batch = *h->batch;
        s->batch.pieces = &s->one;
        s->batch.npieces = 1;
        s->batch.count = piece->count;
        for (int32_t r = 0; r <= h->place.size; r++)
            h->streams[r] = hc__share_begin(rows, h->place.size, r) * piece->row;
        s->placed = 1;
    }
    int status = h->node->ops->scatter(h->node, &s->batch, h->streams);
    if (status != HC_DONE)
        return status;
    s->placed = 0;
    s->piece++;
    return HC_MOVED;
}

int hc__reducescatter_start(hc__hierarchy *h) {
    h->scatter.piece = 0;
    h->scatter.placed = 0;
    return h->place.nodes > 1 ? start_between_nodes(h) : HC_OK;
}

int hc__reducescatter_test(hc__hierarchy *h) {
    if (h->place.nodes > 1)
        return hc__pipeline_test(h);
    int moved = 0;
    while (h->scatter.piece < h->batch->npieces) {
        int status = scatter_next(h);
        if (status != HC_MOVED || h->scatter.placed)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        moved = 1;
    }
    return HC_DONE;
}
