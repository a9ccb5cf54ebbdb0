/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall.c - alltoall whose splits only the senders know.
 *
 * First the row counts, unless all ranks know that they are equal: the ranks of a node exchange all their counts,
 * because an exchange reads ranges of a neighbour's stream and must know where they begin; ranks of other nodes get
 * only their own counts, and with them few rows (few_rows.c), among many ranks through carriers (carriers.c). Then,
 * tensor by tensor, an exchange inside the node, and messages to and from the ranks of other nodes for which the rows
 * were too many. Each rank starts with its next neighbour, so that not all ranks send to the same one.
 */
#include "transport/hierarchy/alltoall.h"

#include "transport/hierarchy/gather_bytes.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/results.h"
#include "transport/hierarchy/tags.h"
#include "transport/hierarchy/verdict.h"

#include <stdlib.h>
#include <string.h>

#define FAR_MESSAGES 32 /* in flight at once: the net buffers messages that arrive before their receives */

enum { COUNT, CARRY, ASK, MOVE };

/* The rows of a piece that local rank j sends to set rank r. */
static int64_t shown(const hc__hierarchy *h, int32_t j, int32_t r, int32_t piece) {
    const hc__alltoall *a = &h->alltoall;
    const int64_t pieces = h->batch->npieces;
    const hc__count *its = a->table ? a->table + (int64_t)j * h->place.size * pieces : a->counts;
    return its[r * pieces + piece].rows;
}

/* Sets `counts`. */
static int count_rows(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    const hc_batch *b = h->batch;
    a->counts = hc_calloc((size_t)h->place.size * (size_t)b->npieces + 1, sizeof *a->counts);
    if (!a->counts)
        return HC_NO_MEMORY;
    for (int32_t i = 0; i < b->npieces; i++) {
        const hc_piece *piece = &b->pieces[i];
        int64_t total = 0, room = b->equal_rows ? HC__ROOM_LATER : hc__room_of(h, piece);
        for (int32_t r = 0; piece->in && piece->send_rows && r < h->place.size; r++)
            total += piece->send_rows[r];
        for (int32_t r = 0; r < h->place.size; r++)
            a->counts[(int64_t)r * b->npieces + i] = (hc__count){total ? piece->send_rows[r] : 0, total, room};
    }
    return HC_OK;
}

/* For the counts of other ranks. */
static int make_tables(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    size_t cells = (size_t)h->place.size * (size_t)h->batch->npieces;
    a->incoming = hc_calloc(cells + 1, sizeof *a->incoming);
    a->table = hc_calloc(cells * (size_t)h->place.local_size + 1, sizeof *a->table);
    if (!a->incoming || !a->table)
        return HC_NO_MEMORY;
    memcpy(a->table + cells * (size_t)h->place.local_rank, a->counts, cells * sizeof *a->counts);
    return HC_OK;
}

/* Exchanges the counts of the node's ranks. */
static int exchange_counts(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    int64_t cells = (int64_t)h->place.size * h->batch->npieces, bytes = cells * (int64_t)sizeof *a->counts;
    for (int32_t j = 0; j < h->place.local_size; j++) {
        h->streams.lengths[j] = bytes;
        h->streams.reads[j] = (hc_stream_read){j == h->place.local_rank ? NULL : a->table + j * cells, 0, bytes};
    }
    hc_stream_part own = {a->counts, bytes};
    return h->node->ops->exchange(h->node, &own, 1, h->streams.reads, h->streams.lengths, h->place.local_size - 1);
}

/* Fills my node's part of `incoming` from the table. */
static void read_table(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    int64_t pieces = h->batch->npieces;
    for (int32_t j = 0; j < h->place.local_size; j++) {
        int32_t r = hc__set_rank(&h->place, h->place.node, j);
        const hc__count *here = a->table + ((int64_t)j * h->place.size + h->place.rank) * pieces;
        memcpy(a->incoming + r * pieces, here, (size_t)pieces * sizeof *here);
    }
}

/* The byte offset, in my piece or my result, of the rows to or from rank r. */
static void find_offsets(const hc__hierarchy *h, const hc__count *counts, int64_t row_bytes, int64_t *offsets) {
    offsets[0] = 0;
    for (int32_t r = 0; r < h->place.size; r++)
        offsets[r + 1] = offsets[r] + counts[(int64_t)r * h->batch->npieces + h->alltoall.piece].rows * row_bytes;
}

/* Rank r's counts of the current piece; their total and room are the same on all ranks. */
static const hc__count *counts_of(const hc__hierarchy *h, int32_t r) {
    return &h->alltoall.incoming[(int64_t)r * h->batch->npieces + h->alltoall.piece];
}

static int64_t row_bytes(const hc__hierarchy *h) {
    return hc__row_bytes(h, h->alltoall.piece);
}

/* 1: a rank may lack memory for its result. All ranks compute the same answer. */
static int must_ask(const hc__hierarchy *h) {
    int64_t rows = 0;
    int asks = 0;
    for (int32_t r = 0; r < h->place.size; r++) {
        rows += counts_of(h, r)->total;
        asks |= counts_of(h, r)->room != HC__ROOM_LATER;
    }
    return !h->batch->equal_rows && (asks || rows * row_bytes(h) > HC__ASKED_BYTES);
}

/* The stream of each rank of the node has its rows for the other ranks there. */
static void find_streams(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    const int32_t me = h->place.local_rank, size = h->place.local_size;
    for (int32_t j = 0; j < size; j++) {
        int32_t r = hc__set_rank(&h->place, h->place.node, j);
        int64_t length = 0, mine = 0;
        for (int32_t q = 0; q < size; q++) {
            mine = q == me ? length : mine;
            length += q == j ? 0 : shown(h, j, hc__set_rank(&h->place, h->place.node, q), a->piece) * row_bytes(h);
        }
        h->streams.lengths[j] = length;
        h->streams.reads[j] = (hc_stream_read){j == me ? NULL : a->out + a->to_here[r], mine,
                                               a->to_here[r + 1] - a->to_here[r]};
        h->streams.parts[j] = (hc_stream_part){a->in + a->from_here[r],
                                               j == me ? 0 : a->from_here[r + 1] - a->from_here[r]};
    }
}

static void move_piece(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    int32_t me = h->place.rank;
    find_offsets(h, a->counts, row_bytes(h), a->from_here);
    find_offsets(h, a->incoming, row_bytes(h), a->to_here);
    a->in = h->batch->pieces[a->piece].in;
    a->stage = MOVE;
    a->locally_done = 0;
    a->step = 1;
    a->own = (hc__own_rows){a->out + a->to_here[me], a->in + a->from_here[me], a->to_here[me + 1] - a->to_here[me]};
    find_streams(h);
    hc__few_place(h);
}

static int begin_piece(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    hc_piece *piece = &h->batch->pieces[a->piece];
    int64_t rows = 0, room = counts_of(h, h->place.rank)->room;
    void *out = NULL;
    for (int32_t r = 0; r < h->place.size; r++) {
        int64_t here = counts_of(h, r)->rows;
        if (piece->recv_rows)
            piece->recv_rows[r] = here;
        rows += here;
    }
    piece->out_rows = rows;
    int status = room >= 0 && room != rows ? HC_OK : hc__place_result(h, piece, rows, &a->spare, &out);
    a->out = out;
    if (must_ask(h)) {
        a->stage = ASK;
        return hc__verdict_start(h, piece, status, room);
    }
    if (status >= 0)
        move_piece(h);
    return status;
}

static int exchange_rows(hc__hierarchy *h) {
    return h->node->ops->exchange(h->node, h->streams.parts, h->place.local_size, h->streams.reads, h->streams.lengths,
                                  1);
}

/* ---- to and from the other nodes ------------------------------------------------------------------------- */

static int post_counts(hc__hierarchy *h, int32_t to, int32_t from) {
    int status = hc__is_far(&h->place, from) ? hc__few_receive(h, from) : HC_OK;
    return status >= 0 && hc__is_far(&h->place, to) ? hc__few_send(h, to) : status;
}

static int post_rows(hc__hierarchy *h, int32_t to, int32_t from) {
    hc__alltoall *a = &h->alltoall;
    const int32_t tag = h->between.tags + HC__TAG_ALLTOALL;
    int status = HC_OK;
    if (hc__is_far(&h->place, from) && !a->few.rows[from])
        status = hc__bundle_receive(&a->bundle, h->place.world[from], tag, a->out + a->to_here[from],
                                    a->to_here[from + 1] - a->to_here[from]);
    if (status >= 0 && hc__is_far(&h->place, to) && !a->few.is_sent[to])
        status = hc__bundle_send(&a->bundle, h->place.world[to], tag, a->in + a->from_here[to],
                                 a->from_here[to + 1] - a->from_here[to]);
    return status;
}

/* Step s sends to the rank s after me and receives from the one s before me. All ranks take the steps in this order, a
 * few at a time, so both ends of the earliest unfinished step have posted it: no deadlock. */
static int exchange_far(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    int32_t p = h->place.size;
    int moved = 0;
    while (h->place.nodes > 1 && (a->stage == MOVE || !a->is_carried)) {
        for (; a->step < p && a->bundle.n < FAR_MESSAGES; a->step++) {
            int32_t to = (h->place.rank + a->step) % p, from = (h->place.rank + p - a->step) % p;
            int status = a->stage == COUNT ? post_counts(h, to, from) : post_rows(h, to, from);
            if (status < 0)
                return status;
        }
        int status = hc__bundle_test(&a->bundle);
        if (status != HC_DONE)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        if (a->step == p)
            break;
        moved = 1;
    }
    return HC_DONE;
}

static int alltoall_start(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    a->bundle.net = h->net;
    a->stage = COUNT;
    a->piece = 0;
    a->step = 1;
    a->locally_done = 0;
    a->own = (hc__own_rows){0};
    a->from_here = hc_calloc((size_t)h->place.size + 1, sizeof *a->from_here);
    a->to_here = hc_calloc((size_t)h->place.size + 1, sizeof *a->to_here);
    int status = a->from_here && a->to_here ? count_rows(h) : HC_NO_MEMORY;
    if (status >= 0)
        status = hc__few_start(h);
    if (status < 0 || !h->batch->equal_rows || a->is_carried)
        return status < 0 ? status : make_tables(h);
    a->incoming = a->counts;
    return begin_piece(h);
}

/* Tests both halves of a stage, the node's and the net's. */
static int test_stage(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    int near = HC_DONE;
    if (!a->locally_done) {
        near = a->stage == COUNT ? exchange_counts(h) : exchange_rows(h);
        if (near < 0)
            return near;
        a->locally_done = near == HC_DONE;
    }
    int far = exchange_far(h);
    return far < 0 ? far : hc__own_rows_copy(h, &a->own, near, far);
}

/* Ends a stage and starts the next. DONE: it was the last. */
static int next_stage(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    if (a->stage == COUNT) {
        read_table(h);
        a->stage = a->is_carried ? CARRY : COUNT;
        int status = h->place.nodes == 1 ? HC_OK : a->is_carried ? hc__carriers_start(h) : hc__few_read(h);
        if (status < 0 || a->is_carried)
            return status;
    } else if (a->stage == CARRY) {
        hc__carriers_end(h);
    } else if (a->stage == ASK && !hc__verdict_take(h, &h->batch->pieces[a->piece])) {
        move_piece(h);
        return HC_OK;
    } else {
        hc__few_pass(h);
        a->piece++;
    }
    return a->piece == h->batch->npieces ? HC_DONE : begin_piece(h);
}

static int alltoall_test(hc__hierarchy *h) {
    for (;;) {
        int stage = h->alltoall.stage;
        int status = stage == ASK ? hc__gather_test(h) : stage == CARRY ? hc__carriers_test(h) : test_stage(h);
        if (status != HC_DONE)
            return status;
        status = next_stage(h);
        if (status != HC_OK)
            return status;
    }
}

static void alltoall_end(hc__hierarchy *h) {
    hc__alltoall *a = &h->alltoall;
    if (a->incoming != a->counts)
        hc_free(a->incoming);
    hc_free(a->counts);
    hc_free(a->table);
    hc_free(a->from_here);
    hc_free(a->to_here);
    hc_result_free(a->spare);
    hc__carriers_end(h);
    hc__few_end(h);
    hc__verdict_end(h);
    a->counts = a->incoming = a->table = NULL;
    a->from_here = a->to_here = NULL;
    a->spare = NULL;
}

const hc__operation hc__op_ALLTOALL = {alltoall_start, alltoall_test, alltoall_end};
