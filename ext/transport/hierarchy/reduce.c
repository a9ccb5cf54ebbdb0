/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - the reduction of all ranks' tensors, on the root only.
 *
 * The pipeline of the allreduce: the node reduces a chunk, the net reduces the nodes' sums to the root's node, and the
 * root alone copies the result out. Inside the node each rank packs and reduces as for an allreduce and copies nothing
 * out. Between nodes a rail's shard leaves every node but the root's once: (nodes - 1) times the data in all, half of
 * what an allreduce sends.
 */
#include "transport/hierarchy/hierarchy_state.h"

static int launch(hc__hierarchy *h, hc__channel *channel, void *data) {
    const hc__pipeline *p = &h->pipeline;
    const hc_batch *b = p->batch;
    return hc__net_reduce_start(channel, data, p->bounds[1], b->wire_dtype, hc__net_reduction(b),
                                h->place.node_of[b->root], p->nchunks, b->deterministic);
}

static int reduce_start(hc__hierarchy *h) {
    return hc__pipeline_start(h, h->batch, NULL, launch);
}

const hc__operation hc__op_REDUCE = {reduce_start, hc__pipeline_test, NULL};
