/* SPDX-License-Identifier: Apache-2.0
 *
 * rooted_rows.c - gather and scatter: rows between the root and every rank; only the sender knows their number.
 *
 * First all ranks exchange their counts of rows and the room of their results, unless they know that these are equal;
 * if one rank lacks memory for a result, all ranks refuse the tensor. Then, tensor by tensor, an exchange moves the
 * rows inside the root's node, and each rank of another node exchanges one message with the root, directly from the
 * caller's memory to the result. So every byte crosses the network once and needs no intermediate memory. The root has
 * a window of messages in flight.
 */
#include "transport/hierarchy/rooted_rows.h"

#include "transport/hierarchy/gather_bytes.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/results.h"
#include "transport/hierarchy/tags.h"
#include "transport/hierarchy/verdict.h"

#include <stdlib.h>
#include <string.h>

#define FAR_MESSAGES 32 /* in flight at the root: the net buffers messages that arrive before their receives */

enum { COUNT, ASK, MOVE };

static int is_root(const hc__hierarchy *h) {
    return h->place.rank == h->batch->root;
}

/* 1: the rank is in the root's node. */
static int is_near(const hc__hierarchy *h, int32_t rank) {
    return h->place.node_of[rank] == h->place.node_of[h->batch->root];
}

/* ---- the counts ---------------------------------------------------------------------------------------------- */

/* The length of a rank's part of the table: the room of its result per piece; then, in a gather, its rows per piece,
 * and in a scatter, for the root only, the rows per rank and piece. */
static int64_t counts_length(const hc__hierarchy *h, int32_t rank) {
    int64_t givings = h->rooted.gathers ? 1 : rank == h->batch->root ? h->place.size : 0;
    return h->batch->npieces * (1 + givings);
}

static int64_t *counts_of(const hc__hierarchy *h, int32_t rank) {
    int64_t before = h->rooted.gathers ? 2 * rank : rank + (rank > h->batch->root ? h->place.size : 0);
    return h->rooted.counts + before * h->batch->npieces;
}

/* The rows between the root and a rank: one count per piece. */
static int64_t *rows_of(const hc__hierarchy *h, int32_t rank) {
    int64_t n = h->batch->npieces;
    return h->rooted.gathers ? counts_of(h, rank) + n : counts_of(h, h->batch->root) + (1 + rank) * n;
}

/* Bytes between the root and a rank, for the current piece. */
static int64_t bytes_of(const hc__hierarchy *h, int32_t rank) {
    return rows_of(h, rank)[h->rooted.piece] * hc__row_bytes(h, h->rooted.piece);
}

static int64_t result_rows(const hc__hierarchy *h, int32_t rank, int32_t piece) {
    int64_t rows = 0;
    if (!h->rooted.gathers)
        return rows_of(h, rank)[piece];
    for (int32_t r = 0; rank == h->batch->root && r < h->place.size; r++)
        rows += rows_of(h, r)[piece];
    return rows;
}

static int has_result(const hc__hierarchy *h, int32_t rank) {
    return hc_operation_gets(h->batch->operation, h->batch->root, rank);
}

/* Refuses pieces whose `out` has the wrong rows on some rank; all ranks know all rows now. */
static void check_rooms(hc__hierarchy *h) {
    for (int32_t i = 0; i < h->batch->npieces; i++) {
        hc_piece *piece = &h->batch->pieces[i];
        for (int32_t r = 0; r < h->place.size && piece->status == HC_OK; r++) {
            int64_t room = counts_of(h, r)[i], rows = result_rows(h, r, i);
            if (room >= 0 && room != rows)
                hc__refuse_piece(h, piece, r, &(hc__vote){.status = HC_RESULT_SIZE, .has = room, .needs = rows});
        }
    }
}

/* 1: a rank may lack memory for its result. All ranks compute the same answer. */
static int must_ask(const hc__hierarchy *h) {
    int asks = 0;
    for (int32_t r = 0; r < h->place.size; r++) {
        int64_t room = counts_of(h, r)[h->rooted.piece];
        int64_t bytes = result_rows(h, r, h->rooted.piece) * hc__row_bytes(h, h->rooted.piece);
        asks |= has_result(h, r) && (room == HC__ROOM_UNSURE || (room < 0 && bytes > HC__ASKED_BYTES));
    }
    return asks && !h->batch->equal_rows;
}

/* ---- inside the root's node ------------------------------------------------------------------------------- */

/* The bytes between the root and local rank j, but for the root's own. */
static int64_t moved_near(const hc__hierarchy *h, int32_t j) {
    int32_t r = hc__set_rank(&h->place, h->place.node, j);
    return r == h->batch->root ? 0 : bytes_of(h, r);
}

/* Every rank's stream goes to the root. */
static int gather_near(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    for (int32_t j = 0; j < h->place.local_size; j++) {
        int32_t r = hc__set_rank(&h->place, h->place.node, j);
        h->streams.lengths[j] = moved_near(h, j);
        h->streams.reads[j] = (hc_stream_read){is_root(h) ? g->at_root + g->offsets[r] : NULL, 0,
                                               h->streams.lengths[j]};
    }
    hc_stream_part own = {g->here, h->streams.lengths[h->place.local_rank]};
    return h->node->ops->exchange(h->node, &own, 1, h->streams.reads, h->streams.lengths, 1);
}

/* The root's stream: the rows of the other ranks of its node. */
static int scatter_near(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    int64_t length = 0, mine = 0; /* mine: where this rank's rows begin */
    int32_t root = 0;
    memset(h->streams.reads, 0, (size_t)h->place.local_size * sizeof *h->streams.reads);
    memset(h->streams.lengths, 0, (size_t)h->place.local_size * sizeof *h->streams.lengths);
    for (int32_t j = 0; j < h->place.local_size; j++) {
        int32_t r = hc__set_rank(&h->place, h->place.node, j);
        int64_t bytes = moved_near(h, j);
        if (is_root(h))
            h->streams.parts[j] = (hc_stream_part){g->at_root + g->offsets[r], bytes};
        root = r == h->batch->root ? j : root;
        mine = j == h->place.local_rank ? length : mine;
        length += bytes;
    }
    h->streams.lengths[root] = length;
    if (!is_root(h))
        h->streams.reads[root] = (hc_stream_read){g->here, mine, bytes_of(h, h->place.rank)};
    return h->node->ops->exchange(h->node, h->streams.parts, is_root(h) ? h->place.local_size : 0, h->streams.reads,
                                  h->streams.lengths, 1);
}

static int move_near(hc__hierarchy *h) {
    return h->rooted.gathers ? gather_near(h) : scatter_near(h);
}

/* ---- between the root and the ranks of other nodes --------------------------------------------------------- */

/* Posts the message between the root and `rank`; both ends call it. */
static int post(hc__hierarchy *h, int32_t rank) {
    hc__rooted *g = &h->rooted;
    int32_t peer = h->place.world[is_root(h) ? rank : h->batch->root], tag = h->between.tags + HC__TAG_ROOTED;
    char *data = is_root(h) ? g->at_root + g->offsets[rank] : g->here;
    if (g->gathers == is_root(h))
        return hc__bundle_receive(&g->bundle, peer, tag, data, bytes_of(h, rank));
    return hc__bundle_send(&g->bundle, peer, tag, data, bytes_of(h, rank));
}

/* The root handles the other ranks in order, starting after itself; a rank of another node has one message. */
static int move_far(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    int32_t p = h->place.size, end = is_root(h) ? p : 2;
    int moved = 0;
    if (h->place.nodes == 1 || (!is_root(h) && is_near(h, h->place.rank)))
        return HC_DONE;
    for (;;) {
        for (; g->step < end && g->bundle.n < FAR_MESSAGES; g->step++) {
            int32_t r = is_root(h) ? (h->place.rank + g->step) % p : h->place.rank;
            int status = is_near(h, r) ? HC_OK : post(h, r);
            if (status < 0)
                return status;
        }
        int status = hc__bundle_test(&g->bundle);
        if (status != HC_DONE)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        if (g->step == end)
            return HC_DONE;
        moved = 1;
    }
}

/* ---- start to end ------------------------------------------------------------------------------------------- */

static void find_offsets(hc__hierarchy *h) {
    int64_t *offsets = h->rooted.offsets;
    offsets[0] = 0;
    for (int32_t r = 0; r < h->place.size; r++)
        offsets[r + 1] = offsets[r] + bytes_of(h, r);
}

static void move_piece(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    char *in = (char *)(uintptr_t)h->batch->pieces[g->piece].in; /* only read */
    find_offsets(h);
    g->at_root = g->gathers ? g->out : in;
    g->here = g->gathers ? in : g->out;
    g->stage = MOVE;
    g->step = 1;
    g->done_near = !is_near(h, h->place.rank);
    g->own.bytes = 0;
    if (is_root(h)) {
        char *mine = g->at_root + g->offsets[h->place.rank];
        g->own = (hc__own_rows){g->gathers ? mine : g->here, g->gathers ? g->here : mine, bytes_of(h, h->place.rank)};
    }
}

/* Sets the memory for the result of the piece; gives a gather's root the counts. */
static int place_piece(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    hc_piece *piece = &h->batch->pieces[g->piece];
    void *out = NULL;
    int status = HC_OK;
    piece->out_rows = 0;
    for (int32_t r = 0; g->gathers && is_root(h) && piece->recv_rows && r < h->place.size; r++)
        piece->recv_rows[r] = rows_of(h, r)[g->piece];
    if (has_result(h, h->place.rank))
        status = hc__place_result(h, piece, result_rows(h, h->place.rank, g->piece), &g->spare, &out);
    g->out = out;
    return status;
}

static int begin_piece(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    int status = place_piece(h);
    if (must_ask(h)) {
        g->stage = ASK;
        return hc__verdict_start(h, &h->batch->pieces[g->piece], status, -1);
    }
    if (status >= 0)
        move_piece(h);
    return status;
}

/* Allocates the table; the caller fills it. */
static int start(hc__hierarchy *h, int gathers) {
    hc__rooted *g = &h->rooted;
    size_t entries = 2 * (size_t)h->place.size * (size_t)h->batch->npieces;
    if (!h->node->ops->exchange)
        return HC_UNSUPPORTED;
    g->gathers = gathers;
    g->stage = COUNT;
    g->piece = -1;
    g->bundle.net = h->net;
    g->counts = hc_calloc(entries + 1, sizeof *g->counts);
    g->offsets = hc_malloc(((size_t)h->place.size + 1) * sizeof *g->offsets);
    return g->counts && g->offsets ? HC_OK : HC_NO_MEMORY;
}

/* Sends this rank's rows, and the rooms of its results. */
static int exchange_counts(hc__hierarchy *h) {
    for (int32_t i = 0; i < h->batch->npieces; i++) {
        int wanted = has_result(h, h->place.rank);
        counts_of(h, h->place.rank)[i] = wanted ? hc__room_of(h, &h->batch->pieces[i]) : HC__ROOM_LATER;
    }
    for (int32_t r = 0; r < h->place.size; r++)
        h->gather.lengths[r] = counts_length(h, r) * (int64_t)sizeof *h->rooted.counts;
    return hc__gather_start(h, counts_of(h, h->place.rank), h->rooted.counts);
}

/* The rows between the root and each rank, which all ranks know. */
static int64_t equal_rows(const hc__hierarchy *h, const hc_piece *piece) {
    if (h->rooted.gathers)
        return piece->in ? piece->rows : 0;
    if (!is_root(h))
        return piece->out_rows;
    return piece->send_rows ? piece->send_rows[0] : piece->rows / h->place.size;
}

static int take_equal_counts(hc__hierarchy *h) {
    for (int32_t i = 0; i < h->batch->npieces; i++)
        for (int32_t r = 0; r < h->place.size; r++) {
            counts_of(h, r)[i] = HC__ROOM_LATER;
            rows_of(h, r)[i] = equal_rows(h, &h->batch->pieces[i]);
        }
    h->rooted.piece = 0;
    return begin_piece(h);
}

static int gather_start(hc__hierarchy *h) {
    int status = start(h, 1);
    if (status < 0 || h->batch->equal_rows)
        return status < 0 ? status : take_equal_counts(h);
    for (int32_t i = 0; i < h->batch->npieces; i++)
        rows_of(h, h->place.rank)[i] = h->batch->pieces[i].in ? h->batch->pieces[i].rows : 0;
    return exchange_counts(h);
}

static int scatter_start(hc__hierarchy *h) {
    int status = start(h, 0);
    if (status < 0 || h->batch->equal_rows)
        return status < 0 ? status : take_equal_counts(h);
    for (int32_t i = 0; is_root(h) && i < h->batch->npieces; i++) {
        const hc_piece *piece = &h->batch->pieces[i];
        for (int32_t r = 0; r < h->place.size; r++)
            rows_of(h, r)[i] = piece->send_rows ? piece->send_rows[r] : hc_share(piece->rows, h->place.size, r);
    }
    return exchange_counts(h);
}

/* Tests both halves of a piece's move, the node's and the net's. */
static int test_move(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    int near = HC_DONE;
    if (!g->done_near) {
        near = move_near(h);
        if (near < 0)
            return near;
        g->done_near = near == HC_DONE;
    }
    int far = move_far(h);
    return far < 0 ? far : hc__own_rows_copy(h, &g->own, near, far);
}

/* Ends a stage and starts the next. DONE: it was the last. */
static int next_stage(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    const hc_batch *b = h->batch;
    if (g->stage == COUNT)
        check_rooms(h);
    if (g->stage == ASK && !hc__verdict_take(h, &h->batch->pieces[g->piece])) {
        move_piece(h);
        return HC_OK;
    }
    do
        g->piece++;
    while (g->piece < b->npieces && b->pieces[g->piece].status != HC_OK);
    return g->piece == b->npieces ? HC_DONE : begin_piece(h);
}

static int rooted_test(hc__hierarchy *h) {
    for (;;) {
        int status = h->rooted.stage == MOVE ? test_move(h) : hc__gather_test(h);
        if (status != HC_DONE)
            return status;
        status = next_stage(h);
        if (status != HC_OK)
            return status;
    }
}

static void rooted_end(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    hc_free(g->counts);
    hc_free(g->offsets);
    hc_result_free(g->spare);
    hc__verdict_end(h);
    g->counts = g->offsets = NULL;
    g->spare = NULL;
}

const hc__operation hc__op_GATHER = {gather_start, rooted_test, rooted_end};
const hc__operation hc__op_SCATTER = {scatter_start, rooted_test, rooted_end};
