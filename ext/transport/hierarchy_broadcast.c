/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy_broadcast.c - the root's bytes to all: a tree across nodes in segments, and each node's exchange.
 *
 * One rank a node, its speaker (the root itself in the root's node, else the leader), takes part in the tree.
 * Few bytes go down a binomial tree, many down a chain, which sends every byte over each link once; a segment
 * is passed on as soon as it is here, and given to the node's ranks while the next ones arrive.
 */
#include "hierarchy.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT_BYTES ((int64_t)512 << 10)
#define AHEAD ((int64_t)(sizeof h->broadcast.receives / sizeof *h->broadcast.receives))

static int32_t root_node(const hc__hierarchy *h) {
    return h->place.node_of[h->batch->root];
}

/* Set rank of a node's speaker. */
static int32_t speaker(const hc__hierarchy *h, int32_t node) {
    return node == root_node(h) ? h->batch->root : hc__set_rank(&h->place, node, 0);
}

static int32_t speaker_peer(const hc__hierarchy *h, int32_t position) {
    int32_t node = (root_node(h) + position) % h->place.nodes;
    return h->place.world[speaker(h, node)];
}

/* A segment is one message, so that it can be passed on as it comes. */
static int64_t segment_length(const hc__hierarchy *h) {
    return h->net && h->net->message_bytes > 0 ? h->net->message_bytes : SEGMENT_BYTES;
}

/* Seconds down a chain of n, in segments, against a binomial tree. */
static int chain_is_cheaper(const hc__hierarchy *h, int64_t bytes) {
    int32_t n = h->place.nodes;
    int levels = 0;
    while (((int32_t)1 << levels) < n)
        levels++;
    double segment = (double)(bytes < segment_length(h) ? bytes : segment_length(h));
    double step = h->model.alpha + segment * h->model.beta;
    double segments = segment > 0 ? (double)bytes / segment : 1;
    return (n - 2 + segments) * step < levels * (segments + levels - 1) * step;
}

static void find_family(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int32_t n = h->place.nodes, me = (h->place.node - root_node(h) + n) % n;
    b->parent = -1;
    b->nchildren = 0;
    if (n == 1 || speaker(h, h->place.node) != h->place.rank)
        return;
    if (chain_is_cheaper(h, b->bytes)) {
        b->parent = me > 0 ? speaker_peer(h, me - 1) : -1;
        if (me + 1 < n)
            b->children[b->nchildren++] = speaker_peer(h, me + 1);
        return;
    }
    int32_t low = 1; /* below my lowest set bit: my children, the farthest first */
    while (low < n && !(me & low))
        low *= 2;
    if (me > 0)
        b->parent = speaker_peer(h, me - low);
    for (low /= 2; low > 0; low /= 2)
        if (me + low < n)
            b->children[b->nchildren++] = speaker_peer(h, me + low);
}

static int begin_piece(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    hc_piece *piece = &h->batch->pieces[b->piece];
    b->bytes = piece->count * (int64_t)hc_dtype_size(h->batch->dtype);
    b->segment = h->place.nodes > 1 ? segment_length(h) : b->bytes;
    b->nsegments = b->bytes == 0 ? 0 : (b->bytes + b->segment - 1) / b->segment;
    b->posted = b->arrived = b->forwarded = b->exchanged = 0;
    find_family(h);
    hc_result_free(b->spare);
    b->spare = NULL;
    b->at = piece->out;
    if (h->place.rank == h->batch->root) {
        b->at = (char *)(uintptr_t)piece->in; /* only read */
        if (piece->out && piece->out != piece->in)
            h->memory->copy(piece->out, piece->in, (size_t)b->bytes);
    } else if (!piece->out && b->parent >= 0) {
        b->at = b->spare = hc_result_new((size_t)b->bytes);
        if (!b->at)
            return HC_NO_MEMORY;
    }
    if (b->parent < 0)
        b->posted = b->arrived = b->nsegments;
    return HC_OK;
}

static int64_t segment_bytes(const hc__broadcast *b, int64_t i) {
    return i + 1 < b->nsegments ? b->segment : b->bytes - i * b->segment;
}

static int receive(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int moved = 0;
    for (; b->posted < b->nsegments && b->posted < b->arrived + AHEAD; b->posted++) {
        int status = h->net->ops->irecv(h->net, b->parent, h->tags + HC__TAG_BROADCAST,
                                        b->at + b->posted * b->segment, (size_t)segment_bytes(b, b->posted),
                                        &b->receives[b->posted % AHEAD]);
        if (status < 0)
            return status;
    }
    while (b->arrived < b->posted) {
        size_t bytes;
        int status = h->net->ops->test(h->net, &b->receives[b->arrived % AHEAD], &bytes, NULL);
        if (status != HC_DONE)
            return moved ? HC_MOVED : status;
        if ((int64_t)bytes != segment_bytes(b, b->arrived))
            return HC_TRANSPORT;
        b->arrived++;
        moved = 1;
    }
    return moved ? HC_MOVED : HC_IDLE;
}

static int forward(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int moved = 0;
    for (; b->nchildren > 0 && b->forwarded < b->arrived && b->sends.n < (AHEAD + 1) * b->nchildren;
         b->forwarded++) {
        for (int32_t i = 0; i < b->nchildren; i++) {
            int status = hc__bundle_send(&b->sends, b->children[i], h->tags + HC__TAG_BROADCAST,
                                         b->at + b->forwarded * b->segment, segment_bytes(b, b->forwarded));
            if (status < 0)
                return status;
        }
        moved = 1;
    }
    int status = hc__bundle_test(&b->sends);
    return status < 0 || !moved ? status : HC_MOVED;
}

/* The next segment from the speaker to the node's other ranks. */
static int exchange(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int32_t from = speaker(h, h->place.node), local = 0;
    if (b->exchanged == b->arrived || h->place.local_size == 1) {
        b->exchanged = h->place.local_size == 1 ? b->arrived : b->exchanged;
        return HC_IDLE;
    }
    while (hc__set_rank(&h->place, h->place.node, local) != from)
        local++;
    int speaks = from == h->place.rank;
    char *at = b->at ? b->at + b->exchanged * b->segment : NULL;
    int64_t bytes = segment_bytes(b, b->exchanged);
    memset(h->wants, 0, (size_t)h->place.local_size * sizeof *h->wants);
    memset(h->streams, 0, (size_t)h->place.local_size * sizeof *h->streams);
    h->streams[local] = bytes;
    if (!speaks && at)
        h->wants[local] = (hc_want){at, 0, bytes};
    hc_offer offer = {speaks ? at : NULL, speaks ? bytes : 0};
    int status = h->node->ops->exchange(h->node, &offer, h->wants, h->streams);
    if (status != HC_DONE)
        return status;
    b->exchanged++;
    return HC_MOVED;
}

int hc__broadcast_start(hc__hierarchy *h) {
    h->broadcast.piece = 0;
    h->broadcast.sends.net = h->net;
    return h->batch->npieces > 0 ? begin_piece(h) : HC_OK;
}

int hc__broadcast_test(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    int (*const stages[])(hc__hierarchy *) = {receive, forward, exchange};
    int moved = 0;
    while (b->piece < h->batch->npieces) {
        int again = 0;
        for (int i = h->net && b->bytes ? 0 : 2; i < 3; i++) {
            int status = stages[i](h);
            if (status < 0)
                return status;
            again |= status == HC_MOVED;
        }
        moved |= again;
        if (b->exchanged < b->nsegments || b->sends.n > 0 ||
            (b->nchildren > 0 && b->forwarded < b->nsegments)) {
            if (!again)
                return moved ? HC_MOVED : HC_IDLE;
            continue;
        }
        int status = ++b->piece < h->batch->npieces ? begin_piece(h) : HC_DONE;
        if (status < 0)
            return status;
    }
    return HC_DONE;
}

void hc__broadcast_abandon(hc__hierarchy *h) {
    hc__broadcast *b = &h->broadcast;
    for (int64_t i = 0; i < AHEAD; i++)
        if (b->receives[i] && h->net->ops->cancel(h->net, &b->receives[i]) != HC_OK)
            b->sends.stuck = 1;
    hc__bundle_cancel(&b->sends);
}

void hc__broadcast_end(hc__hierarchy *h) {
    hc_result_free(h->broadcast.spare);
    h->broadcast.spare = NULL;
}
