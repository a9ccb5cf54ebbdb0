/* SPDX-License-Identifier: Apache-2.0
 *
 * reducescatter.c - reducescatter: sums rows; each rank gets its share of them.
 *
 * With one node the node scatters tensor by tensor. Between nodes the pipeline of the allreduce runs, but its network
 * stage sends each node only that node's rows, and no byte twice.
 */
#include "transport/hierarchy/reducescatter.h"

#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/pipeline.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/results.h"

#include <stdlib.h>

/* ---- between nodes --------------------------------------------------------------------------------------- */

/* The pipeline's batch is this batch, cut and sorted by node. A part of it belongs to one rank, so that all ranks of a
 * node copy their results out at the same time. If ranks are many, a rank's window of a chunk would be a cache line or
 * two; then a part belongs to one node, piece after piece. A cut of a piece spans the consecutive set ranks of a part;
 * my share is a separate cut, the only one with an output. */
#ifndef RANKS_MANY
#define RANKS_MANY 64
#endif

static int part_is_a_rank(const hc__hierarchy *h) {
    return h->place.size <= RANKS_MANY;
}

static int has_no_scatter(const hc__hierarchy *h) {
    return !h->node->ops->scatter;
}

/* Turns the bounds of all parts into those of the nodes, in place. */
static void nodes_bounds(const hc__hierarchy *h, int64_t *bounds) {
    int are_nodes = has_no_scatter(h) || !part_is_a_rank(h);
    for (int32_t node = 0; !are_nodes && node <= h->place.nodes; node++)
        bounds[node] = bounds[h->place.first[node]];
}

static int launch(hc__hierarchy *h, hc__channel *channel, void *data) {
    hc__pipeline *p = &h->pipeline;
    nodes_bounds(h, p->bounds);
    return hc__reduce_scatter_start(channel, data, p->bounds, p->batch->wire_dtype, hc__net_reduction(p->batch),
                                    hc__net_means(h));
}

/* The end of the cut that begins with the node's j-th rank; at most `end`. */
static int32_t cut_end(const hc__hierarchy *h, int32_t node, int32_t j, int32_t end) {
    int32_t first = hc__set_rank(&h->place, node, j), last = j + 1;
    while (first != h->place.rank && last < end && hc__set_rank(&h->place, node, last) == first + last - j &&
           hc__set_rank(&h->place, node, last) != h->place.rank)
        last++;
    return last;
}

/* The shares of node's ranks j to end - 1 of a piece. */
static hc_piece cut_piece(const hc__hierarchy *h, const hc_piece *piece, int32_t node, int32_t j, int32_t end) {
    int64_t rows = piece->rows;
    int32_t first = hc__set_rank(&h->place, node, j), last = first + end - j;
    int64_t at = hc_share_begin(rows, h->place.size, first) * piece->row;
    hc_piece cut = *piece;
    cut.count = hc_share_begin(rows, h->place.size, last) * piece->row - at;
    if (piece->in)
        cut.in = (const char *)piece->in + at * (int64_t)hc_dtype_size(h->batch->dtype);
    int64_t bytes = cut.count * (int64_t)hc_dtype_size(h->batch->dtype);
    int fits = piece->out_owned || piece->out_capacity == bytes; /* else hc__place_result() has set h->late */
    if (first != h->place.rank || !fits)
        cut.out = NULL;
    cut.drop = cut.out == NULL;
    return cut;
}

/* Appends the shares of the node's ranks j to end - 1, of all pieces, to the batch; without `pieces` only counts
 * them. */
static void cut_part(const hc__hierarchy *h, hc_batch *cut, int32_t node, int32_t j, int32_t end) {
    for (int32_t i = 0; i < h->batch->npieces; i++)
        for (int32_t k = j, next; k < end; k = next) {
            next = cut_end(h, node, k, end);
            hc_piece piece = cut_piece(h, &h->batch->pieces[i], node, k, next);
            if (cut->pieces)
                cut->pieces[cut->npieces] = piece;
            cut->npieces++;
            cut->count += piece.count;
        }
}

/* Cuts the batch into all its parts. */
static hc_parts cut_batch(hc__hierarchy *h, hc_batch *cut, int64_t *bounds) {
    const hc__placement *p = &h->place;
    hc_parts parts = {.bounds = bounds};
    cut->npieces = 0;
    cut->count = 0;
    for (int32_t node = 0; node < p->nodes; node++) {
        int32_t ranks = p->first[node + 1] - p->first[node];
        if (node == p->node)
            parts.own = parts.n;
        for (int32_t j = 0, end; j < ranks; j = end) {
            end = part_is_a_rank(h) ? j + 1 : ranks;
            bounds[parts.n++] = cut->count;
            cut_part(h, cut, node, j, end);
        }
        if (node == p->node)
            parts.own_end = parts.n;
    }
    bounds[parts.n] = cut->count;
    return parts;
}

static int reserve_cuts(hc__pipeline *p, int32_t cuts) {
    if (cuts <= p->room)
        return HC_OK;
    hc_piece *pieces = hc_realloc(p->cut_pieces, 0, (size_t)cuts * sizeof *pieces);
    if (!pieces)
        return HC_NO_MEMORY;
    p->cut_pieces = pieces;
    p->room = cuts;
    return HC_OK;
}

static int place_results(hc__hierarchy *h) {
    int status = HC_OK;
    for (int32_t i = 0; i < h->batch->npieces && status >= 0; i++) {
        hc_piece *piece = &h->batch->pieces[i];
        void *out;
        int64_t rows = hc_share(piece->rows, h->place.size, h->place.rank);
        status = hc__place_result(h, piece, rows, NULL, &out);
    }
    return status;
}

static int start_between_nodes(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    int status = place_results(h);
    if (status < 0)
        return status;
    p->cut = *h->batch;
    p->cut.pieces = NULL;
    cut_batch(h, &p->cut, h->streams.lengths);
    status = reserve_cuts(p, p->cut.npieces);
    if (status < 0)
        return status;
    p->cut.pieces = p->cut_pieces;
    hc_parts parts = cut_batch(h, &p->cut, h->streams.lengths);
    return hc__pipeline_start(h, &p->cut, &parts, launch, HC__SHARD_BYTES, NULL);
}

/* A node without scatter() cuts the batch itself: local rank j has the sums for the j-th ranks of all nodes, which are
 * the parts of its rail. */
static int start_rails(hc__hierarchy *h) {
    hc_parts parts = {.n = h->place.nodes, .own = h->place.node, .own_end = h->place.node + 1};
    int status = place_results(h);
    return status < 0 ? status : hc__pipeline_start(h, h->batch, &parts, launch, HC__SHARD_BYTES, NULL);
}

/* ---- inside a node --------------------------------------------------------------------------------------- */

/* Scatters the next tensor inside the node, as a batch of one piece. */
static int scatter_next(hc__hierarchy *h) {
    hc__node_scatter *s = &h->scatter;
    hc_piece *piece = &h->batch->pieces[s->piece];
    if (!s->placed) {
        void *out;
        int64_t rows = piece->rows;
        int status = hc__place_result(h, piece, hc_share(rows, h->place.size, h->place.rank), NULL, &out);
        if (status < 0)
            return status;
        s->cut = *piece;
        s->cut.out = out;
        s->cut.drop = out == NULL;
        s->batch = *h->batch;
        s->batch.pieces = &s->cut;
        s->batch.npieces = 1;
        s->batch.count = piece->count;
        for (int32_t r = 0; r <= h->place.size; r++)
            h->streams.lengths[r] = hc_share_begin(rows, h->place.size, r) * piece->row;
        s->placed = 1;
    }
    int status = h->node->ops->scatter(h->node, &s->batch, h->streams.lengths);
    if (status != HC_DONE)
        return status;
    s->placed = 0;
    s->piece++;
    return HC_MOVED;
}

static int reducescatter_start(hc__hierarchy *h) {
    h->scatter.piece = 0;
    h->scatter.placed = 0;
    if (has_no_scatter(h))
        return start_rails(h);
    return h->place.nodes > 1 ? start_between_nodes(h) : HC_OK;
}

static int reducescatter_test(hc__hierarchy *h) {
    if (h->place.nodes > 1 || has_no_scatter(h))
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

const hc__operation hc__op_REDUCESCATTER = {reducescatter_start, reducescatter_test, NULL};
