/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - the reduction of all ranks' tensors, on the root only.
 *
 * It uses the pipeline of the allreduce: the node reduces a chunk, the net reduces the nodes' sums to the root's node,
 * and only the root copies the result out. Every node but the root's sends each shard once: in all (nodes - 1) times
 * the data, half of an allreduce.
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
