/* SPDX-License-Identifier: Apache-2.0
 *
 * transport.h - the contracts of the transports: who owns what, who calls, what may fail.
 *
 * All functions are called by the driver only (one thread at a time, which need not always be the same
 * thread) unless marked [any thread]. None of them ever blocks, spins or sleeps: what cannot go on now
 * returns and is asked again. Waiting is the driver's business. A negative return is an hc_status.
 *
 *     hc_data      start and test a batch for one process set     hierarchy.c, composed of the next two
 *     hc_node      ranks that share memory: chunks of a batch     shm.c (processes; local worlds: threads)
 *     hc_net       point-to-point bytes between ranks             mpi.c, local.c
 *     hc_control   the tree's edges: small messages, FIFO         control.c over rings and hc_net
 *     hc_p2p      messages between two ranks: point-to-point.h              point-to-point.c over hc_control, cells and hc_net
 *     hc_arithmetic  memory, sums and conversions of what travels between nodes: arithmetic.h
 *
 * Each struct starts with its table of functions; an implementation puts the struct first in its own.
 */
#ifndef HC_TRANSPORT_H
#define HC_TRANSPORT_H

#include "core/hc.h"
#include "transport/arithmetic.h"

#include <stdlib.h>

/* What a call that may have to be repeated answers. */
enum hc_progress {
    HC_IDLE = 0,  /* not done, and nothing moved: the driver may wait */
    HC_MOVED = 1, /* not done, but something moved: ask again soon */
    HC_DONE = 2
};

/* ---- a batch, as the loop hands it to the data plane -------------------------------------------- */

/* One tensor of a batch. Elements are contiguous at `in` and `out` (the boundary made them so).
 *   allreduce      in and out hold `count` elements; they may be the same memory
 *   broadcast      the root reads in, the others write out (root: out may be in or elsewhere)
 *   reducescatter  in holds rows x row elements; out this rank's rows (first rows % p ranks: one more)
 *   allgather      in holds own rows x row elements; out NULL: the data plane allocates
 *   alltoall       in holds count elements, send_rows[i] rows for set rank i; out as for allgather
 *   reduce         as allreduce on the root; the others have no out (drop or not)
 *   gather         in holds own rows x row elements; on the root out, out_rows and recv_rows as for allgather, out NULL on
 *                  the others
 *   scatter        on the root in holds rows x row elements, send_rows[i] rows for set rank i (NULL: hc_share()); the
 *                  others have no in and ignore rows and send_rows. On all ranks out NULL: the data plane allocates
 *   scan, exscan   in and out hold count elements and may be the same memory; rank r's out is the reduction over ranks 0 to
 *                  r, or (exscan) to r - 1, in this order; exscan on rank 0: the neutral element
 * in NULL:  this rank has joined: neutral element (allreduce, reducescatter), nothing (the others).
 * out NULL with `drop` set: the result is not wanted here (joined). */
typedef struct hc_piece {
    const void *in;
    void *out;
    int64_t count; /* elements of this rank's input (agreed for allreduce, broadcast, reducescatter) */
    int64_t row;   /* elements a row (product of dims[1:]); 1 for allreduce */
    int64_t rows;  /* reducescatter, allgather: of this rank's input; rows of no elements count as well */
    double scale;  /* SUM, AVERAGE of inexact types: one factor, applied to the node's sum */
    uint8_t drop;
    uint8_t out_owned;        /* set by the data plane: out was allocated by hc_result_new() */
    int64_t out_capacity;     /* bytes at out, when the caller brought it */
    int64_t out_rows;         /* result: rows received (allgather, alltoall, reducescatter) */
    const int64_t *send_rows; /* alltoall: p entries, caller's */
    int64_t *recv_rows;       /* result (alltoall, allgather): p entries, room given by the caller */
} hc_piece;

typedef struct hc_batch {
    uint8_t operation, reduction;
    uint8_t dtype;
    uint8_t wire_dtype; /* allreduce: between nodes; dtype, or the compression's */
    uint8_t memory;
    uint8_t deterministic; /* equal bits whatever the fusion: sums in rank order everywhere */
    int32_t root;          /* set rank, or -1 */
    int64_t divisor;       /* AVERAGE of integers: the exact sum is divided by this, towards zero; else 1 */
    int64_t count;         /* allreduce: elements of all pieces together */
    int32_t npieces;
    hc_piece *pieces;
    /* Device memory: events of the device's driver, one of each kind a call in this batch (a joined rank has none),
     * which are the calls' own. The data plane's streams wait for all that are `ready` before they touch a tensor, and
     * record all that are `finished` behind the last work on one: HC_DONE says that this work has been launched. */
    int32_t ncalls;
    void *const *ready, *const *finished;
} hc_batch;

/* Rows of rank r's share of a reducescatter's `rows` among p ranks, and where it begins: the first rows % p ranks have one
 * more. */
static inline int64_t hc_share(int64_t rows, int32_t p, int32_t r) {
    return rows / p + (r < rows % p);
}
static inline int64_t hc_share_begin(int64_t rows, int32_t p, int32_t r) {
    return r * (rows / p) + (r < rows % p ? r : rows % p);
}

/* The tensors of a batch as one concatenation: starts[i] is where tensor i begins, starts[npieces] the end. */
static inline int hc_starts_reserve(int64_t **starts, int32_t *room, int32_t npieces) { /* grows; OK, or NO_MEMORY */
    if (npieces + 1 <= *room)
        return HC_OK;
    int64_t *grown = realloc(*starts, 2 * ((size_t)npieces + 1) * sizeof *grown);
    if (!grown)
        return HC_NO_MEMORY;
    *starts = grown;
    *room = 2 * (npieces + 1);
    return HC_OK;
}
/* The last tensor that begins at or before a place. */
static inline int32_t hc_piece_at(const int64_t *starts, int32_t npieces, int64_t place) {
    int32_t low = 0, high = npieces;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (starts[middle] <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- net: point-to-point bytes ------------------------------------------------------------------- */

/* Ranks are the World's. Messages between two ranks with one tag are matched in order. Any size up to
 * 2^63-1 (cut inside where the library counts in int). Buffers belong to the net until test says so. */
#define HC_NET_VERSION 4 /* of struct hc_net: extensions that are built apart compare it */
typedef struct hc_scope {
    void *(*enter)(void *of); /* what leave() is given */
    void (*leave)(void *of, void *before);
    void *of;
} hc_scope;

typedef struct hc_net hc_net;
typedef struct hc_net_request hc_net_request;
struct hc_net {
    const struct hc_net_ops *ops;
    int32_t rank, size;
    int32_t max_tag;
    int64_t message_bytes; /* longer messages are best cut to this (by the caller, on both sides); 0: never */
    hc_counter sent_messages, sent_bytes, received_bytes; /* counted by the implementation, payload only */
    uint8_t abandoned; /* set by the loop: the World is broken, free() must not wait for the others */
    const char *text;  /* the library's own words about the last failure, or NULL */
};
#define HC_ANY_PEER (-1)
struct hc_net_ops {
    const char *name;
    int (*isend)(hc_net *, int32_t peer, int32_t tag, const void *, size_t bytes, hc_net_request **);
    int (*irecv)(hc_net *, int32_t peer, int32_t tag, void *, size_t room, hc_net_request **);
    /* HC_DONE frees the request, sets *req to NULL and, for a receive, *bytes and *peer (both may be NULL).
     * A message longer than `room` is TRANSPORT. */
    int (*test)(hc_net *, hc_net_request **req, size_t *bytes, int32_t *peer);
    /* Best effort: the buffer may not be touched after this returns OK. */
    int (*cancel)(hc_net *, hc_net_request **req);
    /* NULL where nothing has to be done for memory that the net's library copies only within a scope of the calling thread
     * (a device's context). Else from now on every call of the library is made within `scope`, which is copied; NULL ends
     * that. Several users give the same scope: it holds until each of them has ended it. */
    void (*surround)(hc_net *, const hc_scope *scope);
    void (*free)(hc_net *);
};
/* What a capsule "hpccoll.net" of Python points to. The capsule owns both. */
typedef struct hc_net_box {
    int version; /* HC_NET_VERSION, as the maker's compiler saw it */
    hc_net *net;
} hc_net_box;
/* Tags: 256 a set. The last ones are fixed, the others belong to the algorithms as they like. */
#define HC_TAGS_PER_SET 256
#define HC_TAG_CONTROL 255
#define HC_TAG_P2P 254

/* ---- node: ranks that share memory ---------------------------------------------------------------- */

/* The allreduce of a batch, or its reducescatter between nodes, runs in chunks through the shared segment; several
 * chunks may be in flight, each rank calls the stages of one chunk in this order, and of a stage in chunk order. So does
 * the broadcast of a node without exchange(), in which the root's chunk stands for the sum:
 *
 *     reduce(c)   my part of the chunk is packed, and the node's sum of my share of it is made
 *     shard(c)    (rail drivers only, when a net stage follows) where the rail's node sum lies, as wire_dtype: the
 *                 net allreduces it in place across nodes, or leaves each node its part of it
 *     publish(c)  (rail drivers only) the shard is final
 *     spread(c)   every share of the chunk is final and copied to the tensors here
 *
 * Rails: the chunk is cut into `rails` pieces, equal on all nodes; local rank j <
 * rails drives rail j. rails 0: no net stage; reduce makes final values and spread follows directly. A caller
 * asks for spread(c) before reduce(c + 1), so that what is in cache is used before more is fetched.
 *
 * chunk_elements 0 (rails 0 only): the node chooses. A chunk may be as large as hc_node_chunk_bytes() of the
 * largest node allows. */
#define HC_TABLE_MAX 1024
int64_t hc_node_chunk_bytes(int32_t local_size);

/* A reducescatter between nodes: part i of the batch are the elements [bounds[i], bounds[i + 1]), and a chunk holds
 * as many of each. Parts own to own_end - 1 are for this node. The bounds stay valid until close. A node without
 * scatter() cuts the batch itself: its parts are the nodes, and bounds is NULL. */
typedef struct hc_parts {
    int32_t n, own, own_end;
    const int64_t *bounds;
} hc_parts;

typedef struct hc_offer {
    const void *data;
    int64_t bytes;
} hc_offer;
typedef struct hc_want {
    void *out;
    int64_t offset, bytes;
} hc_want;

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

    /* The other operations inside one node, by one primitive (NULL: this node has none): each local rank offers a
     * stream of bytes, and reads ranges of the others' streams. `offer` is this rank's; want[q] says which range of local rank
     * q's stream goes where (out NULL: none). All streams' lengths are known to all (lengths[q]). */
    int (*exchange)(hc_node *, const hc_offer *, const hc_want *want, const int64_t *lengths);
    /* One int64 vector of n entries a rank to all local ranks: table[q * n + i]. n <= HC_TABLE_MAX. */
    int (*table)(hc_node *, const int64_t *own, int32_t n, int64_t *table);
    /* NULL, or a reducescatter inside one node: local rank q's share of the stream is [bounds[q], bounds[q + 1])
     * elements and goes to its tensors' out. */
    int (*scatter)(hc_node *, const hc_batch *, const int64_t *bounds);
    void (*free)(hc_node *);
};

/* ---- data: one process set's data plane ------------------------------------------------------------ */

/* A message's array in device memory. Point-to-point moves host memory, which the data plane lends. */
typedef struct hc_staging {
    void *device, *host;
    uint64_t bytes;         /* not 0 */
    void *ready, *finished; /* as of hc_batch */
    void *own;              /* the data plane's, while it lends */
} hc_staging;

/* A set has a data plane for each kind of memory. Together they run one batch at a time, in log order; the batch and all it
 * points to stay valid until test says HC_DONE or an error. Nothing finite is shared with other sets (rule B3 of
 * docs/control-plane.md). */
typedef struct hc_data hc_data;
struct hc_data {
    const struct hc_data_ops *ops;
    const char *text;      /* words about the last failure, or NULL */
    uint8_t needs_polling; /* set while a batch waits for what rings no bell (a device): the driver looks again soon */
};
struct hc_data_ops {
    const char *name;
    int (*start)(hc_data *, hc_batch *);
    /* enum hc_progress, or a status: RESULT_SIZE, the batch has ended but a result here had no room; any other
     * breaks the World. */
    int (*test)(hc_data *);
    void (*abandon)(hc_data *); /* after a failure: cancel, touch the caller's memory no more */
    void (*free)(hc_data *);
    /* NULL, or asked now and then: does what was launched by batches that have ended go on? OK, or a status that breaks
     * the World. */
    int (*watch)(hc_data *);
    /* NULL where there is no device. Any number of staging buffers, beside batches: each is opened, which lends memory and begins
     * to copy down what is sent; tested until it is there (HC_DONE); or, where it was received, delivered, which launches
     * the copy up; and closed, whatever became of it. A status breaks the World. */
    int (*staging_open)(hc_data *, hc_staging *, int sends);
    int (*staging_test)(hc_data *, hc_staging *);
    int (*staging_deliver)(hc_data *, hc_staging *);
    void (*staging_close)(hc_data *, hc_staging *);
};

/* Makes a set's data planes for other kinds of memory than the host's, each for the first batch or message in it. */
typedef struct hc_plane_maker hc_plane_maker;
struct hc_plane_maker {
    /* OK, or a status with `text` (HC_PLANE_TEXT bytes), which breaks the World. [driver] */
    int (*make)(hc_plane_maker *, int memory, hc_data **, char *text);
    void (*free)(hc_plane_maker *); /* behind all planes of the set */
};
#define HC_PLANE_TEXT 256

/* The host's composition. `node` (owned) covers the set's ranks of this node; `net` (borrowed) may be NULL when
 * the set lies inside one node. node_of[i]: node of set rank i, numbered from 0 by first appearance. */
typedef struct hc_hierarchy_config {
    uint32_t set;
    int32_t set_rank, set_size;
    const int32_t *members;    /* World rank of each set rank; copied */
    const int32_t *node_of;    /* copied */
    int32_t rails;             /* at most, and at most the smallest node's ranks; 0: chosen */
    int64_t chunk_bytes;       /* 0: chosen */
    int64_t chunk_most;        /* bytes that a chunk may have on all nodes; 0: hc_node_chunk_bytes() of the largest */
    double alpha, beta;        /* the net's model: seconds a message, seconds a byte; 0: defaults */
    const char *algorithm;     /* "auto", "recursive_doubling", "direct", "ring", "rabenseifner" */
    hc_arithmetic *arithmetic; /* of the memory that the node's shards are in; NULL: the host's */
} hc_hierarchy_config;
int hc_hierarchy_new(const hc_hierarchy_config *, hc_node *node, hc_net *net, hc_data **);

/* What the maker of a set's data plane for another kind of memory is given. An extension of its own makes it, which is not
 * linked with this code: what it needs of it comes along. */
#define HC_PLANE_VERSION 1 /* of this struct and all that it leads to; the extension compares it */
typedef struct hc_plane_parts {
    int version;
    hc_hierarchy_config place; /* as of the host's plane; copied */
    hc_data *host;             /* the host's plane: borrowed, and idle whenever the other one has a batch */
    hc_net *net;               /* borrowed; NULL inside one node */
    int (*new_hierarchy)(const hc_hierarchy_config *, hc_node *, hc_net *, hc_data **);
    void (*neutral)(void *to, int dtype, int reduction, int64_t n); /* hc_host_neutral() */
} hc_plane_parts;

/* ---- control: the tree's edges --------------------------------------------------------------------- */

/* Messages of any size, whole, FIFO per pair of ranks. send takes a copy and never fails for lack of room. */
typedef struct hc_control hc_control;
struct hc_control {
    const struct hc_control_ops *ops;
    hc_counter local_messages, local_bytes, net_messages, net_bytes;
    uint32_t waiting; /* ranks to which something has not left, or that progress has not yet reported */
};
struct hc_control_ops {
    int (*send)(hc_control *, int32_t peer, const void *, size_t bytes);
    /* The next whole message, valid until the next receive: HC_DONE, or HC_IDLE. */
    int (*receive)(hc_control *, int32_t *peer, const uint8_t **bytes, size_t *nbytes);
    /* Moves what is queued. *peer: a rank whose queue just became empty, or -1 (the loop says SENT). */
    int (*progress)(hc_control *, int32_t *peer);
    void (*free)(hc_control *);
};

#endif
