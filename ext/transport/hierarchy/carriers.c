/* SPDX-License-Identifier: Apache-2.0
 *
 * carriers.c - the counts of an alltoall, and few rows, in one message from a node to a node.
 *
 * Local rank k % (ranks of its node) carries node k: it exchanges one message with the rank there that carries its own
 * node. The message has the counts of all pairs of ranks of the two nodes, sender after sender, and then their few rows
 * in the same order. The ranks of a node know each other's counts before (alltoall.table).
 *
 *     LEAVE   in the node: few rows to the carriers
 *     CROSS   the messages
 *     SHARE   in the node: the bytes that each carrier has for each rank
 *     ARRIVE  in the node: those bytes: for each rank of the carried nodes its counts, and its few rows behind them
 */
#include "transport/hierarchy/carriers.h"

#include "transport/hierarchy/alltoall.h"
#include "transport/hierarchy/few_rows.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/tags.h"

#include <string.h>

#define MESSAGES 32 /* in flight at once: the net buffers messages that arrive before their receives */

enum { LEAVE, CROSS, SHARE, ARRIVE };

static int32_t ranks_on(const hc__placement *p, int32_t node) {
    return p->first[node + 1] - p->first[node];
}

/* The nodes that local rank j of my node carries: for (k = first_of(p, j); k < p->nodes; k = next_of(p, k)) */
static int32_t next_of(const hc__placement *p, int32_t k) {
    k += p->local_size;
    return k == p->node ? k + p->local_size : k;
}

static int32_t first_of(const hc__placement *p, int32_t j) {
    return j == p->node ? j + p->local_size : j;
}

/* What local rank s sends to rank d of node k. */
static const hc__count *sent_to(const hc__hierarchy *h, int32_t s, int32_t k, int32_t d) {
    int64_t cell = (int64_t)s * h->place.size + hc__set_rank(&h->place, k, d);
    return h->alltoall.table + cell * h->batch->npieces;
}

/* Bytes of the few rows of local rank s for node k. */
static int64_t leaving_bytes(const hc__hierarchy *h, int32_t s, int32_t k) {
    int64_t bytes = 0;
    for (int32_t d = 0; d < ranks_on(&h->place, k); d++)
        bytes += hc__bytes_of_few(h, sent_to(h, s, k, d));
    return bytes;
}

/* ---- LEAVE ---------------------------------------------------------------------------------------------- */

/* My stream has my few rows, carrier after carrier, node after node, rank after rank. */
static int make_stream(hc__hierarchy *h) {
    const hc__placement *p = &h->place;
    hc__few_rows *f = &h->alltoall.few;
    int64_t end = 0;
    for (int32_t j = 0; j < p->local_size; j++)
        for (int32_t k = first_of(p, j); k < p->nodes; k = next_of(p, k))
            for (int32_t d = 0; d < ranks_on(p, k); d++) {
                f->ends[hc__set_rank(p, k, d)] = end;
                end += hc__bytes_of_few(h, sent_to(h, p->local_rank, k, d));
            }
    f->sent = hc_malloc((size_t)end + 1);
    if (!f->sent)
        return HC_NO_MEMORY;
    hc__few_pack(h);
    h->streams.parts[0] = (hc_stream_part){f->sent, end};
    return HC_OK;
}

static int begin_leave(hc__hierarchy *h) {
    const hc__placement *p = &h->place;
    hc__carriers *c = &h->alltoall.carriers;
    int64_t total = 0;
    for (int32_t s = 0; s < p->local_size; s++) {
        int64_t length = 0;
        for (int32_t j = 0; j < p->local_size; j++) {
            int64_t begin = length;
            for (int32_t k = first_of(p, j); k < p->nodes; k = next_of(p, k))
                length += leaving_bytes(h, s, k);
            if (j == p->local_rank)
                h->streams.reads[s] = (hc_stream_read){NULL, begin, length - begin};
        }
        h->streams.lengths[s] = length;
        c->cursors[s] = total;
        total += h->streams.reads[s].bytes;
    }
    c->gathered = hc_malloc((size_t)total + 1);
    if (!c->gathered)
        return HC_NO_MEMORY;
    for (int32_t s = 0; s < p->local_size; s++)
        h->streams.reads[s].out = c->gathered + c->cursors[s];
    return make_stream(h);
}

static int exchange(hc__hierarchy *h) {
    return h->node->ops->exchange(h->node, h->streams.parts, 1, h->streams.reads, h->streams.lengths, 1);
}

/* ---- CROSS ---------------------------------------------------------------------------------------------- */

/* The longest message to or from node k, in whole words, so that the counts are aligned. */
static int64_t longest_message(const hc__hierarchy *h, int32_t k) {
    int64_t pairs = (int64_t)h->place.local_size * ranks_on(&h->place, k);
    return (pairs * (hc__counts_bytes(h) + h->alltoall.few.limit) + 7) / 8 * 8;
}

/* Writes the message to node k; cursors[s] runs through the rows of local rank s. */
static void write_message(hc__hierarchy *h, int32_t k) {
    const hc__placement *p = &h->place;
    hc__carriers *c = &h->alltoall.carriers;
    char *at = c->out + c->out_at[k];
    for (int32_t s = 0; s < p->local_size; s++)
        for (int32_t d = 0; d < ranks_on(p, k); d++, at += hc__counts_bytes(h))
            memcpy(at, sent_to(h, s, k, d), (size_t)hc__counts_bytes(h));
    for (int32_t s = 0; s < p->local_size; s++) {
        int64_t bytes = leaving_bytes(h, s, k);
        memcpy(at, c->gathered + c->cursors[s], (size_t)bytes);
        c->cursors[s] += bytes;
        at += bytes;
    }
}

static int begin_cross(hc__hierarchy *h) {
    const hc__placement *p = &h->place;
    hc__carriers *c = &h->alltoall.carriers;
    for (int32_t k = 0; k < p->nodes; k++) {
        int is_mine = k != p->node && k % p->local_size == p->local_rank;
        int64_t bytes = is_mine ? (int64_t)p->local_size * ranks_on(p, k) * hc__counts_bytes(h) : 0;
        for (int32_t s = 0; is_mine && s < p->local_size; s++)
            bytes += leaving_bytes(h, s, k);
        c->out_at[k + 1] = c->out_at[k] + bytes;
        c->in_at[k + 1] = c->in_at[k] + (is_mine ? longest_message(h, k) : 0);
    }
    c->out = hc_malloc((size_t)c->out_at[p->nodes] + 1);
    c->in = hc_malloc((size_t)c->in_at[p->nodes] + 1);
    if (!c->out || !c->in)
        return HC_NO_MEMORY;
    for (int32_t k = first_of(p, p->local_rank); k < p->nodes; k = next_of(p, k))
        write_message(h, k);
    c->step = 1;
    return HC_OK;
}

/* The World rank of the rank of node k that carries my node. */
static int32_t partner(const hc__placement *p, int32_t k) {
    return p->world[hc__set_rank(p, k, p->node % ranks_on(p, k))];
}

/* Step s sends to the node s after mine and receives from the one s before it, as exchange_far() does with ranks. */
static int post_step(hc__hierarchy *h, int32_t step) {
    const hc__placement *p = &h->place;
    hc__carriers *c = &h->alltoall.carriers;
    hc__bundle *bundle = &h->alltoall.bundle;
    int32_t to = (p->node + step) % p->nodes, from = (p->node + p->nodes - step) % p->nodes;
    int32_t tag = h->between.tags + HC__TAG_COUNTS;
    int status = HC_OK;
    if (from % p->local_size == p->local_rank)
        status = hc__bundle_receive_most(bundle, partner(p, from), tag, c->in + c->in_at[from],
                                         longest_message(h, from), &c->lengths[from]);
    if (status >= 0 && to % p->local_size == p->local_rank)
        status = hc__bundle_send(bundle, partner(p, to), tag, c->out + c->out_at[to],
                                 c->out_at[to + 1] - c->out_at[to]);
    return status;
}

static int cross(hc__hierarchy *h) {
    hc__carriers *c = &h->alltoall.carriers;
    hc__bundle *bundle = &h->alltoall.bundle;
    int moved = 0;
    for (;;) {
        for (; c->step < h->place.nodes && bundle->n < MESSAGES; c->step++) {
            int status = post_step(h, c->step);
            if (status < 0)
                return status;
        }
        int status = hc__bundle_test(bundle);
        if (status != HC_DONE)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        if (c->step == h->place.nodes)
            return HC_DONE;
        moved = 1;
    }
}

/* ---- SHARE and ARRIVE ------------------------------------------------------------------------------------- */

/* In the message from node k: the counts from its rank s for local rank d. */
static const hc__count *come_from(const hc__hierarchy *h, int32_t k, int32_t s, int32_t d) {
    const hc__carriers *c = &h->alltoall.carriers;
    int64_t cell = (int64_t)s * h->place.local_size + d;
    return (const hc__count *)(const void *)(c->in + c->in_at[k] + cell * hc__counts_bytes(h));
}

/* Adds what node k has sent to the shares of my node's ranks. */
static int add_shares(hc__hierarchy *h, int32_t k, int64_t *shares) {
    const hc__placement *p = &h->place;
    int64_t length = (int64_t)ranks_on(p, k) * p->local_size * hc__counts_bytes(h);
    if (h->alltoall.carriers.lengths[k] < length)
        return HC_TRANSPORT; /* a bug, or a foreign message */
    for (int32_t s = 0; s < ranks_on(p, k); s++)
        for (int32_t d = 0; d < p->local_size; d++) {
            int64_t rows = hc__bytes_of_few(h, come_from(h, k, s, d));
            shares[d] += hc__counts_bytes(h) + rows;
            length += rows;
        }
    return h->alltoall.carriers.lengths[k] == length ? HC_OK : HC_TRANSPORT;
}

static int begin_share(hc__hierarchy *h) {
    const hc__placement *p = &h->place;
    hc__carriers *c = &h->alltoall.carriers;
    int64_t *mine = c->shares + (int64_t)p->local_rank * p->local_size, bytes = p->local_size * (int64_t)sizeof *mine;
    int status = HC_OK;
    for (int32_t k = first_of(p, p->local_rank); k < p->nodes && status >= 0; k = next_of(p, k))
        status = add_shares(h, k, mine);
    for (int32_t q = 0; q < p->local_size; q++) {
        h->streams.lengths[q] = bytes;
        h->streams.reads[q] = (hc_stream_read){q == p->local_rank ? NULL : c->shares + (int64_t)q * p->local_size, 0,
                                               bytes};
    }
    h->streams.parts[0] = (hc_stream_part){mine, bytes};
    return status;
}

/* Copies what node k has sent to the stream; cursors[d] runs through the share of local rank d. */
static void spread_message(hc__hierarchy *h, int32_t k) {
    const hc__placement *p = &h->place;
    hc__carriers *c = &h->alltoall.carriers;
    const char *rows = (const char *)come_from(h, k, ranks_on(p, k), 0);
    for (int32_t s = 0; s < ranks_on(p, k); s++)
        for (int32_t d = 0; d < p->local_size; d++) {
            const hc__count *counts = come_from(h, k, s, d);
            int64_t bytes = hc__bytes_of_few(h, counts);
            memcpy(c->stream + c->cursors[d], counts, (size_t)hc__counts_bytes(h));
            memcpy(c->stream + c->cursors[d] + hc__counts_bytes(h), rows, (size_t)bytes);
            c->cursors[d] += hc__counts_bytes(h) + bytes;
            rows += bytes;
        }
}

static int begin_arrive(hc__hierarchy *h) {
    const hc__placement *p = &h->place;
    hc__carriers *c = &h->alltoall.carriers;
    hc__few_rows *f = &h->alltoall.few;
    int64_t total = 0;
    for (int32_t q = 0; q < p->local_size; q++) {
        int64_t length = 0;
        for (int32_t d = 0; d < p->local_size; d++) {
            int64_t share = c->shares[(int64_t)q * p->local_size + d];
            if (d == p->local_rank)
                h->streams.reads[q] = (hc_stream_read){NULL, length, share};
            if (q == p->local_rank)
                c->cursors[d] = length;
            length += share;
        }
        h->streams.lengths[q] = length;
        total += h->streams.reads[q].bytes;
    }
    f->room = hc_malloc((size_t)total + 1);
    c->stream = hc_malloc((size_t)h->streams.lengths[p->local_rank] + 1);
    if (!f->room || !c->stream)
        return HC_NO_MEMORY;
    total = 0;
    for (int32_t q = 0; q < p->local_size; q++) {
        h->streams.reads[q].out = f->room + total;
        total += h->streams.reads[q].bytes;
    }
    for (int32_t k = first_of(p, p->local_rank); k < p->nodes; k = next_of(p, k))
        spread_message(h, k);
    h->streams.parts[0] = (hc_stream_part){c->stream, h->streams.lengths[p->local_rank]};
    return HC_OK;
}

/* Sets the counts of the other nodes' ranks, and where their few rows are. */
static void read_arrived(hc__hierarchy *h) {
    const hc__placement *p = &h->place;
    const char *at = h->alltoall.few.room;
    for (int32_t q = 0; q < p->local_size; q++)
        for (int32_t k = first_of(p, q); k < p->nodes; k = next_of(p, k))
            for (int32_t s = 0; s < ranks_on(p, k); s++) {
                int32_t r = hc__set_rank(p, k, s);
                hc__count *counts = h->alltoall.incoming + (int64_t)r * h->batch->npieces;
                memcpy(counts, at, (size_t)hc__counts_bytes(h));
                at += hc__counts_bytes(h);
                h->alltoall.few.rows[r] = hc__bytes_of_rows(h, counts) <= h->alltoall.few.limit ? at : NULL;
                at += hc__bytes_of_few(h, counts);
            }
}

/* ---- the stages ------------------------------------------------------------------------------------------- */

int hc__carriers_start(hc__hierarchy *h) {
    hc__carriers *c = &h->alltoall.carriers;
    size_t nodes = (size_t)h->place.nodes, local = (size_t)h->place.local_size;
    c->stage = LEAVE;
    c->out_at = hc_calloc(nodes + 1, sizeof *c->out_at);
    c->in_at = hc_calloc(nodes + 1, sizeof *c->in_at);
    c->lengths = hc_calloc(nodes, sizeof *c->lengths);
    c->shares = hc_calloc(local * local, sizeof *c->shares);
    c->cursors = hc_calloc(local, sizeof *c->cursors);
    if (!c->out_at || !c->in_at || !c->lengths || !c->shares || !c->cursors)
        return HC_NO_MEMORY;
    return begin_leave(h);
}

int hc__carriers_test(hc__hierarchy *h) {
    static int (*const begin[])(hc__hierarchy *) = {
        [CROSS] = begin_cross, [SHARE] = begin_share, [ARRIVE] = begin_arrive};
    hc__carriers *c = &h->alltoall.carriers;
    for (;;) {
        int status = c->stage == CROSS ? cross(h) : exchange(h);
        if (status != HC_DONE)
            return status;
        if (c->stage == ARRIVE)
            break;
        status = begin[++c->stage](h);
        if (status < 0)
            return status;
    }
    read_arrived(h);
    return HC_DONE;
}

void hc__carriers_end(hc__hierarchy *h) {
    hc__carriers *c = &h->alltoall.carriers;
    if (!h->alltoall.bundle.stuck) { /* else the net may still read and write the messages */
        hc_free(c->out);
        hc_free(c->in);
        hc_free(c->lengths);
    }
    hc_free(c->gathered);
    hc_free(c->out_at);
    hc_free(c->in_at);
    hc_free(c->shares);
    hc_free(c->cursors);
    hc_free(c->stream);
    *c = (hc__carriers){0};
}
