/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - the reduction of all ranks' tensors, on the root only.
 *
 * It uses the pipeline of the allreduce: the node reduces a chunk, the net reduces the nodes' sums to the root's node,
 * and only the root copies the result out. Up a tree every node but the root's sends each shard once: in all (nodes -
 * 1) times the data, half of an allreduce. Among many nodes parts of a shard are added up in stages, and then gathered,
 * which sends more bytes in all, and fewer in succession.
 */
#include "transport/hierarchy/reduce_way.h"

#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/pipeline.h"

/* Few bytes of few nodes go to the root at once, which takes one message in place of a tree's several. The order of the
 * sum is that of the nodes' votes, so a small call has the same bits with and without a vote. The rails of a node may
 * share a link, so all its bytes count. */
hc__reduce_way hc__choose_reduce_way(const hc__net_model *model, const hc__splits *splits, const hc__sum *sum,
                                     int64_t rails) {
    int64_t bytes = sum->count * (int64_t)hc_dtype_size(sum->dtype);
    if (bytes <= HC__FEW_BYTES && splits->n <= HC__FEW_MEMBERS)
        return (hc__reduce_way){1, NULL, HC__SHARD_BYTES};
    int64_t segment = hc__tree_segment(model, splits->n, bytes / rails, HC__SHARD_BYTES);
    const hc__stages *stages = hc__reduce_stages(model, splits, sum, segment * rails, HC__SHARD_BYTES * rails);
    return (hc__reduce_way){0, stages, stages ? HC__SHARD_BYTES : segment};
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

/* The deterministic mode adds in the order of the nodes. */
static int reduce_start(hc__hierarchy *h) {
    const hc_batch *b = h->batch;
    hc__sum sum = {b->count, b->wire_dtype, b->reduction, (uint8_t)h->between.means.exact, 0};
    hc__reduce_way way = {1, NULL, HC__SHARD_BYTES};
    if (h->place.nodes > 1 && !b->deterministic)
        way = hc__choose_reduce_way(&h->between.model, &h->between.splits, &sum, h->between.rails);
    return hc__pipeline_start(h, b, NULL, way.in_order ? launch_in_order : launch, way.shard_bytes, way.stages);
}

const hc__operation hc__op_REDUCE = {reduce_start, hc__pipeline_test, NULL};
