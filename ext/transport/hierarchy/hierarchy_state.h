/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy_state.h - the state of a hierarchy, stage by stage. (Private to ext/transport/hierarchy.)
 */
#ifndef HC_HIERARCHY_STATE_H
#define HC_HIERARCHY_STATE_H

#include "transport/hierarchy/hierarchy.h"
#include "transport/net/algorithms.h"

/* Tags of a set: the pipeline's channels first, then one tag per purpose. Messages between two ranks with one tag
 * are matched in order, and every rank posts the messages of one batch before those of the next, so a purpose
 * never needs a second tag. */
enum hc__tag {
    HC__TAG_CHANNELS = 0,
    HC__TAG_GATHER = 64,
    HC__TAG_BROADCAST = 65,
    HC__TAG_COUNTS = 66,
    HC__TAG_ALLTOALL = 67,
    HC__TAG_ROOTED = 68,
    HC__TAG_SCAN = 69
};
#define HC__MAX_CHANNELS 64

typedef struct hc__hierarchy hc__hierarchy;

/* ---- placement: which ranks share a node ---------------------------------------------------------------------- */

typedef struct hc__placement {
    int32_t rank, size;  /* in the set */
    int32_t nodes, node; /* how many, and mine */
    int32_t local_rank, local_size;
    int32_t smallest, largest; /* ranks of the smallest and the largest node */
    int32_t *world;            /* World rank of each set rank */
    int32_t *node_of;          /* node of each set rank */
    int32_t *by_node;          /* the set ranks node after node, ascending in each */
    int32_t *first;            /* where a node begins in by_node; nodes + 1 entries */
} hc__placement;

int hc__placement_new(const hc_hierarchy_config *, hc__placement *);
void hc__placement_free(hc__placement *);
/* Set rank of local rank j of a node. */
static inline int32_t hc__set_rank(const hc__placement *p, int32_t node, int32_t j) {
    return p->by_node[p->first[node] + j];
}

/* ---- stages, each a state machine with start and test ------------------------------------------------ */

/* Starts the network's stage of one chunk: `data` is what this node has of it, in pipeline.bounds. */
typedef int hc__launch(hc__hierarchy *, hc__channel *, void *data);

/* The pipeline of allreduce, and of others between nodes. */
typedef struct hc__pipeline {
    const hc_batch *batch;
    hc__launch *launch;
    int64_t *bounds; /* of the parts of a shard; set size + 1 entries */
    int64_t nchunks, depth;
    int64_t reduced, launched, published, spread; /* chunks that have passed each stage here */
    hc__channel *channels;                        /* chunk c runs on channel c % nchannels */
    int32_t nchannels;
    hc_batch cut; /* reducescatter: the same batch, its pieces cut and sorted by node */
    hc_piece *cut_pieces;
    int32_t room; /* of cut_pieces */
} hc__pipeline;

/* All ranks' bytes to all ranks, of lengths that every rank knows. */
typedef struct hc__gather {
    const void *in;
    char *out;
    int64_t *lengths, *offsets; /* by set rank; size + 1 offsets */
    int stage;
    int32_t step;
    hc__bundle bundle;
} hc__gather;

/* A place in the batch's pieces taken as one stream, which steps from segment to segment; a segment never
 * crosses from one piece into the next. */
typedef struct hc__cursor {
    int32_t piece;
    int64_t offset;   /* bytes into the piece */
    int64_t position; /* bytes into the stream */
    int64_t step;     /* longest segment */
} hc__cursor;

typedef struct hc__broadcast {
    char **at;   /* of each piece: where this rank has it, or gets it; NULL: not wanted */
    void *spare; /* for a representative whose own result is dropped */
    int64_t bytes;
    hc__cursor posted, arrived, forwarded, exchanged;
    int32_t parent, nchildren, children[32]; /* World ranks */
    hc__bundle sends;
    hc_net_request *receives[8]; /* the next segments from the parent */
    int64_t nposted, narrived;   /* segments */
} hc__broadcast;

/* What a rank tells another of one piece. */
typedef struct hc__count {
    int64_t rows;  /* that the one sends to the other */
    int64_t total; /* rows that it sends to all ranks, */
    int64_t room;  /* and hc__room_of() its result: the same for every rank */
} hc__count;

typedef struct hc__alltoall {
    int stage;
    int32_t piece, step;
    hc__count *counts;            /* [set rank][piece]: what I send there */
    hc__count *incoming;          /* [set rank][piece]: what comes from there */
    hc__count *table;             /* [local rank][set rank][piece]: what my node's ranks send */
    int64_t *from_here, *to_here; /* of the piece under way: bytes before each rank's, in and out */
    const char *in;
    char *out;
    void *spare;
    hc__bundle bundle;
    int locally_done;
} hc__alltoall;

/* gather and scatter */
typedef struct hc__rooted {
    int gathers, stage;
    int32_t piece, step; /* step: of the messages to or from other nodes */
    int64_t *told;       /* what each rank has told all others: see told_by() */
    int64_t *offsets;    /* of the piece under way: bytes before each rank's rows in the root's tensor */
    char *at_root;       /* the root's tensor: what is scattered, or the result of a gather */
    char *here;          /* this rank's rows */
    char *out;           /* this rank's result */
    void *spare;
    hc__bundle bundle;
    int done_near; /* with the stage's exchange inside the root's node */
} hc__rooted;

/* What a rank tells all others of one piece of an allgather. */
typedef struct hc__slice {
    int64_t rows; /* that it gives */
    int64_t room; /* hc__room_of() its result */
} hc__slice;

typedef struct hc__allgather {
    int32_t first, end; /* pieces that are under way together */
    hc__slice *slices;  /* [set rank][piece] */
    hc__slice *own_slices;
    int asks; /* the verdict on piece `first` is under way */
    void *out, *spare;
    char *packed_in, *packed_out; /* of several pieces: rank after rank, piece after piece */
} hc__allgather;

/* scan and exscan */
#define HC__SCAN_SLOTS 4
typedef struct hc__scan {
    int exclusive, at_once;
    int kind;                                      /* what the chain carries: the dtype's accumulation type */
    int64_t count, chunk, nchunks;                 /* elements in all, elements per chunk */
    int64_t posted, received, added, sent, passed; /* chunks that have come so far; passed: the slot is free again */
    int64_t step, steps;                           /* of the node's exchanges */
    int64_t *starts;                               /* where each piece begins in the concatenation */
    char *memory;                                  /* the chain's slots, or all ranks' values */
    char *own_values;                              /* this rank's values */
    const void **operands;                         /* room for one per rank */
    const char **values;                           /* the same */
    hc_net_request *receives[HC__SCAN_SLOTS], *sends[HC__SCAN_SLOTS];
    int stuck; /* a request could not be cancelled: memory may still be read or written */
} hc__scan;

/* A result of more bytes may find no memory, so all ranks are asked before its rows move. For a smaller one that finds
 * none there is a reserve, made before the ranks tell each other their rows; one per piece of a batch, up to RESERVES:
 * about a piece beyond them all ranks are asked. */
#ifndef HC__ASKED_BYTES
#define HC__ASKED_BYTES ((int64_t)256 << 10)
#endif
#define HC__RESERVES 4096

/* Has every rank a place for its result of one piece? What each says of it. */
typedef struct hc__vote {
    int64_t status; /* OK, RESULT_SIZE, NO_MEMORY */
    int64_t has, needs;
} hc__vote;

/* reducescatter inside one node. */
typedef struct hc__node_scatter {
    int32_t piece;
    int placed;
    hc_piece cut;
    hc_batch batch;
} hc__node_scatter;

struct hc__hierarchy {
    hc_data base;
    hc_node *node;
    hc_net *net;
    hc_arithmetic *arithmetic; /* of the node's shards */
    hc__placement place;
    hc__team rail, leaders; /* members: the ranks with my local rank, the first ranks, of all nodes */
    int32_t *rail_peers, *leader_peers;
    int32_t rails, tags; /* tags: the set's first */
    int64_t chunk_bytes, chunk_most;
    hc__net_model model;
    int algorithm;

    hc_batch *batch;       /* in progress, or NULL */
    int late;              /* a status to report when the batch is finished on all ranks */
    hc_stream_read *reads; /* local_size entries, for exchange */
    int64_t *lengths;      /* set size + 1 entries */
    hc__pipeline pipeline;
    hc__gather gather;
    hc__broadcast broadcast;
    hc__alltoall alltoall;
    hc__rooted rooted;
    hc__scan scan;
    hc__allgather allgather;
    hc__node_scatter scatter;
    hc__vote *votes; /* of all ranks, while a verdict is under way */
    void **reserves; /* room for nreserves, at most HC__RESERVES; an element may be NULL */
    int64_t nreserves;
    char why[160]; /* base.text, where there was no memory */
};

/* ---- operations --------------------------------------------------------------------------------------- */

/* One row per operation, hc__op_NAME, defined by the file that implements it. */
typedef struct hc__operation {
    int (*start)(hc__hierarchy *); /* NULL: it moves no data, and no batch of it comes here */
    int (*test)(hc__hierarchy *);
    void (*end)(hc__hierarchy *); /* NULL, or called when the batch is done, and when the data plane is freed */
} hc__operation;
#define X(name, text, traits) extern const hc__operation hc__op_##name;
HC_OPERATIONS(X)
#undef X

/* parts NULL: one part. The bounds are copied nowhere: they stay until the end. */
int hc__pipeline_start(hc__hierarchy *, const hc_batch *, const hc_parts *parts, hc__launch *);
int hc__net_algorithm(const hc__hierarchy *); /* of the batch's reduction between nodes */
hc__reduction hc__net_reduction(const hc_batch *);
int hc__pipeline_test(hc__hierarchy *);
void hc__pipeline_abandon(hc__hierarchy *);
void hc__pipeline_free(hc__hierarchy *);

/* gather.lengths must be set; in may be NULL when the own length is 0. `out` has room for all. */
int hc__gather_start(hc__hierarchy *, const void *in, void *out);
int hc__gather_test(hc__hierarchy *);

void hc__broadcast_abandon(hc__hierarchy *);
void hc__scan_abandon(hc__hierarchy *);

/* ---- results ------------------------------------------------------------------------------------------ */

/* Where `rows` rows of the piece's result go: the caller's memory, or memory made here. *spare (released
 * first) is used where the result is not wanted, or the caller's room has another size: then the batch goes on,
 * because others need this rank, and RESULT_SIZE is reported at its end. */
int hc__place_result(hc__hierarchy *, hc_piece *, int64_t rows, void **spare, void **out);

/* ---- verdict: one outcome for a piece, on all ranks ------------------------------------------------------ */

/* Asks all ranks; `status` is what hc__place_result() gave here, `has` the rows of the caller's result, or -1. Then
 * hc__gather_test() until it is done, and hc__verdict_take(). */
int hc__verdict_start(hc__hierarchy *, const hc_piece *, int status, int64_t has);
/* 1: the piece is refused, on all ranks; 0: all have a place. */
int hc__verdict_take(hc__hierarchy *, hc_piece *);
void hc__verdict_end(hc__hierarchy *);
enum { HC__ROOM_LATER = -1, HC__ROOM_UNSURE = -2 };
/* Rows of the result that the caller brought. ROOM_LATER: it brought none, and a result of at most HC__ASKED_BYTES will
 * find memory; ROOM_UNSURE: it brought none, and this rank may have to refuse even a small one: all ranks are asked. */
int64_t hc__room_of(hc__hierarchy *, const hc_piece *);
/* The piece gets no result, on any rank, because of `rank`. */
void hc__refuse_piece(const hc__hierarchy *, hc_piece *, int32_t rank, const hc__vote *);

#endif
