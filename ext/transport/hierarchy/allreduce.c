/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.c - the pipeline that moves chunks of a batch through node, net and node again: for an allreduce, a
 * reducescatter between nodes, and the broadcast of a node without an exchange.
 *
 *     chunk c + 2     packed and reduced in the node
 *     chunk c + 1     the shard of this rail moves between the nodes
 *     chunk c         published, copied to the tensors
 *
 * Each stage takes the chunks in order. The net may finish them in any order, as each chunk has its channel (a tag and
 * buffers). The node's slots limit the chunks between the first and the last stage. Reducing in the node before the
 * network, with several rails per node, follows Romero et al., "Accelerating Collective Communication in Data Parallel
 * Training across Deep Learning Frameworks" (NSDI 2022).
 */
#include "transport/hierarchy/hierarchy_state.h"

#include <stdlib.h>

/* Among many nodes a chunk waits for several rounds, so twice as many chunks of half the size gain, as long as a shard
 * is not too small for its messages. The simulator shows both (docs/scaling-to-summit.md). */
#define FEW_NODES 8
#define LEAST_SHARD_BYTES ((int64_t)40 << 10)

static int64_t chunk_limit(const hc__hierarchy *h, const hc_batch *b) {
    int64_t most = h->chunks.most / (int64_t)hc_dtype_size(b->dtype), wire = (int64_t)hc_dtype_size(b->wire_dtype);
    return h->place.nodes > FEW_NODES && most / 2 * wire >= LEAST_SHARD_BYTES * h->between.rails ? most / 2 : most;
}

/* Elements per chunk. All nodes compute it from the same numbers, and it fits the largest node. */
static int64_t choose_chunk(const hc__hierarchy *h, const hc_batch *b, int64_t shard_bytes) {
    int64_t size = (int64_t)hc_dtype_size(b->dtype), limit = h->chunks.most / size;
    int64_t wanted = shard_bytes / (int64_t)hc_dtype_size(b->wire_dtype) * h->between.rails;
    if (h->chunks.bytes == 0 && h->between.rails == 0)
        return 0; /* the node chooses */
    if (h->chunks.bytes > 0)
        wanted = h->chunks.bytes < size ? 1 : h->chunks.bytes / size;
    else
        limit = chunk_limit(h, b);
    return wanted < limit ? wanted : limit;
}

static int make_channels(hc__hierarchy *h, int64_t wanted) {
    hc__pipeline *p = &h->pipeline;
    if (wanted > HC__MAX_CHANNELS)
        wanted = HC__MAX_CHANNELS;
    if (p->nchannels >= wanted)
        return HC_OK;
    hc__channel *channels = hc_realloc(p->channels, (size_t)p->nchannels * sizeof *channels,
                                       (size_t)wanted * sizeof *channels);
    if (!channels)
        return HC_NO_MEMORY;
    p->channels = channels;
    for (; p->nchannels < wanted; p->nchannels++)
        hc__channel_init(&channels[p->nchannels], &h->between.rail, &h->between.model,
                         h->between.tags + HC__TAG_CHANNELS + p->nchannels);
    return HC_OK;
}

int hc__pipeline_start(hc__hierarchy *h, const hc_batch *batch, const hc_parts *parts, hc__launch *launch,
                       int64_t shard_bytes) {
    hc__pipeline *p = &h->pipeline;
    p->batch = batch;
    p->launch = launch;
    p->reduced = p->launched = p->published = p->spread = 0;
    if (!p->bounds)
        p->bounds = hc_malloc(((size_t)h->place.size + 1) * sizeof *p->bounds);
    if (!p->bounds)
        return HC_NO_MEMORY;
    int64_t chunk = choose_chunk(h, batch, shard_bytes);
    int status = h->node->ops->open(h->node, batch, parts, h->between.rails, chunk, &p->nchunks);
    if (status < 0)
        return status;
    p->depth = h->node->ops->depth(h->node);
    if (h->place.local_rank >= h->between.rails)
        return HC_OK;
    return make_channels(h, p->depth < p->nchunks ? p->depth : p->nchunks);
}

static hc__channel *channel(hc__pipeline *p, int64_t chunk) {
    return &p->channels[chunk % p->nchannels];
}

static int reduce_next(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    if (p->reduced == p->nchunks || p->reduced == p->spread + p->depth)
        return HC_IDLE;
    int status = h->node->ops->reduce(h->node, p->reduced);
    if (status != HC_DONE)
        return status;
    p->reduced++;
    return HC_MOVED;
}

static int launch_next(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    void *data = NULL;
    if (p->launched == p->reduced || p->launched == p->published + p->nchannels)
        return HC_IDLE;
    int status = h->node->ops->shard(h->node, p->launched, &data, p->bounds);
    if (status != HC_DONE)
        return status;
    status = p->launch(h, channel(p, p->launched), data);
    if (status < 0)
        return status;
    p->launched++;
    return HC_MOVED;
}

/* Tests every channel, and publishes the chunks that are complete, in order. */
static int publish_next(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    int moved = 0;
    for (int64_t c = p->published; c < p->launched; c++) {
        int status = hc__channel_test(channel(p, c));
        if (status < 0)
            return status;
        moved |= status == HC_MOVED;
        if (status != HC_DONE || c != p->published)
            continue;
        status = h->node->ops->publish(h->node, c);
        if (status < 0)
            return status;
        p->published++;
        moved = 1;
    }
    return moved ? HC_MOVED : HC_IDLE;
}

static int spread_next(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    int drives = h->place.local_rank < h->between.rails;
    if (p->spread == (drives ? p->published : p->reduced))
        return HC_IDLE;
    int status = h->node->ops->spread(h->node, p->spread);
    if (status != HC_DONE)
        return status;
    p->spread++;
    return HC_MOVED;
}

int hc__pipeline_test(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    /* The last stage first: it frees slots for the earlier ones. */
    int (*const stages[])(hc__hierarchy *) = {spread_next, publish_next, launch_next, reduce_next};
    int moved = 0, again;
    do {
        again = 0;
        for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
            int status = stages[i](h);
            if (status < 0)
                return status;
            again |= status == HC_MOVED;
        }
        moved |= again;
        if (p->spread == p->nchunks) {
            int status = h->node->ops->close(h->node);
            return status < 0 ? status : HC_DONE;
        }
        /* With a net, the driver handles control messages between chunks. A single chunk has few stages, and that would
         * cost more than they do. */
    } while (again && (h->between.rails == 0 || p->nchunks == 1));
    return moved ? HC_MOVED : HC_IDLE;
}

void hc__pipeline_abandon(hc__hierarchy *h) {
    for (int32_t i = 0; i < h->pipeline.nchannels; i++)
        hc__channel_abandon(&h->pipeline.channels[i]);
}

void hc__pipeline_free(hc__hierarchy *h) {
    for (int32_t i = 0; i < h->pipeline.nchannels; i++)
        hc__channel_free(&h->pipeline.channels[i]);
    hc_free(h->pipeline.channels);
    hc_free(h->pipeline.bounds);
    hc_free(h->pipeline.cut_pieces);
}

/* ---- the allreduce ------------------------------------------------------------------------------------- */

hc__means hc__net_means(const hc__hierarchy *h) {
    return h->batch->deterministic ? (hc__means){.algorithm = HC__DIRECT} : h->between.means;
}

hc__reduction hc__net_reduction(const hc_batch *batch) {
    return (hc__reduction){batch->reduction, (double)batch->divisor / (double)batch->node_divisor};
}

static int launch_allreduce(hc__hierarchy *h, hc__channel *channel, void *data) {
    const hc_batch *b = h->pipeline.batch;
    return hc__allreduce_start(channel, data, h->pipeline.bounds[1], b->wire_dtype, hc__net_reduction(b),
                               hc__net_means(h));
}

static int allreduce_start(hc__hierarchy *h) {
    return hc__pipeline_start(h, h->batch, NULL, launch_allreduce, HC__SHARD_BYTES);
}

const hc__operation hc__op_ALLREDUCE = {allreduce_start, hc__pipeline_test, NULL};
