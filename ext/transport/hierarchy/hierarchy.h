/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy.h - the data plane of one process set, composed of a node and a net.
 */
#pragma once

#include "transport/arithmetic.h"
#include "transport/data.h"
#include "transport/net/net.h"
#include "transport/node.h"

/* clang-format off */
#define HC_HIERARCHY_KNOBS(X) /* rows as in HC_ENGINE_KNOBS */                                                         \
    X(int32_t, rails, 0, 0, 1024, "ranks", HC_RANKS_AGREE, /* and at most the smallest node's ranks */                 \
      "ranks of a node that drive the network, at most; 0: chosen")                                                    \
    X(int64_t, chunk_bytes, 0, 0, 1 << 30, "bytes", HC_RANKS_AGREE,                                                    \
      "piece of a batch that moves at once through the stages; 0: chosen")                                             \
    X(int64_t, latency_bytes, 20000, 1, 1 << 30, "bytes", HC_RANKS_AGREE,                                              \
      "what a rail's link carries in the time of a message: larger values choose algorithms of fewer messages")        \
    X(uint8_t, exact_sums, 0, 0, 1, "", HC_RANKS_AGREE,                                                                \
      "sums of float16 and bfloat16 between nodes are rounded once: partial sums travel as float32, in twice the "     \
      "bytes; otherwise in 16 bits, rounded once per stage")
/* clang-format on */

/* `node` (owned) covers the set's ranks of this node; `net` (borrowed) may be NULL when
 * the set lies inside one node. node_of[i]: node of set rank i. The nodes have the numbers from 0 on, the nearest ones
 * next to each other. */
typedef struct hc_hierarchy_config {
    uint32_t set;
    int32_t set_rank, set_size;
    const int32_t *members; /* World rank of each set rank; copied */
    const int32_t *node_of; /* copied */
    int32_t group;          /* from the first node on so many share a switch, but for some of the last; 0: not known */
    HC_HIERARCHY_KNOBS(HC_KNOB_FIELD)
    int64_t chunk_most;        /* bytes that a chunk may have on all nodes; 0: hc_node_chunk_bytes() of the largest */
    double alpha, beta;        /* the net's model: seconds per message, seconds per byte; 0: latency_bytes, defaults */
    const char *algorithm;     /* "auto", "direct", "stages", "ring" */
    hc_arithmetic *arithmetic; /* for the memory of the node's shards; NULL: the host's */
} hc_hierarchy_config;
int hc_hierarchy_new(const hc_hierarchy_config *, hc_node *node, hc_net *net, hc_data **);

/* The argument of the maker of a set's data plane for device memory. That is a separate extension, which is not linked
 * with this code; so this struct has pointers to the functions that it needs. */
#define HC_PLANE_VERSION 4 /* of this struct and all structs it refers to; the extension compares it */
typedef struct hc_plane_parts {
    int version;
    hc_hierarchy_config place; /* as for the host's plane; copied */
    hc_data *host;             /* the host's plane: borrowed, and idle while the other plane has a batch */
    hc_net *net;               /* borrowed; NULL inside one node */
    int (*new_hierarchy)(const hc_hierarchy_config *, hc_node *, hc_net *, hc_data **);
    void (*neutral)(void *to, int dtype, int reduction, int64_t n); /* hc_host_neutral() */
} hc_plane_parts;
