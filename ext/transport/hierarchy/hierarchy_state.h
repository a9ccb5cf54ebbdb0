/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy_state.h - the state of a hierarchy, stage by stage. (Private to ext/transport/hierarchy.)
 */
#ifndef HC_HIERARCHY_STATE_H
#define HC_HIERARCHY_STATE_H

#include "transport/hierarchy/hierarchy.h"
#include "transport/net/algorithms.h"

/* Tags of a set: the pipeline's channels first, then one tag per purpose. Messages between two ranks with one tag are
 * matched in order, and every rank posts the messages of one batch before those of the next, so one tag per purpose is
 * enough. */
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
    int32_t nodes, node; /* number of nodes, and mine */
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
static inline int hc__is_far(const hc__placement *p, int32_t rank) { /* on another node */
    return p->node_of[rank] != p->node;
}

/* ---- stages, each a state machine with start and test ------------------------------------------------ */

/* Starts the network stage of one chunk: `data` is this node's shard, with the parts in pipeline.bounds. */
typedef int hc__launch(hc__hierarchy *, hc__channel *, void *data);

/* The pipeline of allreduce, and of other operations between nodes. */
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

/* Allgather of bytes whose lengths every rank knows. */
typedef struct hc__gather {
    const void *in;
    char *out;
    int64_t *lengths, *offsets; /* by set rank; size + 1 offsets */
    int stage;
    int32_t step;
    hc__bundle bundle;
} hc__gather;

/* A position in the stream of a batch's pieces. It advances by segments; a segment never spans two pieces. */
typedef struct hc__cursor {
    int32_t piece;
    int64_t offset;   /* bytes into the piece */
    int64_t position; /* bytes into the stream */
    int64_t step;     /* longest segment */
} hc__cursor;

typedef struct hc__broadcast {
    int in_chunks; /* the pipeline carries it */
    char **at;     /* the memory of each piece on this rank; NULL: not wanted */
    void *spare;   /* for a representative that needs no result */
    int64_t bytes;
    hc__cursor posted, arrived, forwarded, exchanged;
    int32_t parent, nchildren, children[32]; /* World ranks */
    hc__bundle sends;
    hc_net_request *receives[8]; /* the next segments from the parent */
    int64_t nposted, narrived;   /* segments */
} hc__broadcast;

/* The counts of one piece that a rank sends to another. */
typedef struct hc__count {
    int64_t rows;  /* from this rank to the other */
    int64_t total; /* rows from this rank to all ranks */
    int64_t room;  /* hc__room_of() its result; total and room are equal for all receivers */
} hc__count;

/* Few rows for a rank of another node travel with their counts: so many bytes from one rank to another, of all pieces
 * together. A second message costs more than the copies that these rows need on both sides. */
#ifndef HC__WITH_COUNTS_BYTES
#define HC__WITH_COUNTS_BYTES ((int64_t)16 << 10)
#endif
#define HC__WITH_COUNTS_MEMORY ((int64_t)512 << 10) /* for such rows from all ranks, at most */
typedef struct hc__few_rows {
    int64_t limit;     /* bytes of rows from one rank to another that travel so, or fewer; equal on all ranks */
    char *sent;        /* the messages to other ranks, in the order of set ranks; with carriers my stream for them */
    int64_t *ends;     /* by set rank: where in `sent` the bytes for it end */
    uint8_t *is_sent;  /* by set rank: my rows for it are few */
    char *room;        /* for the messages from other ranks, by set rank, each with the longest length */
    int64_t *lengths;  /* by set rank: of the message from it */
    const char **rows; /* by set rank: the few rows of the current piece from it; NULL: they come later */
} hc__few_rows;

/* Between many ranks, one rank of each of two nodes carries the counts and few rows of all their pairs of ranks. */
#ifndef HC__CARRIED_MESSAGES
#define HC__CARRIED_MESSAGES 16 /* carriers are worth it if a rank sends so many messages fewer, on average */
#endif
#ifndef HC__CARRIED_BYTES
#define HC__CARRIED_BYTES ((int64_t)1024) /* of rows from one rank to another; they are copied several times */
#endif
typedef struct hc__carriers {
    int stage;
    int32_t step;
    char *gathered;          /* the node's few rows for the nodes that I carry, rank after rank */
    char *out, *in;          /* the messages to and from the nodes that I carry */
    int64_t *out_at, *in_at; /* by node: where its message begins; nodes + 1 entries */
    int64_t *lengths;        /* by node: of the message from it */
    int64_t *shares;         /* [local rank][local rank]: bytes that the first has carried for the second */
    int64_t *cursors;        /* by local rank */
    char *stream;            /* what I have carried, for one local rank after the other */
} hc__carriers;

typedef struct hc__alltoall {
    int stage;
    int32_t piece, step;
    hc__count *counts;            /* [set rank][piece]: sent by me */
    hc__count *incoming;          /* [set rank][piece]: sent to me */
    hc__count *table;             /* [local rank][set rank][piece]: sent by my node's ranks */
    int64_t *from_here, *to_here; /* of the current piece: byte offset of each rank's rows, in and out */
    const char *in;
    char *out;
    void *spare;
    hc__bundle bundle;
    hc__few_rows few;
    hc__carriers carriers;
    int locally_done, is_carried;
} hc__alltoall;

/* gather and scatter */
typedef struct hc__rooted {
    int gathers, stage;
    int32_t piece, step; /* step: of the messages to or from other nodes */
    int64_t *counts;     /* of all ranks: see counts_of() */
    int64_t *offsets;    /* of the current piece: byte offset of each rank's rows in the root's tensor */
    char *at_root;       /* the root's tensor: the input of a scatter, the result of a gather */
    char *here;          /* this rank's rows */
    char *out;           /* this rank's result */
    void *spare;
    hc__bundle bundle;
    int done_near; /* the stage's exchange inside the root's node is done */
} hc__rooted;

/* The counts of one piece of an allgather that a rank sends to all. */
typedef struct hc__slice {
    int64_t rows; /* of its input */
    int64_t room; /* hc__room_of() its result */
} hc__slice;

typedef struct hc__allgather {
    int32_t first, end; /* the pieces that are gathered together */
    hc__slice *slices;  /* [set rank][piece] */
    hc__slice *own_slices;
    int asks; /* the ranks decide on piece `first` */
    void *out, *spare;
    char *packed_in, *packed_out; /* of several pieces: rank after rank, piece after piece */
} hc__allgather;

/* scan and exscan */
#define HC__SCAN_SLOTS 4
/* Chunks that have finished each stage. */
typedef struct hc__scan_chunks {
    int64_t posted, received, added, sent;
    int64_t passed; /* the slot is free again */
    int64_t filled; /* exscan, first rank: with neutral elements */
} hc__scan_chunks;
typedef struct hc__scan {
    int exclusive, at_once;
    int kind;                      /* the type in the chain: the dtype's accumulation type */
    int64_t count, chunk, nchunks; /* elements in all, elements per chunk */
    hc__scan_chunks done;
    int64_t step, steps;              /* of the node's exchanges */
    int64_t *starts;                  /* the first element of each piece in the concatenation */
    char *memory;                     /* the chain's slots, or all ranks' values */
    char *own_values;                 /* this rank's values */
    const char *sums[HC__SCAN_SLOTS]; /* of the newest chunks, for the next rank: in their slots or in the result */
    const void **operands;            /* room for one per rank */
    const char **values;              /* the same */
    hc_net_request *receives[HC__SCAN_SLOTS], *sends[HC__SCAN_SLOTS];
    int stuck; /* a request could not be cancelled: memory may still be read or written */
} hc__scan;

/* For a result of more bytes than this, all ranks vote before its rows move, because a rank may lack memory. A smaller
 * result that finds no memory uses a reserve, allocated before the ranks exchange their rows: one per piece of a batch,
 * up to RESERVES. For pieces beyond RESERVES all ranks vote. */
#ifndef HC__ASKED_BYTES
#define HC__ASKED_BYTES ((int64_t)256 << 10)
#endif
#define HC__RESERVES 4096

/* A rank's vote: does it have memory for its result of one piece? */
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

/* Memory for results, and the votes on it. */
typedef struct hc__results {
    hc__vote *votes; /* of all ranks, during a verdict */
    void **reserves; /* room for nreserves, at most HC__RESERVES; an element may be NULL */
    int64_t nreserves;
    char why[160]; /* base.text, if there was no memory */
} hc__results;

/* The arguments of the node's exchange. */
typedef struct hc__streams {
    hc_stream_part *parts; /* local_size entries */
    hc_stream_read *reads; /* likewise */
    int64_t *lengths;      /* set size + 1 entries */
} hc__streams;

struct hc__hierarchy {
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
};

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

/* Bytes on the wire of a rail's shard of one chunk. Large enough that the bytes cost much more than the message, small
 * enough for several in flight; the benchmark net_chunks.py shows both limits. */
#define HC__SHARD_BYTES ((int64_t)256 << 10)
/* `shard_bytes`: HC__SHARD_BYTES or fewer. parts NULL: one part. The bounds are borrowed until the end. */
int hc__pipeline_start(hc__hierarchy *, const hc_batch *, const hc_parts *parts, hc__launch *, int64_t shard_bytes,
                       const hc__stages *);
hc__means hc__net_means(const hc__hierarchy *); /* of the batch's reduction between nodes */
hc__reduction hc__net_reduction(const hc_batch *);
int hc__pipeline_test(hc__hierarchy *);
void hc__pipeline_abandon(hc__hierarchy *);
void hc__pipeline_free(hc__hierarchy *);

/* gather.lengths must be set; in may be NULL if this rank's length is 0. `out` has room for all ranks. */
int hc__gather_start(hc__hierarchy *, const void *in, void *out);
int hc__gather_test(hc__hierarchy *);

/* ---- rows --------------------------------------------------------------------------------------------------- */

static inline int64_t hc__row_bytes(const hc__hierarchy *h, int32_t piece) {
    return hc_piece_row_bytes(&h->batch->pieces[piece], h->batch->dtype);
}
/* Bytes of the counts of all pieces, from one rank to another. */
static inline int64_t hc__counts_bytes(const hc__hierarchy *h) {
    return h->batch->npieces * (int64_t)sizeof(hc__count);
}

/* ---- rows that travel with their counts: few_rows.c, carriers.c ------------------------------------------ */

/* Bytes of the rows with these counts, of all pieces; hc__bytes_of_few(): 0 if they are too many to travel with the
 * counts. */
int64_t hc__bytes_of_rows(const hc__hierarchy *, const hc__count *);
int64_t hc__bytes_of_few(const hc__hierarchy *, const hc__count *);
/* Packs my few rows into few.sent: those for rank r at few.ends[r], which ends behind them. */
void hc__few_pack(hc__hierarchy *);
int hc__few_start(hc__hierarchy *); /* after alltoall.counts is set; sets alltoall.is_carried */
/* Posts the message of counts to a rank of another node, or the receive of that from one. */
int hc__few_send(hc__hierarchy *, int32_t to);
int hc__few_receive(hc__hierarchy *, int32_t from);
/* When all messages have come: sets alltoall.incoming of the other nodes' ranks. */
int hc__few_read(hc__hierarchy *);
/* Copies the current piece's few rows to its result. */
void hc__few_place(hc__hierarchy *);
/* Ends the current piece. */
void hc__few_pass(hc__hierarchy *);
void hc__few_end(hc__hierarchy *);

/* In place of hc__few_send, _receive and _read, when alltoall.table is complete. */
int hc__carriers_start(hc__hierarchy *);
int hc__carriers_test(hc__hierarchy *);
void hc__carriers_end(hc__hierarchy *);

void hc__broadcast_abandon(hc__hierarchy *);
void hc__scan_abandon(hc__hierarchy *);

/* ---- results ------------------------------------------------------------------------------------------ */

/* Sets *out to the memory for `rows` rows of the piece's result: the caller's, or new memory. It uses *spare (freed
 * first) if this rank needs no result, or if the caller's `out` has the wrong size: then the batch goes on, because
 * other ranks need this one, and ends with RESULT_SIZE. */
int hc__place_result(hc__hierarchy *, hc_piece *, int64_t rows, void **spare, void **out);
/* Lets the node choose how it stores results; hc__place_result() calls it. passing: bytes of input and results. */
void hc__expect_result(hc__hierarchy *, int64_t passing);

/* ---- verdict: one outcome for a piece, on all ranks ------------------------------------------------------ */

/* Starts the vote of all ranks. `status`: of hc__place_result() on this rank; `has`: rows of the caller's `out`, or -1.
 * Call hc__gather_test() until it is done, then hc__verdict_take(). */
int hc__verdict_start(hc__hierarchy *, const hc_piece *, int status, int64_t has);
/* 1: the piece is refused on all ranks; 0: all ranks have memory for it. */
int hc__verdict_take(hc__hierarchy *, hc_piece *);
void hc__verdict_end(hc__hierarchy *);
enum { HC__ROOM_LATER = -1, HC__ROOM_UNSURE = -2 };
/* Rows of the caller's `out`. Without an `out`: ROOM_LATER, a result of at most HC__ASKED_BYTES will find memory;
 * ROOM_UNSURE, this rank may have to refuse even a small result, so all ranks vote. */
int64_t hc__room_of(hc__hierarchy *, const hc_piece *);
/* Refuses the piece on all ranks, because of `rank`. */
void hc__refuse_piece(const hc__hierarchy *, hc_piece *, int32_t rank, const hc__vote *);

#endif
