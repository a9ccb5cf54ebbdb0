/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.c - the pipeline that moves chunks of a batch through node, net and node again: for an allreduce, a reduce,
 * a reducescatter between nodes, and a broadcast in chunks.
 *
 *     chunk c + 2     packed and reduced in the node
 *     chunk c + 1     the shard of this rail moves between the nodes
 *     chunk c         published, copied to the tensors
 *
 * Each stage takes the chunks in order. The net may finish them in any order, as each chunk has its channel (a tag and
 * buffers). The room in the node limits the chunks between the first and the last stage. Reducing in the node before
 * the network, with several rails per node, follows Romero et al., "Accelerating Collective Communication in Data
 * Parallel Training across Deep Learning Frameworks" (NSDI 2022).
 */
#include "transport/hierarchy/pipeline.h"

#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/tags.h"

#include <stdlib.h>

/* ---- the cut of a batch ---------------------------------------------------------------------------------- */

/* All nodes compute the cut from the same numbers, and it fits the largest node.
 *
 * Among more than FEW_NODES a chunk waits for several rounds, so twice as many chunks of half the size gain, as long as
 * a shard is not too small for its messages. An allreduce, and others in stages, have so many messages there that they
 * keep a rank's processor busy. So the ranks of a node take turns: each has a part of the messages, and each message
 * has the bytes of a whole chunk. The simulator shows both gains (docs/scaling-to-summit.md). */
#ifndef FEW_NODES
#define FEW_NODES 8
#endif
#ifndef LEAST_SHARD_BYTES
#define LEAST_SHARD_BYTES ((int64_t)40 << 10)
#endif
#define TURN_BYTES ((int64_t)192 << 10) /* of a chunk on the wire, if the ranks take turns */
#define LONGEST_UNDER_WAY 4 /* of the longest chunks; among few nodes more do not gain, and leave the caches */
#define FEW_UNDER_WAY 8
#define TURNS_UNDER_WAY 16

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

static int take_turns(const hc__hierarchy *h, const hc_batch *b) {
    int64_t bytes = b->count * (int64_t)hc_dtype_size(b->wire_dtype);
    int fit = h->place.nodes > FEW_NODES && h->between.rails > 1;
    int has_many_messages = b->operation == HC_ALLREDUCE || h->pipeline.stages;
    return has_many_messages && h->node->ops->takes_turns && fit && bytes >= LEAST_SHARD_BYTES * h->between.rails;
}

static int64_t chunk_of_rails(const hc__hierarchy *h, const hc_batch *b, int64_t limit, int64_t shard_bytes) {
    int64_t wire = (int64_t)hc_dtype_size(b->wire_dtype), rails = h->between.rails;
    if (h->place.nodes > FEW_NODES && limit / 2 * wire >= LEAST_SHARD_BYTES * rails)
        limit /= 2;
    return least(shard_bytes / wire * rails, limit);
}

/* Each rank gets equally many chunks of equal length. */
static int64_t chunk_of_turn(const hc__hierarchy *h, const hc_batch *b, int64_t limit) {
    int64_t wire = (int64_t)hc_dtype_size(b->wire_dtype), unit = 64 / wire;
    int64_t turns = divide_up(divide_up(b->count, least(TURN_BYTES / wire, limit)), h->between.rails);
    return least(divide_up(divide_up(b->count, turns * h->between.rails), unit) * unit, limit);
}

/* Elements per chunk; 0: the node chooses. */
static int64_t choose_chunk(const hc__hierarchy *h, const hc_batch *b, const hc_rails *rails, int64_t shard_bytes) {
    int64_t size = (int64_t)hc_dtype_size(b->dtype), limit = h->chunks.most / size;
    if (h->chunks.bytes > 0)
        return least(h->chunks.bytes < size ? 1 : h->chunks.bytes / size, limit);
    return rails->takes_turns ? chunk_of_turn(h, b, limit) : chunk_of_rails(h, b, limit, shard_bytes);
}

/* The largest node has room for so many. */
static int32_t most_under_way(const hc__hierarchy *h, const hc_batch *b, const hc_rails *rails, int64_t chunk) {
    int64_t most = h->chunks.most;
    size_t longest = (size_t)least(chunk, b->count);
    int64_t input = (int64_t)hc_node_stride(longest * hc_dtype_size(b->dtype));
    int64_t sum = (int64_t)hc_node_stride(longest * hc_dtype_size(b->wire_dtype));
    return (int32_t)(rails->takes_turns ? least(HC_NODE_RESULTS * most / sum, TURNS_UNDER_WAY)
                                        : least(LONGEST_UNDER_WAY * most / input, FEW_UNDER_WAY));
}

/* ---- the pipeline ---------------------------------------------------------------------------------------- */

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

/* The first chunk of which this rank drives a rail; nchunks: there is none. */
static int64_t first_driven(const hc__hierarchy *h) {
    const hc__pipeline *p = &h->pipeline;
    int64_t first = p->rails.takes_turns ? h->place.local_rank : 0;
    return hc_rail_driven(&p->rails, h->place.local_rank, first) >= 0 ? least(first, p->nchunks) : p->nchunks;
}

int hc__pipeline_start(hc__hierarchy *h, const hc_batch *batch, const hc_parts *parts, hc__launch *launch,
                       int64_t shard_bytes, const hc__stages *stages) {
    hc__pipeline *p = &h->pipeline;
    p->batch = batch;
    p->launch = launch;
    p->stages = stages;
    p->rails = (hc_rails){.count = h->between.rails, .takes_turns = take_turns(h, batch)};
    p->reduced = p->spread = 0;
    if (!p->bounds)
        p->bounds = hc_malloc(((size_t)h->place.size + 1) * sizeof *p->bounds);
    if (!p->bounds)
        return HC_NO_MEMORY;
    int64_t chunk = choose_chunk(h, batch, &p->rails, shard_bytes);
    p->rails.under_way = chunk > 0 ? most_under_way(h, batch, &p->rails, chunk) : 0;
    int status = h->node->ops->open(h->node, batch, parts, &p->rails, chunk, &p->nchunks);
    if (status < 0)
        return status;
    p->depth = h->node->ops->depth(h->node);
    p->step = p->rails.takes_turns ? p->rails.count : 1;
    p->launched = p->published = first_driven(h);
    return p->launched < p->nchunks ? make_channels(h, divide_up(least(p->depth, p->nchunks), p->step)) : HC_OK;
}

static int drives(const hc__hierarchy *h, int64_t chunk) {
    return hc_rail_driven(&h->pipeline.rails, h->place.local_rank, chunk) >= 0;
}

static hc__channel *channel(hc__pipeline *p, int64_t chunk) {
    return &p->channels[chunk / p->step % p->nchannels];
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
    if (p->launched >= p->reduced || p->launched == p->published + p->nchannels * p->step)
        return HC_IDLE;
    int status = h->node->ops->shard(h->node, p->launched, &data, p->bounds);
    if (status != HC_DONE)
        return status;
    status = p->launch(h, channel(p, p->launched), data);
    if (status < 0)
        return status;
    p->launched += p->step;
    return HC_MOVED;
}

/* Tests every channel, and publishes the chunks that are complete, in order. */
static int publish_next(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    int moved = 0;
    for (int64_t c = p->published; c < p->launched; c += p->step) {
        int status = hc__channel_test(channel(p, c));
        if (status < 0)
            return status;
        moved |= status == HC_MOVED;
        if (status != HC_DONE || c != p->published)
            continue;
        status = h->node->ops->publish(h->node, c);
        if (status < 0)
            return status;
        p->published += p->step;
        moved = 1;
    }
    return moved ? HC_MOVED : HC_IDLE;
}

static int spread_next(hc__hierarchy *h) {
    hc__pipeline *p = &h->pipeline;
    if (p->spread >= (drives(h, p->spread) ? p->published : p->reduced))
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
    return hc__pipeline_start(h, h->batch, NULL, launch_allreduce, HC__SHARD_BYTES, NULL);
}

const hc__operation hc__op_ALLREDUCE = {allreduce_start, hc__pipeline_test, NULL};
