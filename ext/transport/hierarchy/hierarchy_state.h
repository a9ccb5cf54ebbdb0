/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy_state.h - the state of a hierarchy, and the table of operations. (Private to ext/transport/hierarchy.)
 *
 * A stage is a state machine with start and test; its state is described beside its functions.
 */
#pragma once

#include "transport/hierarchy/allgather.h"
#include "transport/hierarchy/alltoall.h"
#include "transport/hierarchy/broadcast.h"
#include "transport/hierarchy/gather_bytes.h"
#include "transport/hierarchy/hierarchy.h"
#include "transport/hierarchy/pipeline.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/reducescatter.h"
#include "transport/hierarchy/results.h"
#include "transport/hierarchy/rooted_rows.h"
#include "transport/hierarchy/scan.h"
#include "transport/net/algorithms.h"

/* The state of a hierarchy between nodes. */
typedef struct hc__between {
    hc__team rail, leaders; /* rail: the ranks with my local rank; leaders: local rank 0 of all nodes */
    int32_t *rail_peers, *leader_peers;
    int32_t rails, tags; /* tags: the set's first */
    hc__net_model model;
    hc__means means;
    hc__splits splits; /* of the nodes */
} hc__between;

/* The longest chunks, in bytes: as configured (0: by the model), and at most. */
typedef struct hc__chunk_limits {
    int64_t bytes, most;
} hc__chunk_limits;

/* The arguments of the node's exchange. */
typedef struct hc__streams {
    hc_stream_part *parts; /* local_size entries */
    hc_stream_read *reads; /* likewise */
    int64_t *lengths;      /* set size + 1 entries */
} hc__streams;

typedef struct hc__hierarchy {
    hc_data base;
    hc_node *node;
    hc_net *net;
    hc_arithmetic *arithmetic; /* of the node's shards */
    hc__placement place;
    hc__between between;
    hc__chunk_limits chunks;

    hc_batch *batch; /* in progress, or NULL */
    int late;        /* a status to report when the batch is finished on all ranks */
    hc__streams streams;
    hc__pipeline pipeline;
    hc__gather gather;
    hc__broadcast broadcast;
    hc__alltoall alltoall;
    hc__rooted rooted;
    hc__scan scan;
    hc__allgather allgather;
    hc__node_scatter scatter;
    hc__results results;
} hc__hierarchy;

/* ---- rows --------------------------------------------------------------------------------------------------- */

static inline int64_t hc__row_bytes(const hc__hierarchy *h, int32_t piece) {
    return hc_piece_row_bytes(&h->batch->pieces[piece], h->batch->dtype);
}
/* Bytes of the counts of all pieces, from one rank to another. */
static inline int64_t hc__counts_bytes(const hc__hierarchy *h) {
    return h->batch->npieces * (int64_t)sizeof(hc__count);
}

/* ---- operations --------------------------------------------------------------------------------------- */

/* One row per operation, hc__op_NAME, defined by the file that implements it. */
typedef struct hc__operation {
    int (*start)(hc__hierarchy *); /* NULL: it moves no data, so no batch of it comes here */
    int (*test)(hc__hierarchy *);
    void (*end)(hc__hierarchy *); /* or NULL; called when the batch is done and when the data plane is freed */
} hc__operation;
#define X(name, text, traits) extern const hc__operation hc__op_##name;
HC_OPERATIONS(X)
#undef X
