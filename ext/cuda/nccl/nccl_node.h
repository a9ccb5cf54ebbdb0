/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_node.h - an hc_node whose ranks' devices are joined by NCCL: private to nccl_*.c and device_data.c.
 *
 *     reduce    tensors -> buffer (pack, scaled in float32)  NCCL's reduce-scatter                    stream `work`
 *               my shard -> the wire's type -> pinned memory                                          stream `down`
 *     shard     the shard is on the host: the net may use it
 *     publish   pinned memory -> its place in the buffer                                              stream `up`
 *     spread    NCCL's allgather, buffer -> tensors                                                   stream `work`
 *
 * Without a net one NCCL allreduce replaces both calls. NCCL reads a range of a single tensor in place if it needs no
 * factor, and writes the result in place if it needs no division. The stages launch and return; only shard() waits, for
 * an event. All ranks must call one communicator in one order: spread(c) comes right before reduce(c + depth), and
 * after all reduces at the end.
 *
 * Where MPI may read device memory, shards stay on the device (sums.h), and `down` and `up` are idle. Where a rank is
 * alone in its node NCCL is idle, too: the chunk is its shard.
 *
 * Where only some ranks of the node drive the net, groups of ncclReduce and ncclBroadcast, one call per rail, replace
 * reduce-scatter and allgather. A broadcast and a reducescatter have the same stages (nccl_broadcast.c,
 * nccl_scatter.c).
 */
#pragma once

#include "cuda/nccl/comms.h"
#include "cuda/staged/copies.h"
#include "cuda/staged/shares.h"
#include "cuda/nccl/sums.h"

#define HC__NCCL_DEPTH 4 /* the same on all ranks: the order of calls depends on it */
#define HC__NCCL_PART 64 /* elements: shards begin at multiples of this */

typedef struct hc__nccl_slot {
    char *buffer;               /* on the device: a chunk of the batch's type */
    char *narrow;               /* the chunk in the wire's type, if it differs: see hc__nccl_wire() */
    char *host;                 /* pinned: my shard */
    hc_gpu_event reduced;       /* `work` has my shard */
    hc_gpu_event arrived;       /* `down` has copied it to the host */
    hc_gpu_event returned;      /* `up` has copied it back */
    hc__copies in, out;         /* the tensors' ranges of the chunk */
    int64_t n, part;            /* elements; `part`: of a rail's shard, equal on all rails and nodes */
    char *in_place, *out_place; /* the place in a tensor that replaces the buffer; or NULL */
    int64_t from;               /* reducescatter: bytes of a share before the window */
    uint8_t complete;           /* this rank has all tensors of the chunk */
} hc__nccl_slot;

typedef struct hc__nccl_node {
    hc_node base;
    hc_device *device;
    hc__comms *comms;
    void (*fill_neutral)(void *, int dtype, int reduction, int64_t n); /* hc_host_neutral() */
    hc__sums *sums; /* keeps shards on the device; NULL: they go through pinned memory */
    hc_gpu_stream work, down, up;
    hc__nccl_slot slots[HC__NCCL_DEPTH];
    int64_t buffer_bytes, narrow_bytes, host_bytes; /* of a slot */
    hc_gpu_event began, done;                       /* of the last batch in `work`: its start, its end */
    char *neutral;                                  /* pinned: neutral elements, for a rank that has joined */
    int neutral_dtype, neutral_reduction;
    hc_gpu_event neutral_used;

    const hc_batch *batch;
    int64_t *starts; /* npieces + 1: elements before each tensor, at multiples of 16 bytes in both types */
    int32_t starts_room;
    int rails, op, dtype, wire_dtype; /* op and types: NCCL's codes */
    int wire;                         /* the type between nodes: enum hc_dtype */
    double shift, divisor;            /* of a mean: divisors before and after the sum */
    int moves, root;                  /* moves: a broadcast, of bytes; root: its local rank, -1: in another node */
    int scatters;                     /* a reducescatter */
    hc__shares shares;
    int32_t *ranks, groups; /* ranks: of the set, by their parts in the buffer; groups: one, or one per node */
    int whole;              /* one tensor is reduced in place */
    int64_t each;           /* bytes of a share in a chunk */
    char *spare;            /* on the device: replaces a tensor that this rank lacks */
    int64_t spare_bytes;
    int64_t units;           /* of NCCL's type per element: 1, or the bytes of an element that is only moved */
    int64_t size, wire_size; /* bytes of an element */
    int64_t chunk, nchunks, nreduced, nspread;
    enum { HC__FREE, HC__REDUCING, HC__SPREADING, HC__SPREAD } busy; /* the call that NCCL has not finished */
    int called;                                                      /* its status */
    uint8_t waits; /* for an event that wakes no driver: the loop must poll */
    char text[512];
} hc__nccl_node;

/* Borrows all arguments; comms must be open before the first batch. */
int hc__nccl_node_new(hc_device *, hc__comms *, void (*neutral)(void *, int dtype, int reduction, int64_t n),
                      hc__nccl_node **);
/* OK, or a status with text: launched work has failed or takes too long. */
int hc__nccl_node_watch(hc__nccl_node *);

/* ---- the start and end of every batch ------------------------------------------------------------------- */

/* `work` waits for the callers' streams. */
int hc__nccl_begin(hc__nccl_node *, const hc_batch *);
/* Records the callers' events. All work of the batch is in `work`, or `work` waits for it. */
int hc__nccl_end(hc__nccl_node *);
/* Replaces the memory at *at; work in `work` may still use the old memory. OK, or a status with text. */
int hc__nccl_grow(hc__nccl_node *, enum hc__memory_kind, char **at, int64_t bytes);
/* Where the batch's work is launched. */
static inline hc__launch hc__nccl_launch(hc__nccl_node *n) {
    return (hc__launch){n->device, n->work, n->text, sizeof n->text};
}
/* Turns a status of the packer, such as HC_PACK_BUSY, into enum hc_progress. */
static inline int hc__nccl_again(hc__nccl_node *n, int status) {
    n->waits = status == HC_PACK_BUSY;
    return status == HC_PACK_BUSY ? HC_IDLE : status;
}

static inline hc__nccl_node *hc__nccl_node_of(hc_node *base) {
    return (hc__nccl_node *)base;
}

/* 1: this rank drives a rail; the first `rails` ranks of the node do. */
static inline int hc__nccl_drives(const hc__nccl_node *n) {
    return n->base.local_rank < n->rails;
}

/* The buffer with the values in the wire's type. */
static inline char *hc__nccl_wire(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    return n->wire_dtype == n->dtype ? slot->buffer : slot->narrow;
}

/* ---- nccl_stages.c: what the hierarchy drives; see hc_node_ops ------------------------------------------ */

int hc__nccl_reduce(hc_node *, int64_t chunk);
int hc__nccl_shard(hc_node *, int64_t chunk, void **data, int64_t *bounds);
int hc__nccl_publish(hc_node *, int64_t chunk);
int hc__nccl_spread(hc_node *, int64_t chunk);

/* ---- nccl_calls.c ------------------------------------------------------------------------------------------ */

/* NCCL's codes, or -1 where it has none. */
int hc__nccl_dtype(int dtype);
int hc__nccl_op(int reduction, int dtype);

/* Stores the status of a call of NCCL and starts its time limit. */
static inline void hc__nccl_called(hc__nccl_node *n, int answer) {
    n->called = answer;
    n->comms->since = hc__comms_now();
}
/* As hc__comms_settle() for `called`. After HC_DONE later launches in the stream run after the call. */
int hc__nccl_settle(hc__nccl_node *, const char *call);
/* For launched work that has not ended: IDLE, or a status with text after the time limit, which starts when the
 * callers' streams reach the batch. */
int hc__nccl_wait_for_device(hc__nccl_node *, const char *what);
/* The worse of two answers of NCCL in a group. */
static inline int hc__nccl_worse(int a, int b) {
    return a == HC_NCCL_SUCCESS || (a == HC_NCCL_IN_PROGRESS && b != HC_NCCL_SUCCESS) ? b : a;
}
/* Each rail's driver gets the sum of its shard; all ranks get the whole chunk from the drivers. One call, or one per
 * rail. Both return NCCL's status. */
int hc__nccl_call_reduce(const hc__nccl_node *, const hc__nccl_slot *);
int hc__nccl_call_gather(const hc__nccl_node *, const hc__nccl_slot *);

/* ---- nccl_broadcast.c: the stages of a broadcast, where they differ ------------------------------------ */

/* gives: this rank's tensors go into the chunk. gathers: NCCL gathers the chunk in `spread`. */
int hc__nccl_gives(const hc__nccl_node *);
int hc__nccl_gathers(const hc__nccl_node *);
/* 1: the net brings back values that this node lacks. */
int hc__nccl_returns(const hc__nccl_node *);
void hc__nccl_find_root(hc__nccl_node *);
/* In the root's node: where the chunk lies after ncclBroadcast. */
char *hc__nccl_lies(const hc__nccl_node *, const hc__nccl_slot *);
int hc__nccl_call_broadcast(hc__nccl_node *, const hc__nccl_slot *); /* NCCL's status */

/* ---- nccl_scatter.c: the stages of a reducescatter, where they differ ---------------------------------------- */

int hc__nccl_order_parts(hc__nccl_node *); /* once */
int hc__nccl_lay_shares(hc__nccl_node *, int64_t chunk_elements);
int hc__nccl_cut_shares(hc__nccl_node *, int64_t chunk, hc__nccl_slot *);
int hc__nccl_call_scatter(hc__nccl_node *, const hc__nccl_slot *); /* NCCL's status */
/* The part of each node in a rail's shard. */
void hc__nccl_node_bounds(const hc__nccl_node *, const hc__nccl_slot *, int64_t *bounds);

/* ---- nccl_chunks.c: the ranges of a chunk, and their copies to and from the buffer --------------------- */

int hc__nccl_layout(hc__nccl_node *);                              /* fills starts, nchunks */
int hc__nccl_cut(hc__nccl_node *, int64_t chunk, hc__nccl_slot *); /* fills the slot's ranges */
double hc__nccl_scale(const hc__nccl_node *, int32_t piece);       /* the factor of packing */
/* Tensors to buffer, and back from the wire's buffer: OK, HC_PACK_BUSY, or a status with text. */
int hc__nccl_pack(hc__nccl_node *, hc__nccl_slot *);
int hc__nccl_unpack(hc__nccl_node *, hc__nccl_slot *);
int hc__nccl_narrow(hc__nccl_node *, hc__nccl_slot *, int64_t at, int64_t n); /* buffer to wire */
/* Writes neutral elements of the batch's type to device memory: OK, HC_PACK_BUSY, or a status with text. */
int hc__nccl_neutral(hc__nccl_node *, char *to, int64_t bytes);
int hc__nccl_failed(hc__nccl_node *, int status, const char *what); /* the driver's status */
