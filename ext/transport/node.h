/* SPDX-License-Identifier: Apache-2.0
 *
 * node.h - the contract of a node: ranks that share memory, and the chunks of a batch in it. shm/shm.c implements it
 * for processes and threads on one machine.
 */
#ifndef HC_NODE_H
#define HC_NODE_H

#include "transport/batch.h"
#include "transport/progress.h"

/* The allreduce of a batch, or its reducescatter between nodes, runs in chunks through the shared segment; several
 * chunks may be in flight, each rank calls the stages of one chunk in this order, and of a stage in chunk order. So
 * does the broadcast of a node without exchange(), in which the root's chunk stands for the sum:
 *
 *     reduce(c)   my part of the chunk is packed, and the node's sum of my share of it is made
 *     shard(c)    (rail drivers only, when a net stage follows) where the rail's node sum lies, as wire_dtype: the
 *                 net allreduces it in place across nodes, or leaves each node its part of it
 *     publish(c)  (rail drivers only) the shard is final
 *     spread(c)   every share of the chunk is final and copied to the tensors here
 *
 * Rails: the chunk is cut into `rails` pieces, equal on all nodes; local rank j < rails drives rail j. rails 0: no net
 * stage; reduce makes final values and spread follows directly. A caller asks for spread(c) before reduce(c + 1), so
 * that what is in cache is used before more is fetched.
 *
 * chunk_elements 0 (rails 0 only): the node chooses. A chunk may be as large as hc_node_chunk_bytes() of the
 * largest node allows. */
int64_t hc_node_chunk_bytes(int32_t local_size);

/* A reducescatter between nodes: part i of the batch are the elements [bounds[i], bounds[i + 1]), and a chunk holds
 * as many of each. Parts own to own_end - 1 are for this node. The bounds stay valid until close. A node without
 * scatter() cuts the batch itself: its parts are the nodes, and bounds is NULL. */
typedef struct hc_parts {
    int32_t n, own, own_end;
    const int64_t *bounds;
} hc_parts;

typedef struct hc_stream {
    const void *data;
    int64_t bytes;
} hc_stream;
typedef struct hc_stream_read {
    void *out;
    int64_t offset, bytes;
} hc_stream_read;

typedef struct hc_node hc_node;
struct hc_node {
    const struct hc_node_ops *ops;
    int32_t local_rank, local_size;
    uint64_t packed_bytes, reduced_bytes, spread_bytes; /* of this rank */
};
struct hc_node_ops {
    const char *name;
    /* parts NULL: an allreduce, of one part. */
    int (*open)(hc_node *, const hc_batch *, const hc_parts *, int rails, int64_t chunk_elements, int64_t *nchunks);
    int (*depth)(hc_node *); /* chunks that may be between reduce and the end of spread */
    int (*reduce)(hc_node *, int64_t chunk);
    /* HC_DONE, or HC_IDLE where the shard is not there yet. bounds: where each part begins in the data, and the end. */
    int (*shard)(hc_node *, int64_t chunk, void **data, int64_t *bounds);
    int (*publish)(hc_node *, int64_t chunk);
    int (*spread)(hc_node *, int64_t chunk);
    int (*close)(hc_node *); /* after the last spread; the next open may follow at once */

    /* NULL, or the primitive of the other operations inside one node: each local rank offers a stream of bytes and
     * reads ranges of the others' streams. reads[q] says which range of local rank q's stream goes where (out NULL:
     * none). Every rank knows the lengths of all streams (lengths[q]). */
    int (*exchange)(hc_node *, const hc_stream *, const hc_stream_read *reads, const int64_t *lengths);
    /* NULL, or a reducescatter inside one node: local rank q's share of the stream is [bounds[q], bounds[q + 1])
     * elements and goes to its tensors' out. */
    int (*scatter)(hc_node *, const hc_batch *, const int64_t *bounds);
    void (*free)(hc_node *);
};

#endif
