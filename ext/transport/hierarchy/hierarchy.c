/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy.c - a process set's data plane over node and net: starts, tests and ends the operation of a batch.
 */
#include "transport/hierarchy/hierarchy.h"

#include "transport/hierarchy/broadcast.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/pipeline.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/results.h"
#include "transport/hierarchy/scan.h"

#include <stdlib.h>
#include <string.h>

/* The cost of a network that was not measured: a TCP or Ethernet class link. */
#define DEFAULT_ALPHA 2e-5
#define DEFAULT_BETA 1e-9
#define RAIL_BYTES ((int64_t)64 << 10)
#define GAMMA 1e-10 /* seconds per byte that a reduction reads: about 10 GB/s */

const hc__operation hc__op_BARRIER, hc__op_JOIN;

static const hc__operation *const operations[HC_OPERATION_COUNT] = {
#define X(name, text, traits) &hc__op_##name,
    HC_OPERATIONS(X)
#undef X
};

/* Nodes exchange sums, and the total is divided once, at the end. Sums of floats are first divided by a power of two,
 * which rounds nothing, so that they do not exceed the largest value: 16 bits hold it. */
static int64_t node_divisor(const hc__hierarchy *h, const hc_batch *b) {
    int64_t divisor = 1;
    if (h->place.nodes == 1 || b->divisor == 1)
        return b->divisor;
    while (b->dtype >= HC_FLOAT16 && divisor < h->place.largest)
        divisor *= 2;
    return divisor;
}

static int32_t local_root(const hc__hierarchy *h, const hc_batch *b) {
    for (int32_t j = 0; j < h->place.local_size; j++)
        if (hc__set_rank(&h->place, h->place.node, j) == b->root)
            return j;
    return -1;
}

static int start(hc_data *data, hc_batch *batch) {
    hc__hierarchy *h = (hc__hierarchy *)data;
    if (h->batch)
        return HC_INVALID; /* one at a time */
    if (batch->operation >= HC_OPERATION_COUNT || !operations[batch->operation]->start)
        return HC_UNSUPPORTED;
    h->batch = batch;
    h->late = HC_OK;
    h->node->turns = 0;
    hc__expect_result(h, 0);
    batch->node_divisor = node_divisor(h, batch);
    batch->local_root = local_root(h, batch);
    return operations[batch->operation]->start(h);
}

static int test(hc_data *data) {
    hc__hierarchy *h = (hc__hierarchy *)data;
    if (!h->batch)
        return HC_DONE;
    const hc__operation *operation = operations[h->batch->operation];
    int status = operation->test(h);
    if (status != HC_DONE)
        return status;
    if (operation->end)
        operation->end(h);
    h->batch = NULL;
    return h->late < 0 ? h->late : HC_DONE;
}

static int is_stuck(const hc__hierarchy *h) {
    int stuck = h->broadcast.sends.stuck || h->gather.bundle.stuck || h->alltoall.bundle.stuck ||
                h->rooted.bundle.stuck || h->scan.stuck;
    for (int32_t i = 0; i < h->pipeline.nchannels; i++)
        stuck |= h->pipeline.channels[i].bundle.stuck;
    return stuck;
}

/* Frees unfinished results, unless the net may still write to them. */
static void drop_results(hc__hierarchy *h) {
    int ours = h->batch && h->batch->memory == HC_MEMORY_HOST && !is_stuck(h);
    for (int32_t i = 0; ours && i < h->batch->npieces; i++) {
        hc_piece *piece = &h->batch->pieces[i];
        if (!piece->out_owned)
            continue;
        hc_result_free(piece->out);
        piece->out = NULL;
        piece->out_owned = 0;
    }
}

static void abandon(hc_data *data) {
    hc__hierarchy *h = (hc__hierarchy *)data;
    hc__pipeline_abandon(h);
    hc__broadcast_abandon(h);
    hc__scan_abandon(h);
    hc__bundle_cancel(&h->gather.bundle);
    hc__bundle_cancel(&h->alltoall.bundle);
    hc__bundle_cancel(&h->rooted.bundle);
    if (h->batch && h->node->ops->abandon)
        h->node->ops->abandon(h->node);
    drop_results(h);
    h->batch = NULL;
}

static void destroy(hc_data *data) {
    hc__hierarchy *h = (hc__hierarchy *)data;
    abandon(data);
    hc__pipeline_free(h);
    for (int i = 0; i < HC_OPERATION_COUNT; i++)
        if (operations[i]->end)
            operations[i]->end(h);
    hc__bundle_free(&h->broadcast.sends);
    hc__bundle_free(&h->gather.bundle);
    hc__bundle_free(&h->alltoall.bundle);
    hc__bundle_free(&h->rooted.bundle);
    for (int64_t i = 0; i < h->results.nreserves; i++)
        hc_result_free(h->results.reserves[i]);
    hc_free(h->results.reserves);
    hc_free(h->gather.lengths);
    hc_free(h->gather.offsets);
    hc_free(h->between.rail_peers);
    hc_free(h->between.leader_peers);
    hc_free(h->streams.reads);
    hc_free(h->streams.parts);
    hc_free(h->streams.lengths);
    hc__placement_free(&h->place);
    if (h->node)
        h->node->ops->free(h->node);
    hc_free(h);
}

static const struct hc_data_ops hierarchy_ops = {
    .name = "hierarchy", .start = start, .test = test, .abandon = abandon, .free = destroy};

/* The teams between nodes: the ranks with my local rank, and local rank 0 of every node. */
static void gather_teams(hc__hierarchy *h) {
    hc__placement *p = &h->place;
    for (int32_t i = 0; i < p->nodes; i++) {
        h->between.leader_peers[i] = p->world[hc__set_rank(p, i, 0)];
        if (p->local_rank < h->between.rails)
            h->between.rail_peers[i] = p->world[hc__set_rank(p, i, p->local_rank)];
    }
    h->between.rail = (hc__team){h->net, h->arithmetic, h->between.rail_peers, p->nodes, p->node, &h->between.splits};
    h->between.leaders = (hc__team){h->net,  &hc_host_arithmetic, h->between.leader_peers, p->nodes,
                                    p->node, &h->between.splits};
}

static int make_arrays(hc__hierarchy *h) {
    size_t size = (size_t)h->place.size, nodes = (size_t)h->place.nodes;
    h->between.rail_peers = hc_malloc(nodes * sizeof *h->between.rail_peers);
    h->between.leader_peers = hc_malloc(nodes * sizeof *h->between.leader_peers);
    h->streams.reads = hc_malloc((size_t)h->place.local_size * sizeof *h->streams.reads);
    h->streams.parts = hc_malloc((size_t)h->place.local_size * sizeof *h->streams.parts);
    h->streams.lengths = hc_malloc((size + 1) * sizeof *h->streams.lengths);
    h->gather.lengths = hc_malloc(size * sizeof *h->gather.lengths);
    h->gather.offsets = hc_malloc((size + 1) * sizeof *h->gather.offsets);
    if (!h->between.rail_peers || !h->between.leader_peers || !h->streams.reads || !h->streams.parts ||
        !h->streams.lengths || !h->gather.lengths || !h->gather.offsets)
        return HC_NO_MEMORY;
    return HC_OK;
}

/* The number of rails: at most the ranks of the smallest node; by default also so few that each has enough of the
 * largest chunk for a message. */
static int32_t choose_rails(const hc__placement *p, int32_t wanted) {
    int64_t most = wanted > 0 ? wanted : hc_node_chunk_bytes(p->largest) / RAIL_BYTES;
    if (p->nodes == 1)
        return 0;
    if (most > p->smallest)
        return p->smallest;
    return most > 0 ? (int32_t)most : 1;
}

static int configure(hc__hierarchy *h, const hc_hierarchy_config *c) {
    int status = hc__placement_new(c, &h->place);
    if (status < 0)
        return status;
    h->between.means = (hc__means){hc__algorithm_named(c->algorithm), c->exact_sums};
    hc__splits_of(h->place.nodes, c->group, &h->between.splits);
    h->arithmetic = c->arithmetic ? c->arithmetic : &hc_host_arithmetic;
    h->between.tags = (int32_t)c->set * HC_TAGS_PER_SET;
    h->between.rails = choose_rails(&h->place, c->rails);
    h->chunks.bytes = c->chunk_bytes;
    h->chunks.most = c->chunk_most > 0 ? c->chunk_most : hc_node_chunk_bytes(h->place.largest);
    double beta = c->beta > 0 ? c->beta : DEFAULT_BETA;
    double alpha = c->latency_bytes > 0 ? (double)c->latency_bytes * beta : DEFAULT_ALPHA;
    h->between.model = (hc__net_model){c->alpha > 0 ? c->alpha : alpha, beta, GAMMA};
    if (h->between.means.algorithm < 0 || c->rails < 0 || c->chunk_bytes < 0)
        return HC_INVALID;
    if (h->node->local_size != h->place.local_size || h->node->local_rank != h->place.local_rank)
        return HC_INVALID;
    if (h->place.nodes > 1 && (!h->net || h->between.tags > h->net->max_tag - HC_TAGS_PER_SET + 1))
        return HC_INVALID;
    return make_arrays(h);
}

int hc_hierarchy_new(const hc_hierarchy_config *c, hc_node *node, hc_net *net, hc_data **data) {
    *data = NULL;
    hc__hierarchy *h = hc_calloc(1, sizeof *h);
    if (!h)
        return HC_NO_MEMORY;
    h->base.ops = &hierarchy_ops;
    h->node = node;
    h->net = net;
    h->gather.bundle.net = h->alltoall.bundle.net = h->broadcast.sends.net = h->rooted.bundle.net = net;
    int status = configure(h, c);
    if (status < 0) {
        h->node = NULL; /* the caller keeps it */
        destroy(&h->base);
        return status;
    }
    gather_teams(h);
    *data = &h->base;
    return HC_OK;
}
