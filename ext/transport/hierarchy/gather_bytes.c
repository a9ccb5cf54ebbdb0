/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_bytes.c - allgather of bytes whose lengths every rank knows.
 *
 *     collect   in the node: all ranks' bytes to the leader (with one node: to all ranks, and this is the only stage)
 *     cross     leaders: each node's bytes around a ring, or directly to all leaders if they are few
 *     share     in the node: the leader's result to the other ranks
 *
 * Only the leader exchanges messages with other nodes: all ranks of its node need the same bytes, so they cross the
 * wire once per node. Leaders on top of shared memory are the hierarchy of Romero et al. (NSDI 2022).
 */
#include "transport/hierarchy/gather_bytes.h"

#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/tags.h"

#include <string.h>

#define AT_ONCE_BYTES ((int64_t)64 << 10)

enum { COLLECT, CROSS, SHARE, GATHERED };

static int is_leader(const hc__hierarchy *h) {
    return h->place.local_rank == 0;
}

/* Resets the exchange: no rank offers or reads anything. */
static void clear_exchange(hc__hierarchy *h) {
    memset(h->streams.reads, 0, (size_t)h->place.local_size * sizeof *h->streams.reads);
    memset(h->streams.lengths, 0, (size_t)h->place.local_size * sizeof *h->streams.lengths);
}

static int collect(hc__hierarchy *h) {
    hc__gather *g = &h->gather;
    int receives = h->place.nodes == 1 || is_leader(h);
    clear_exchange(h);
    for (int32_t j = 0; j < h->place.local_size; j++) {
        int32_t r = hc__set_rank(&h->place, h->place.node, j);
        int is_shown = h->place.nodes == 1 || j > 0; /* with several nodes no rank needs the leader's bytes here */
        h->streams.lengths[j] = is_shown ? g->lengths[r] : 0;
        if (receives && r != h->place.rank)
            h->streams.reads[j] = (hc_stream_read){g->out + g->offsets[r], 0, g->lengths[r]};
    }
    hc_stream_part own = {g->in, h->streams.lengths[h->place.local_rank]};
    return h->node->ops->exchange(h->node, &own, 1, h->streams.reads, h->streams.lengths, h->place.local_size - 1);
}

static int share(hc__hierarchy *h) {
    hc__gather *g = &h->gather;
    int64_t total = g->offsets[h->place.size];
    clear_exchange(h);
    h->streams.lengths[0] = total;
    if (!is_leader(h))
        h->streams.reads[0] = (hc_stream_read){g->out, 0, total};
    hc_stream_part own = {is_leader(h) ? g->out : NULL, is_leader(h) ? total : 0};
    return h->node->ops->exchange(h->node, &own, 1, h->streams.reads, h->streams.lengths, h->place.local_size - 1);
}

/* Posts a node's bytes to or from a leader: one message per contiguous run in the result. */
static int post_block(hc__hierarchy *h, int32_t node, int32_t peer, int sends) {
    hc__gather *g = &h->gather;
    int32_t ranks = h->place.first[node + 1] - h->place.first[node];
    int tag = h->between.tags + HC__TAG_GATHER, status = HC_OK;
    for (int32_t j = 0; j < ranks && status >= 0;) {
        int32_t r = hc__set_rank(&h->place, node, j), end = r;
        do {
            end++;
            j++;
        } while (j < ranks && hc__set_rank(&h->place, node, j) == end);
        char *at = g->out + g->offsets[r];
        int64_t bytes = g->offsets[end] - g->offsets[r];
        status = sends ? hc__bundle_send(&g->bundle, peer, tag, at, bytes)
                       : hc__bundle_receive(&g->bundle, peer, tag, at, bytes);
    }
    return status;
}

static int post_all(hc__hierarchy *h) {
    const hc__team *t = &h->between.leaders;
    int status = HC_OK;
    for (int32_t s = 1; s < t->n && status >= 0; s++) {
        int32_t q = (t->me + t->n - s) % t->n;
        status = post_block(h, q, t->peers[q], 0);
    }
    for (int32_t s = 1; s < t->n && status >= 0; s++)
        status = post_block(h, t->me, t->peers[(t->me + s) % t->n], 1);
    return status;
}

static int post_ring_step(hc__hierarchy *h, int32_t step) {
    const hc__team *t = &h->between.leaders;
    int32_t sent = (t->me + t->n - step) % t->n, received = (sent + t->n - 1) % t->n;
    int status = post_block(h, received, t->peers[(t->me + t->n - 1) % t->n], 0);
    return status < 0 ? status : post_block(h, sent, t->peers[(t->me + 1) % t->n], 1);
}

static int cross(hc__hierarchy *h) {
    hc__gather *g = &h->gather;
    if (!is_leader(h))
        return HC_DONE;
    int at_once = g->offsets[h->place.size] <= AT_ONCE_BYTES;
    int32_t steps = at_once ? 1 : h->between.leaders.n - 1;
    int moved = 0;
    for (;;) {
        int status = hc__bundle_test(&g->bundle);
        if (status != HC_DONE)
            return status == HC_IDLE && moved ? HC_MOVED : status;
        if (g->step == steps)
            return HC_DONE;
        status = at_once ? post_all(h) : post_ring_step(h, g->step);
        if (status < 0)
            return status;
        g->step++;
        moved = 1;
    }
}

int hc__gather_start(hc__hierarchy *h, const void *in, void *out) {
    hc__gather *g = &h->gather;
    g->in = in;
    g->out = out;
    g->stage = COLLECT;
    g->step = 0;
    g->offsets[0] = 0;
    for (int32_t r = 0; r < h->place.size; r++)
        g->offsets[r + 1] = g->offsets[r] + g->lengths[r];
    int64_t own = g->lengths[h->place.rank];
    int keeps = h->place.nodes == 1 || is_leader(h); /* other ranks get it back with the leader's result */
    if (own > 0 && keeps && g->out + g->offsets[h->place.rank] != in)
        hc_node_copy_result(h->node, g->out + g->offsets[h->place.rank], in, (size_t)own);
    return HC_OK;
}

int hc__gather_test(hc__hierarchy *h) {
    static int (*const stages[])(hc__hierarchy *) = {[COLLECT] = collect, [CROSS] = cross, [SHARE] = share};
    hc__gather *g = &h->gather;
    while (g->stage != GATHERED) {
        int status = stages[g->stage](h);
        if (status != HC_DONE)
            return status;
        g->stage = h->place.nodes == 1 ? GATHERED : g->stage + 1;
    }
    return HC_DONE;
}
