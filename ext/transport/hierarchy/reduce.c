/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - the reduction of all ranks' tensors, on the root only.
 *
 * It uses the pipeline of the allreduce: the node reduces a chunk, the net reduces the nodes' sums to the root's node,
 * and only the root copies the result out. Every node but the root's sends each shard once: in all (nodes - 1) times
 * the data, half of an allreduce.
 */
#include "transport/hierarchy/hierarchy_state.h"

/* Few bytes of few nodes go to the root at once, which takes one message in place of a tree's several. The order of the
 * sum is that of the nodes' votes, so a small call has the same bits with and without a vote. */
static int in_order(const hc__hierarchy *h, const hc_batch *b) {
    int is_small = b->count * (int64_t)hc_dtype_size(b->wire_dtype) <= HC__FEW_BYTES &&
                   h->place.nodes <= HC__FEW_MEMBERS;
    return b->deterministic || is_small;
}

static int launch(hc__hierarchy *h, hc__channel *channel, void *data) {
    const hc__pipeline *p = &h->pipeline;
    const hc_batch *b = p->batch;
    return hc__net_reduce_start(channel, data, p->bounds[1], b->wire_dtype, hc__net_reduction(b),
                                h->place.node_of[b->root], p->nchunks, in_order(h, b));
}

static int reduce_start(hc__hierarchy *h) {
    const hc_batch *b = h->batch;
    int64_t shard = HC__SHARD_BYTES;
    if (h->place.nodes > 1 && !in_order(h, b))
        shard = hc__tree_segment(&h->between.model, h->place.nodes,
                                 b->count * (int64_t)hc_dtype_size(b->wire_dtype) / h->between.rails, shard);
    return hc__pipeline_start(h, b, NULL, launch, shard);
}

const hc__operation hc__op_REDUCE = {reduce_start, hc__pipeline_test, NULL};
