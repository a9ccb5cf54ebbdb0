/* SPDX-License-Identifier: Apache-2.0
 *
 * node.h - the contract of a node: ranks that share memory and run a batch in chunks. shm/shm.c implements it for
 * processes and threads on one machine, ext/cuda/nccl for GPUs.
 */
#pragma once

#include "transport/arithmetic.h"
#include "transport/batch.h"
#include "transport/progress.h"

/* The longest chunk that a node of so many ranks can hold, in bytes of the batch's dtype. The node holds
 * HC_NODE_SLOTS such chunks of each rank's input, and HC_NODE_RESULTS of the sum. */
int64_t hc_node_chunk_bytes(int32_t local_size);
#define HC_NODE_PAGE ((size_t)4096)
#define HC_NODE_SLOTS 3
#define HC_NODE_RESULTS 6
/* The bytes that a chunk of so many bytes takes there. */
static inline size_t hc_node_stride(size_t bytes) {
    return bytes > 0 ? (bytes + HC_NODE_PAGE - 1) / HC_NODE_PAGE * HC_NODE_PAGE : HC_NODE_PAGE;
}

/* The ranks of a node that drive the network: each chunk is cut into `count` rails, equal on all nodes, and local rank
 * j < count drives rail j; or, if the ranks take turns, each chunk is one rail, and local rank c % count drives that of
 * chunk c. count 0: no net stage. */
typedef struct hc_rails {
    int32_t count;
    int takes_turns;
    int32_t under_way; /* chunks that may be between reduce and the end of spread; equal on all nodes */
} hc_rails;

/* The number of rails of a chunk. */
static inline int32_t hc_rails_per_chunk(const hc_rails *rails) {
    return rails->takes_turns ? 1 : rails->count;
}

/* The rail of this chunk that a rank drives, or -1. */
static inline int32_t hc_rail_driven(const hc_rails *rails, int32_t local_rank, int64_t chunk) {
    if (rails->takes_turns)
        return rails->count > 0 && chunk % rails->count == local_rank ? 0 : -1;
    return local_rank < rails->count ? local_rank : -1;
}

/* An allreduce, a reduce, a reducescatter between nodes, and a broadcast (between nodes, or of a node without
 * exchange()) run in chunks. In a broadcast the root's chunk replaces the sum; the net brings it to the other nodes.
 * Several chunks may be in flight. Each rank calls the stages of a chunk in this order, and each stage in the order of
 * the chunks:
 *
 *     reduce(c)   packs my part of the chunk, and forms the node's sum of my share of it
 *     shard(c)    (rail drivers only, if a net stage follows) gives the address of the rail's sum, as wire_dtype; the
 *                 net then allreduces it in place across nodes, or leaves each node its part
 *     publish(c)  (rail drivers only) the shard is final
 *     spread(c)   copies the chunk to this rank's tensors, once every share of it is final
 *
 * Without a net stage reduce makes final values and spread follows directly. A caller calls spread(c) before
 * reduce(c + 1), to use the chunk while it is in the cache.
 *
 * chunk_elements 0 (without a net stage only): the node chooses. A chunk may be as large as hc_node_chunk_bytes() of
 * the largest node allows. */

/* For a reducescatter between nodes: part i of the batch has the elements [bounds[i], bounds[i + 1]), and a chunk holds
 * equally many of each part. Parts own to own_end - 1 are for this node. The bounds stay valid until close. A node
 * without scatter() cuts the batch itself: its parts are the nodes, and bounds is NULL. */
typedef struct hc_parts {
    int32_t n, own, own_end;
    const int64_t *bounds;
} hc_parts;

typedef struct hc_stream_part {
    const void *data;
    int64_t bytes;
} hc_stream_part;
typedef struct hc_stream_read {
    void *out;
    int64_t offset, bytes;
} hc_stream_read;

typedef struct hc_node hc_node;
struct hc_node {
    const struct hc_node_ops *ops;
    int32_t local_rank, local_size;
    uint64_t packed_bytes, reduced_bytes, spread_bytes; /* of this rank */
    enum hc_stores results;                             /* of copies into the program's results: expect() */
    int64_t turns; /* chunks and rounds of the operation so far; its beginning sets 0 */
};
struct hc_node_ops {
    const char *name;
    int takes_turns; /* whether open() allows ranks that take turns */
    /* parts NULL: an allreduce, of one part. */
    int (*open)(hc_node *, const hc_batch *, const hc_parts *, const hc_rails *, int64_t chunk_elements,
                int64_t *nchunks);
    int (*depth)(hc_node *); /* chunks that may be between reduce and the end of spread */
    int (*reduce)(hc_node *, int64_t chunk);
    /* HC_DONE; HC_IDLE: the shard is not ready. bounds: the first element of each part in the data, and the end. */
    int (*shard)(hc_node *, int64_t chunk, void **data, int64_t *bounds);
    int (*publish)(hc_node *, int64_t chunk);
    int (*spread)(hc_node *, int64_t chunk);
    int (*close)(hc_node *); /* after the last spread; the next open may follow at once */

    /* The primitive of the other operations inside one node, or NULL: each local rank offers a stream of bytes, the
     * concatenation of n parts, and reads ranges of all streams. reads[q]: the range of local rank q's stream, and its
     * destination (out NULL: none). Every rank knows the lengths of all streams (lengths[q]). All bytes of a stream are
     * copied for the others, so it has none that only its owner needs. readers: the most other ranks that read a byte;
     * the same on all ranks. */
    int (*exchange)(hc_node *, const hc_stream_part *parts, int32_t n, const hc_stream_read *reads,
                    const int64_t *lengths, int32_t readers);
    /* A reducescatter inside one node, or NULL: local rank q's share is the elements [bounds[q], bounds[q + 1]), and
     * goes to the outs of its tensors. */
    int (*scatter)(hc_node *, const hc_batch *, const int64_t *bounds);
    /* Chooses `results` for the next copies; open() does it itself. NULL: ordinary stores. passing: the bytes of this
     * rank's input and results. */
    void (*expect)(hc_node *, int64_t passing);
    /* The batch is given up: the program may use its memory again, of which other ranks may be reading. Or NULL. */
    void (*abandon)(hc_node *);
    void (*free)(hc_node *);
};

/* Copies into the memory of a result that no rank reads again in this batch. */
static inline void hc_node_copy_result(const hc_node *node, void *to, const void *from, size_t bytes) {
    if (node->results == HC_STORES_STREAM && bytes >= HC_STREAM_LEAST)
        hc_shared_copy(to, from, bytes, HC_STORES_STREAM);
    else
        hc_host_copy(to, from, bytes);
}
