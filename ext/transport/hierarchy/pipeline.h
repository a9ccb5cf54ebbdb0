/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline.h - the pipeline of allreduce, and of other operations between nodes; allreduce.c defines it.
 */
#pragma once

#include "transport/net/algorithms.h"
#include "transport/node.h"

typedef struct hc__hierarchy hc__hierarchy;

/* Starts the network stage of one chunk: `data` is this node's shard, with the parts in pipeline.bounds. */
typedef int hc__launch(hc__hierarchy *, hc__channel *, void *data);

typedef struct hc__pipeline {
    const hc_batch *batch;
    hc__launch *launch;
    const hc__stages *stages; /* of a broadcast or a reduce between nodes; NULL: a tree */
    int64_t *bounds;          /* of the parts of a shard; set size + 1 entries */
    hc_rails rails;
    int64_t nchunks, depth;
    int64_t reduced, spread;           /* chunks that have passed these stages here */
    int64_t launched, published, step; /* the next chunk of mine for these stages; from one of mine to the next one */
    hc__channel *channels;             /* of my chunks */
    int32_t nchannels;
    hc_batch cut; /* reducescatter: the same batch, its pieces cut and sorted by node */
    hc_piece *cut_pieces;
    int32_t room; /* of cut_pieces */
} hc__pipeline;

/* Bytes on the wire of a rail's shard of one chunk. Large enough that the bytes cost much more than the message, small
 * enough for several in flight; the benchmark net_chunks.py shows both limits. */
#define HC__SHARD_BYTES ((int64_t)256 << 10)
/* `shard_bytes`: HC__SHARD_BYTES or fewer. parts NULL: one part. The bounds are borrowed until the end. */
int hc__pipeline_start(hc__hierarchy *, const hc_batch *, const hc_parts *parts, hc__launch *, int64_t shard_bytes,
                       const hc__stages *);
int hc__pipeline_test(hc__hierarchy *);
void hc__pipeline_abandon(hc__hierarchy *);
void hc__pipeline_free(hc__hierarchy *);

hc__means hc__net_means(const hc__hierarchy *); /* of the batch's reduction between nodes */
hc__reduction hc__net_reduction(const hc_batch *);
