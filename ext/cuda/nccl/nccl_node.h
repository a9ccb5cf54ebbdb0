/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_node.h - ranks whose devices NCCL joins, as an hc_node: private to nccl_*.c and device_data.c.
 *
 *     reduce    tensors -> buffer (pack, scaled in float32)  NCCL's reduce-scatter                    stream `work`
 *               my shard -> the wire's type -> pinned memory                                          stream `down`
 *     shard     it is there: the net has it, as it has the host's
 *     publish   pinned memory -> its place in the buffer                                              stream `up`
 *     spread    NCCL's allgather, buffer -> tensors                                                   stream `work`
 *
 * Without a net NCCL's allreduce stands for both. A range of one tensor that needs no factor is reduced where it lies,
 * and one whose mean needs no division behind the sum is written where it belongs.
 * The stages launch and return; only shard() waits, for an event. All ranks must call one communicator in one order:
 * spread(c) comes right before reduce(c + depth), and behind all others at the end.
 *
 * Where MPI may have the device's memory, shards stay there (sums.h): `down` and `up` have nothing to do. Where a rank
 * is alone in its node there is nothing for NCCL to do either: the chunk is its shard.
 *
 * Where the net is driven by fewer ranks than the node has, ncclReduce and ncclBroadcast, one per rail in a group, do
 * what reduce-scatter and allgather do for all. A broadcast and a reducescatter have the same stages (nccl_broadcast.c,
 * nccl_scatter.c).
 */
#ifndef HC_NCCL_NODE_H
#define HC_NCCL_NODE_H

#include "cuda/nccl/comms.h"
#include "cuda/staged/copies.h"
#include "cuda/staged/shares.h"
#include "cuda/nccl/sums.h"

#define HC__NCCL_DEPTH 4 /* the same on all ranks: the order of calls depends on it */
#define HC__NCCL_PART 64 /* elements: shards begin at multiples of this */

typedef struct hc__nccl_slot {
    char *buffer;               /* on the device: a chunk of the batch's type */
    char *narrow;               /* the same of the wire's type, where that is another: see hc__nccl_wire() */
    char *host;                 /* pinned: my shard */
    hc_gpu_event reduced;       /* `work` has my shard */
    hc_gpu_event arrived;       /* `down` has brought it to the host */
    hc_gpu_event returned;      /* `up` has brought it back */
    hc__copies in, out;         /* the tensors' ranges of the chunk */
    int64_t n, part;            /* elements; of a rail's shard, the same for all rails and nodes */
    char *in_place, *out_place; /* in a tensor, where that serves instead of the buffer; or NULL */
    int64_t from;               /* reducescatter: bytes of a share before the window */
    uint8_t complete;           /* this rank has all tensors of the chunk */
} hc__nccl_slot;

typedef struct hc__nccl_node {
    hc_node base;
    hc_device *device;
    hc__comms *comms;
    void (*fill_neutral)(void *, int dtype, int reduction, int64_t n); /* hc_host_neutral() */
    hc__sums *sums; /* shards stay on the device: the net takes them from there; NULL: they go through pinned memory */
    hc_gpu_stream work, down, up;
    hc__nccl_slot slots[HC__NCCL_DEPTH];
    int64_t buffer_bytes, narrow_bytes, host_bytes; /* of a slot */
    hc_gpu_event began, done;                       /* of the last batch in `work`: its callers were ready; it ended */
    char *neutral;                                  /* pinned: what a rank that has joined gives */
    int neutral_dtype, neutral_reduction;
    hc_gpu_event neutral_used;

    const hc_batch *batch;
    int64_t *starts; /* npieces + 1: elements before each tensor; all begin at multiples of 16 bytes of both types */
    int32_t starts_room;
    int rails, op, dtype, wire_dtype; /* op and types: NCCL's; see size, wire_size for bytes */
    int wire;                         /* what the net carries: enum hc_dtype */
    double shift, divisor;            /* of a mean: on the way into the buffer, and out of it */
    int moves, root;                  /* a broadcast: any type, as bytes; the root's local rank, -1: in another node */
    int scatters;                     /* a reducescatter */
    hc__shares shares;
    int32_t *ranks,
        groups;   /* of NCCL: one per node, or one. ranks: of the set, in the order of their parts in the buffer */
    int whole;    /* one tensor is reduced as it lies */
    int64_t each; /* bytes of a share in a chunk */
    char *spare;  /* on the device: what stands for a tensor that is not here */
    int64_t spare_bytes;
    int64_t units; /* of NCCL's type in an element: 1, or its bytes where it is only moved */
    int64_t size, wire_size, chunk, nchunks, nreduced, nspread;
    enum { HC__FREE, HC__REDUCING, HC__SPREADING, HC__SPREAD } busy; /* with a call that NCCL has not taken in yet */
    int called;                                                      /* what it answered */
    uint8_t waits;                                                   /* for what wakes no driver */
    char text[512];
} hc__nccl_node;

/* Borrows all; comms must be open before the first batch. */
int hc__nccl_node_new(hc_device *, hc__comms *, void (*neutral)(void *, int dtype, int reduction, int64_t n),
                      hc__nccl_node **);
/* OK, or a status with text: what has been launched, and not ended, goes wrong or takes too long. */
int hc__nccl_node_watch(hc__nccl_node *);

/* ---- what every batch needs, whatever its operation ------------------------------------------------------ */

/* `work` waits for the callers' streams. */
int hc__nccl_begin(hc__nccl_node *, const hc_batch *);
/* The callers' events are recorded: all that was launched for the batch is in `work`, or `work` waits for it. */
int hc__nccl_end(hc__nccl_node *);
/* What is there may still be used in `work`. OK, or a status with text. */
int hc__nccl_grow(hc__nccl_node *, enum hc__memory_kind, char **at, int64_t bytes);
/* Where the batch's work is launched. */
static inline hc__launch hc__nccl_launch(hc__nccl_node *n) {
    return (hc__launch){n->device, n->work, n->text, sizeof n->text};
}
/* A status of the packer, HC_PACK_BUSY among them, as enum hc_progress. */
static inline int hc__nccl_again(hc__nccl_node *n, int status) {
    n->waits = status == HC_PACK_BUSY;
    return status == HC_PACK_BUSY ? HC_IDLE : status;
}

static inline hc__nccl_node *hc__nccl_node_of(hc_node *base) {
    return (hc__nccl_node *)base;
}

/* Whether this rank drives the network: one of the node's first, a rail each. */
static inline int hc__nccl_drives(const hc__nccl_node *n) {
    return n->base.local_rank < n->rails;
}

/* The buffer of what the net carries; where there is none, of the result. */
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

/* What NCCL answered to a call: patience begins. */
static inline void hc__nccl_called(hc__nccl_node *n, int answer) {
    n->called = answer;
    n->comms->since = hc__comms_now();
}
/* Whether `called`, what NCCL answered, has been taken in, so that what is launched next comes behind it. */
int hc__nccl_settle(hc__nccl_node *, const char *call);
/* What was launched has not come to its end: IDLE, or, too late, a status with text. Patience begins when the callers'
 * streams have come so far. */
int hc__nccl_wait_for_device(hc__nccl_node *, const char *what);
/* The worse of two answers of NCCL in a group. */
static inline int hc__nccl_worse(int a, int b) {
    return a == HC_NCCL_SUCCESS || (a == HC_NCCL_IN_PROGRESS && b != HC_NCCL_SUCCESS) ? b : a;
}
/* NCCL's answers. Sums of all shards where they are driven, and all of the chunk from there: one call, or one per
 * rail. */
int hc__nccl_call_reduce(const hc__nccl_node *, const hc__nccl_slot *);
int hc__nccl_call_gather(const hc__nccl_node *, const hc__nccl_slot *);

/* ---- nccl_broadcast.c: where a broadcast's stages are others than a sum's ------------------------------ */

/* Whether this rank's tensors go into the chunk; whether NCCL gathers it in `spread`. */
int hc__nccl_gives(const hc__nccl_node *);
int hc__nccl_gathers(const hc__nccl_node *);
/* Whether the net brings something back that this node has not. */
int hc__nccl_returns(const hc__nccl_node *);
void hc__nccl_find_root(hc__nccl_node *);
/* Where the chunk lies, in the root's node, when it has been brought to all ranks there. */
char *hc__nccl_lies(const hc__nccl_node *, const hc__nccl_slot *);
int hc__nccl_call_broadcast(hc__nccl_node *, const hc__nccl_slot *); /* NCCL's answer */

/* ---- nccl_scatter.c: where a reducescatter's are ------------------------------------------------------------- */

int hc__nccl_order_parts(hc__nccl_node *); /* once */
int hc__nccl_lay_shares(hc__nccl_node *, int64_t chunk_elements);
int hc__nccl_cut_shares(hc__nccl_node *, int64_t chunk, hc__nccl_slot *);
int hc__nccl_call_scatter(hc__nccl_node *, const hc__nccl_slot *); /* NCCL's answer */
/* What each node gets of a rail's shard. */
void hc__nccl_node_bounds(const hc__nccl_node *, const hc__nccl_slot *, int64_t *bounds);

/* ---- nccl_chunks.c: what a chunk holds, and its way between tensors and buffer ------------------------- */

int hc__nccl_layout(hc__nccl_node *);                              /* fills starts, nchunks */
int hc__nccl_cut(hc__nccl_node *, int64_t chunk, hc__nccl_slot *); /* fills the slot's ranges */
double hc__nccl_scale(const hc__nccl_node *, int32_t piece);       /* of what is packed */
/* Tensors to buffer, and back from the wire's buffer: OK, HC_PACK_BUSY, or a status with text. */
int hc__nccl_pack(hc__nccl_node *, hc__nccl_slot *);
int hc__nccl_unpack(hc__nccl_node *, hc__nccl_slot *);
int hc__nccl_narrow(hc__nccl_node *, hc__nccl_slot *, int64_t at, int64_t n); /* buffer to wire */
/* Neutral elements of the batch's type to memory on the device: OK; HC_PACK_BUSY; else a status with text. */
int hc__nccl_neutral(hc__nccl_node *, char *to, int64_t bytes);
int hc__nccl_failed(hc__nccl_node *, int status, const char *what); /* the driver's status */

#endif
