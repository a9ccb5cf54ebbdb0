/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - the reduction of all ranks' tensors, on the root only.
 *
 * It uses the pipeline of the allreduce: the node reduces a chunk, the net reduces the nodes' sums to the root's node,
 * and only the root copies the result out. Up a tree every node but the root's sends each shard once: in all (nodes -
 * 1) times the data, half of an allreduce. Among many nodes parts of a shard are added up in stages, and then gathered,
 * which sends more bytes in all, and fewer in succession.
 */
#include "transport/hierarchy/hierarchy_state.h"

/* Few bytes of few nodes go to the root at once, which takes one message in place of a tree's several. The order of the
 * sum is that of the nodes' votes, so a small call has the same bits with and without a vote. */
static int in_order(const hc__hierarchy *h, const hc_batch *b) {
    int is_small = b->count * (int64_t)hc_dtype_size(b->wire_dtype) <= HC__FEW_BYTES &&
                   h->place.nodes <= HC__FEW_MEMBERS;
    return b->deterministic || is_small;
}

static int launch_in_order(hc__hierarchy *h, hc__channel *channel, void *data) {
    const hc__pipeline *p = &h->pipeline;
    const hc_batch *b = p->batch;
    return hc__net_reduce_in_order_start(channel, data, p->bounds[1], b->wire_dtype, hc__net_reduction(b),
                                         h->place.node_of[b->root]);
}

static int launch(hc__hierarchy *h, hc__channel *channel, void *data) {
    const hc__pipeline *p = &h->pipeline;
    const hc_batch *b = p->batch;
    hc__way way = {h->place.node_of[b->root], p->nchunks, p->stages};
    return hc__net_reduce_start(channel, data, p->bounds[1], b->wire_dtype, hc__net_reduction(b), way,
                                h->between.means.exact);
}

/* Chooses the way between nodes, from numbers that are equal on all ranks. The rails of a node may share a link, so all
 * its bytes count. */
static int reduce_start(hc__hierarchy *h) {
    const hc_batch *b = h->batch;
    if (h->place.nodes == 1 || in_order(h, b))
        return hc__pipeline_start(h, b, NULL, launch_in_order, HC__SHARD_BYTES, NULL);
    int64_t rails = h->between.rails, bytes = b->count * (int64_t)hc_dtype_size(b->wire_dtype);
    int64_t segment = hc__tree_segment(&h->between.model, h->place.nodes, bytes / rails, HC__SHARD_BYTES);
    hc__sum sum = {b->count, b->wire_dtype, b->reduction, (uint8_t)h->between.means.exact, 0};
    const hc__stages *stages = hc__reduce_stages(&h->between.model, &h->between.splits, &sum, segment * rails,
                                                 HC__SHARD_BYTES * rails);
    return hc__pipeline_start(h, b, NULL, launch, stages ? HC__SHARD_BYTES : segment, stages);
}

const hc__operation hc__op_REDUCE = {reduce_start, hc__pipeline_test, NULL};
