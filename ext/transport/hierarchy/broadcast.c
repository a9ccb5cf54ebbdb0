/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast.c - broadcast: in chunks that are scattered and gathered between nodes, or in segments down a tree.
 *
 * Chunks: the pipeline of the allreduce carries them, and each rail carries its part. All nodes but the root's have
 * their bytes from many others, which takes the time of twice the bytes and of few messages. So does a node without an
 * exchange, whatever way the bytes go between nodes.
 *
 * Segments: one rank per node, its representative, takes part in the tree: the root in its node, else the leader. Few
 * bytes go down a binomial tree, very many down a chain, which sends every byte over each link once. All tensors of the
 * batch form one stream. A segment is forwarded as soon as it has arrived, and goes to the node's ranks while the next
 * segments arrive.
 */
#include "transport/hierarchy/broadcast.h"

#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/pipeline.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/results.h"
#include "transport/hierarchy/tags.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT_BYTES ((int64_t)512 << 10)
#define SHARED_SEGMENTS 4 /* per exchange in the node */
#define AHEAD ((int64_t)(sizeof h->broadcast.receives / sizeof *h->broadcast.receives))

/* ---- the stream ---------------------------------------------------------------------------------------- */

static int64_t piece_bytes(const hc__hierarchy *h, int32_t piece) {
    return h->batch->pieces[piece].count * (int64_t)hc_dtype_size(h->batch->dtype);
}

/* Skips pieces without bytes. */
static void skip_empty(const hc__hierarchy *h, hc__cursor *c) {
    while (c->piece < h->batch->npieces && c->offset >= piece_bytes(h, c->piece)) {
        c->piece++;
        c->offset = 0;
    }
}

static hc__cursor beginning(const hc__hierarchy *h, int64_t step) {
    hc__cursor c = {.step = step};
    skip_empty(h, &c);
    return c;
}

/* Bytes of the segment at the cursor, 0 at the end of the stream; *at: its address, or NULL. */
static int64_t segment(const hc__hierarchy *h, const hc__cursor *c, char **at) {
    *at = NULL;
    if (c->piece == h->batch->npieces)
        return 0;
    int64_t rest = piece_bytes(h, c->piece) - c->offset;
    if (h->broadcast.at[c->piece])
        *at = h->broadcast.at[c->piece] + c->offset;
    return rest < c->step ? rest : c->step;
}

static void advance(const hc__hierarchy *h, hc__cursor *c) {
    char *at;
    int64_t bytes = segment(h, c, &at);
    c->offset += bytes;
    c->position += bytes;
    skip_empty(h, c);
}

/* ---- the tree ------------------------------------------------------------------------------------------ */

static int32_t root_node(const hc__hierarchy *h) {
    return h->place.node_of[h->batch->root];
}

/* Set rank of a node's representative. */
static int32_t representative(const hc__hierarchy *h, int32_t node) {
    return node == root_node(h) ? h->batch->root : hc__set_rank(&h->place, node, 0);
}

static int32_t representative_peer(const hc__hierarchy *h, int32_t position) {
    int32_t node = (root_node(h) + position) % h->place.nodes;
    return h->place.world[representative(h, node)];
}

static int64_t message_bytes(const hc__hierarchy *h) {
    return h->net->message_bytes > 0 ? h->net->message_bytes : SEGMENT_BYTES;
}

static void find_neighbours(hc__hierarchy *h, int64_t step) {
    hc__broadcast *b = &h->broadcast;
    int32_t n = h->place.nodes, me = (h->place.node - root_node(h) + n) % n;
    b->parent = -1;
    b->nchildren = 0;
    if (n == 1 || representative(h, h->place.node) != h->place.rank)
        return;
    double segments = (double)b->bytes / (double)step;
    hc__tree f = hc__tree_of(n, me, segments > 1 ? segments : 1);
    if (f.parent >= 0)
        b->parent = representative_peer(h, f.parent);
    for (int32_t i = 0; i < f.nchildren; i++)
        b->children[b->nchildren++] = representative_peer(h, f.children[i]);
}

/* ---- stages -------------------------------------------------------------------------------------------- */

/* Receives the next segments from the parent. */
static int receive(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    hc_net *net = h->net;
    int moved = 0;
    char *at;
    while (b->posted.position < b->bytes && b->nposted < b->narrived + AHEAD) {
        int64_t bytes = segment(h, &b->posted, &at);
        int status = net->ops->irecv(net, b->parent, h->between.tags + HC__TAG_BROADCAST, at, (size_t)bytes,
                                     &b->receives[b->nposted % AHEAD]);
        if (status < 0)
            return status;
        b->nposted++;
        advance(h, &b->posted);
    }
    while (b->narrived < b->nposted) {
        size_t bytes;
        int status = net->ops->test(net, &b->receives[b->narrived % AHEAD], &bytes, NULL);
        if (status != HC_DONE)
            return status < 0 || !moved ? status : HC_MOVED;
        if ((int64_t)bytes != segment(h, &b->arrived, &at))
            return HC_TRANSPORT;
        b->narrived++;
        advance(h, &b->arrived);
        moved = 1;
    }
    return moved ? HC_MOVED : HC_IDLE;
}

/* Sends the segments that have arrived to the children. */
static int forward(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int moved = 0;
    while (b->forwarded.position < b->arrived.position && b->sends.n < (AHEAD + 1) * b->nchildren) {
        char *at;
        int64_t bytes = segment(h, &b->forwarded, &at);
        for (int32_t i = 0; i < b->nchildren; i++) {
            int status = hc__bundle_send(&b->sends, b->children[i], h->between.tags + HC__TAG_BROADCAST, at, bytes);
            if (status < 0)
                return status;
        }
        advance(h, &b->forwarded);
        moved = 1;
    }
    int status = hc__bundle_test(&b->sends);
    return status < 0 || !moved ? status : HC_MOVED;
}

/* The root's result, if it has one apart from its input; else NULL. */
static char *result_of_root(const hc__hierarchy *h, const hc_piece *piece) {
    return h->place.rank == h->batch->root && piece->out != piece->in ? piece->out : NULL;
}

/* Where the root copies the segment of its own result to, after it has shown it, while it is in the cache; or NULL. */
static char *own_result(const hc__hierarchy *h) {
    const hc__cursor *c = &h->broadcast.exchanged;
    char *result = result_of_root(h, &h->batch->pieces[c->piece]);
    return result ? result + c->offset : NULL;
}

/* Exchanges the next bytes from the representative to the node's other ranks. */
static int exchange(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int32_t from = representative(h, h->place.node), local = 0;
    char *at;
    int64_t bytes = segment(h, &b->exchanged, &at);
    if (bytes == 0 || b->exchanged.position + bytes > b->arrived.position)
        return HC_IDLE;
    while (hc__set_rank(&h->place, h->place.node, local) != from)
        local++;
    int represents = from == h->place.rank;
    memset(h->streams.reads, 0, (size_t)h->place.local_size * sizeof *h->streams.reads);
    memset(h->streams.lengths, 0, (size_t)h->place.local_size * sizeof *h->streams.lengths);
    h->streams.lengths[local] = bytes;
    char *to = represents ? own_result(h) : at;
    if (to)
        h->streams.reads[local] = (hc_stream_read){to, 0, bytes};
    hc_stream_part own = {represents ? at : NULL, represents ? bytes : 0};
    int status = h->node->ops->exchange(h->node, &own, 1, h->streams.reads, h->streams.lengths,
                                        h->place.local_size - 1);
    if (status != HC_DONE)
        return status;
    advance(h, &b->exchanged);
    return HC_MOVED;
}

/* ---- start to end ---------------------------------------------------------------------------------------- */

/* Finds the memory of each piece. */
static int find_places(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int represents = representative(h, h->place.node) == h->place.rank;
    b->bytes = 0;
    for (int32_t i = 0; i < h->batch->npieces; i++)
        b->bytes += piece_bytes(h, i);
    hc__expect_result(h, 2 * b->bytes);
    b->at = hc_calloc((size_t)h->batch->npieces + 1, sizeof *b->at);
    if (!b->at)
        return HC_NO_MEMORY;
    for (int32_t i = 0; i < h->batch->npieces; i++) {
        hc_piece *piece = &h->batch->pieces[i];
        b->at[i] = piece->out;
        if (h->place.rank == h->batch->root) {
            b->at[i] = (char *)(uintptr_t)piece->in; /* only read */
            if (h->place.local_size == 1 && result_of_root(h, piece))
                hc_node_copy_result(h->node, piece->out, piece->in, (size_t)piece_bytes(h, i));
        } else if (!piece->out && represents) { /* joined: needs no result, but must forward the pieces */
            b->spare = b->spare ? b->spare : hc_work_new((size_t)b->bytes);
            if (!b->spare)
                return HC_NO_MEMORY;
            b->at[i] = i ? b->at[i - 1] + piece_bytes(h, i - 1) : b->spare;
        }
    }
    return HC_OK;
}

static int has_no_exchange(const hc__hierarchy *h) {
    return !h->node->ops->exchange;
}

static int launch(hc__hierarchy *h, hc__channel *channel, void *data) {
    const hc__pipeline *p = &h->pipeline;
    hc__way way = {root_node(h), p->nchunks, p->stages};
    return hc__net_broadcast_start(channel, data, p->bounds[1], p->batch->dtype, way);
}

/* Chooses the way between nodes, from numbers that are equal on all ranks. The rails of a node may share a link, so all
 * its bytes count. */
static const hc__stages *choose_stages(const hc__hierarchy *h) {
    int64_t bytes = h->batch->count * (int64_t)hc_dtype_size(h->batch->dtype);
    return h->place.nodes > 1 ? hc__broadcast_stages(&h->between.model, &h->between.splits, bytes, message_bytes(h))
                              : NULL;
}

static int broadcast_start(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    const hc__stages *stages = choose_stages(h);
    b->in_chunks = stages || has_no_exchange(h);
    if (b->in_chunks)
        return hc__pipeline_start(h, h->batch, NULL, launch, HC__SHARD_BYTES, stages);
    int status = find_places(h);
    if (status < 0)
        return status;
    int64_t step = INT64_MAX;
    if (h->place.nodes > 1)
        step = hc__tree_segment(&h->between.model, h->place.nodes, b->bytes, message_bytes(h));
    find_neighbours(h, step);
    b->sends.net = h->net;
    b->nposted = b->narrived = 0;
    b->posted = b->arrived = b->forwarded = beginning(h, step);
    b->exchanged = beginning(h, h->place.nodes > 1 ? SHARED_SEGMENTS * step : INT64_MAX);
    if (b->parent < 0) /* only the representatives of other nodes receive */
        b->posted.position = b->arrived.position = b->bytes;
    if (b->nchildren == 0)
        b->forwarded.position = b->bytes;
    if (h->place.local_size == 1)
        b->exchanged.position = b->bytes;
    return HC_OK;
}

static int broadcast_test(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    if (b->in_chunks)
        return hc__pipeline_test(h);
    int (*const stages[])(hc__hierarchy *) = {receive, forward, exchange};
    int moved = 0, again = 1;
    while (again) {
        again = 0;
        for (int i = h->place.nodes > 1 ? 0 : 2; i < 3; i++) {
            int status = stages[i](h);
            if (status < 0)
                return status;
            again |= status == HC_MOVED;
        }
        moved |= again;
        if (b->exchanged.position == b->bytes && b->forwarded.position == b->bytes && b->arrived.position == b->bytes &&
            b->sends.n == 0)
            return HC_DONE;
    }
    return moved ? HC_MOVED : HC_IDLE;
}

void hc__broadcast_abandon(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    for (int64_t i = 0; i < AHEAD; i++)
        if (b->receives[i] && h->net->ops->cancel(h->net, &b->receives[i]) != HC_OK)
            b->sends.stuck = 1;
    hc__bundle_cancel(&b->sends);
}

static void broadcast_end(hc__hierarchy *h) {
    hc_result_free(h->broadcast.spare);
    hc_free(h->broadcast.at);
    h->broadcast.spare = NULL;
    h->broadcast.at = NULL;
}

const hc__operation hc__op_BROADCAST = {broadcast_start, broadcast_test, broadcast_end};
