/* SPDX-License-Identifier: Apache-2.0
 *
 * rooted_rows.c - gather and scatter: rows between the root and every rank, as many as their owner says.
 *
 * Row counts first, then tensor by tensor. In the root's node an exchange moves both; a rank of another node exchanges
 * one message each with the root, straight from the caller's memory to the result. So every byte crosses the network
 * once, and no other rank needs memory for it; the root has a window of messages in flight.
 *
 *                gather                                    scatter
 *     count      each rank's rows to the root              the root's table to its node, each rank's rows to it
 *     move       each rank's tensor to its place there     each rank's part of the root's tensor to it
 */
#include "transport/hierarchy/hierarchy_state.h"

#include <stdlib.h>
#include <string.h>

#define FAR_MESSAGES 32 /* in flight at the root: the net must hold what comes before its receive */

enum { COUNT, MOVE };

static int is_root(const hc__hierarchy *h) {
    return h->place.rank == h->batch->root;
}

/* In the root's node. */
static int is_near(const hc__hierarchy *h, int32_t rank) {
    return h->place.node_of[rank] == h->place.node_of[h->batch->root];
}

/* The row counts of a rank, one per piece. */
static int64_t *rows_of(const hc__hierarchy *h, int32_t rank) {
    return h->rooted.rows + (int64_t)rank * h->batch->npieces;
}

/* The same in bytes, for the piece under way. */
static int64_t bytes_of(const hc__hierarchy *h, int32_t rank) {
    const hc_piece *piece = &h->batch->pieces[h->rooted.piece];
    return rows_of(h, rank)[h->rooted.piece] * piece->row * (int64_t)hc_dtype_size(h->batch->dtype);
}

static int64_t count_bytes(const hc__hierarchy *h) {
    return (int64_t)h->batch->npieces * 8;
}

/* ---- inside the root's node ------------------------------------------------------------------------------- */

/* Every rank's stream goes to the root. */
static hc_stream stream_to_root(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    int counting = g->stage == COUNT;
    for (int32_t j = 0; j < h->place.local_size; j++) {
        int32_t r = hc__set_rank(&h->place, h->place.node, j);
        h->lengths[j] = counting ? count_bytes(h) : bytes_of(h, r);
        void *to = counting ? (char *)rows_of(h, r) : g->at_root + g->offsets[r];
        int wanted = r != h->place.rank && (counting || is_root(h)); /* all need the counts: the streams' lengths */
        h->reads[j] = (hc_stream_read){wanted ? to : NULL, 0, h->lengths[j]};
    }
    return (hc_stream){counting ? (void *)rows_of(h, h->place.rank) : g->here, h->lengths[h->place.local_rank]};
}

/* The root's stream: the table of all counts, or its tensor from the node's first rank's rows to its last one's. */
static hc_stream stream_from_root(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    const hc__placement *p = &h->place;
    int32_t me = p->rank, first = hc__set_rank(p, p->node, 0), last = hc__set_rank(p, p->node, p->local_size - 1);
    int counting = g->stage == COUNT;
    int64_t begin = counting ? 0 : g->offsets[first];
    int64_t bytes = counting ? count_bytes(h) * p->size : g->offsets[last + 1] - begin;
    memset(h->reads, 0, (size_t)p->local_size * sizeof *h->reads);
    memset(h->lengths, 0, (size_t)p->local_size * sizeof *h->lengths);
    int32_t root = 0;
    while (hc__set_rank(p, p->node, root) != h->batch->root)
        root++;
    h->lengths[root] = bytes;
    if (!is_root(h))
        h->reads[root] = counting ? (hc_stream_read){g->rows, 0, bytes}
                                  : (hc_stream_read){g->here, g->offsets[me] - begin, bytes_of(h, me)};
    if (!is_root(h))
        return (hc_stream){NULL, 0};
    return (hc_stream){counting ? (char *)g->rows : g->at_root + begin, bytes};
}

static int move_near(hc__hierarchy *h) {
    hc_stream stream = h->rooted.gathers ? stream_to_root(h) : stream_from_root(h);
    return h->node->ops->exchange(h->node, &stream, h->reads, h->lengths);
}

/* ---- between the root and the ranks of other nodes --------------------------------------------------------- */

/* The message of this stage between the root and `rank`; either calls it. */
static int post(hc__hierarchy *h, int32_t rank) {
    hc__rooted *g = &h->rooted;
    int32_t peer = h->place.world[is_root(h) ? rank : h->batch->root];
    int counting = g->stage == COUNT, tag = h->tags + HC__TAG_ROOTED;
    int64_t bytes = counting ? count_bytes(h) : bytes_of(h, rank);
    char *data = counting ? (char *)rows_of(h, rank) : is_root(h) ? g->at_root + g->offsets[rank] : g->here;
    if (g->gathers == is_root(h))
        return hc__bundle_receive(&g->bundle, peer, tag, data, bytes);
    return hc__bundle_send(&g->bundle, peer, tag, data, bytes);
}

/* The root takes all others in their order after it; a rank of another node has one message. */
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

/* The root's result of a gather, and the caller's counts. */
static int place_gathered(hc__hierarchy *h, hc_piece *piece, void **out) {
    int64_t rows = 0;
    *out = NULL;
    if (!is_root(h)) {
        piece->out_rows = 0;
        return HC_OK;
    }
    for (int32_t r = 0; r < h->place.size; r++) {
        int64_t here = rows_of(h, r)[h->rooted.piece];
        if (piece->recv_rows)
            piece->recv_rows[r] = here;
        rows += here;
    }
    return hc__place_result(h, piece, rows, &h->rooted.spare, out);
}

static int begin_piece(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    hc_piece *piece = &h->batch->pieces[g->piece];
    char *in = (char *)(uintptr_t)piece->in; /* only read */
    void *out;
    int64_t own_rows = rows_of(h, h->place.rank)[g->piece];
    int status = g->gathers ? place_gathered(h, piece, &out) : hc__place_result(h, piece, own_rows, &g->spare, &out);
    if (status < 0)
        return status;
    find_offsets(h);
    g->at_root = g->gathers ? out : in;
    g->here = g->gathers ? in : out;
    g->step = 1;
    g->done_near = !is_near(h, h->place.rank);
    int64_t bytes = bytes_of(h, h->place.rank);
    if (is_root(h) && bytes > 0) {
        char *mine = g->at_root + g->offsets[h->place.rank];
        hc_host_copy(g->gathers ? mine : g->here, g->gathers ? g->here : mine, (size_t)bytes);
    }
    return HC_OK;
}

static int start(hc__hierarchy *h, int gathers) {
    hc__rooted *g = &h->rooted;
    size_t cells = (size_t)h->place.size * (size_t)h->batch->npieces;
    if (!h->node->ops->exchange)
        return HC_UNSUPPORTED;
    g->gathers = gathers;
    g->stage = COUNT;
    g->piece = 0;
    g->step = 1;
    g->done_near = !is_near(h, h->place.rank);
    g->bundle.net = h->net;
    g->rows = calloc(cells + 1, sizeof *g->rows);
    g->offsets = malloc(((size_t)h->place.size + 1) * sizeof *g->offsets);
    return g->rows && g->offsets ? HC_OK : HC_NO_MEMORY;
}

static int gather_start(hc__hierarchy *h) {
    int status = start(h, 1);
    for (int32_t i = 0; status >= 0 && i < h->batch->npieces; i++)
        rows_of(h, h->place.rank)[i] = h->batch->pieces[i].in ? h->batch->pieces[i].rows : 0;
    return status;
}

static int scatter_start(hc__hierarchy *h) {
    int status = start(h, 0);
    for (int32_t i = 0; status >= 0 && is_root(h) && i < h->batch->npieces; i++) {
        const hc_piece *piece = &h->batch->pieces[i];
        for (int32_t r = 0; r < h->place.size; r++)
            rows_of(h, r)[i] = piece->send_rows ? piece->send_rows[r] : hc_share(piece->rows, h->place.size, r);
    }
    return status;
}

/* Both halves of a stage, the node's and the net's. */
static int test_stage(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    int near = HC_DONE;
    if (!g->done_near) {
        near = move_near(h);
        if (near < 0)
            return near;
        g->done_near = near == HC_DONE;
    }
    int far = move_far(h);
    if (far < 0 || (near == HC_DONE && far == HC_DONE))
        return far;
    return near == HC_MOVED || far == HC_MOVED ? HC_MOVED : HC_IDLE;
}

static int rooted_test(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    for (;;) {
        int status = test_stage(h);
        if (status != HC_DONE)
            return status;
        g->piece += g->stage == MOVE;
        g->stage = MOVE;
        if (g->piece == h->batch->npieces)
            return HC_DONE;
        status = begin_piece(h);
        if (status < 0)
            return status;
    }
}

static void rooted_end(hc__hierarchy *h) {
    hc__rooted *g = &h->rooted;
    free(g->rows);
    free(g->offsets);
    hc_result_free(g->spare);
    g->rows = g->offsets = NULL;
    g->spare = NULL;
}

const hc__operation hc__op_GATHER = {gather_start, rooted_test, rooted_end};
const hc__operation hc__op_SCATTER = {scatter_start, rooted_test, rooted_end};
