/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.h - what drives an engine: requests go in, handles come out, one driver at a time in between.
 *
 * A driver's turn drains the inbox, reads control messages, steps the engine, performs its actions and tests the
 * batches that run. A waiting caller drives; a thread of the loop's own drives when no caller waits. A caller that
 * submits and waits therefore does all the work itself: no other thread is woken, none is waited for.
 *
 *     submit [any thread] -> inbox -> turn: hc_step -> actions -> hc_data -> handle -> wait [any thread]
 *                                           hc_p2p (messages) ------------->
 */
#ifndef HC_LOOP_H
#define HC_LOOP_H

#include "loop/trace.h"
#include "transport/p2p/p2p.h"
#include "transport/transport.h"
#include "transport/shm/shortcut.h"
#include "transport/shm/shm.h"

#include <stdatomic.h>

/* ---- handles -------------------------------------------------------------------------------------- */

typedef struct hc_handle hc_handle;
typedef struct hc_plan hc_plan;

enum { HC_HANDLE_PLAN = 254, HC_HANDLE_P2P }; /* kinds of handles beside those of events */
/* What messages are called where operations are named: the trace, texts. */
enum hc_p2p_operation { HC_SEND = HC_OPERATION_COUNT, HC_RECEIVE };

/* What a process set brings. Where it cannot be added, all of it stays the caller's. */
typedef struct hc_set_parts {
    const hc_set_config *place;
    hc_data *host;         /* the data plane for host memory: the loop's from here */
    const hc_node *node;   /* of that one, for its counters */
    hc_plane_maker *maker; /* of those for other kinds of memory: the loop's from here; NULL: there are none */
    int32_t lead;          /* World rank of set rank 0, for the trace */
} hc_set_parts;

/* A request on its way. The submitter fills the first part, and may read the second once hc_handle_done().
 * One reference is the submitter's, one the loop's while it is in flight. Its address is its ticket. */
struct hc_handle {
    uint8_t kind; /* HC_EV_ENQUEUE, REFUSE, JOIN, STOP, PREEMPT, TUNE, ADD_SET, REMOVE_SET; HC_HANDLE_... */
    uint32_t set;
    hc_request request;        /* name and tensors lie in this handle's own memory */
    hc_tensor *tensors;        /* request.tensors, to fill */
    int64_t *dims;             /* room for the dims of all tensors, to fill */
    hc_piece *pieces;          /* request.ntensors of them: in, out, count, row, send_rows, recv_rows */
    int64_t *rows;             /* 2 x set size entries (allgather, alltoall); TUNE: the numbers of hc_tuning; or NULL */
    const hc_set_parts *parts; /* ADD_SET: the caller's, who waits */
    hc_p2p_op *op;             /* P2P: owned; its results too */
    hc_plan *plan;             /* PLAN: whose start it is; NULL: it is none */
    hc_staging *staging;       /* P2P in device memory: the loop's, freed with the handle */
    void *ready, *finished;    /* device memory: see hc_batch; the submitter's, who keeps them until it is done */
    char *site;                /* debug: the lines of the program that ask for it, for the trace; owned, or NULL */

    /* Called once the handle is done and may be read, by a thread that does not drive, so it may do whatever it likes:
     * run for long, submit, wait. NULL: nothing is called. Needs hc_loop_start_completions(). */
    void (*on_done)(hc_handle *, void *context);
    void *context;

    int status;        /* enum hc_status */
    char *text;        /* owned, or NULL */
    int64_t value;     /* JOIN: the last set rank to join */
    uint64_t position; /* in the set's log */

    /* the loop's own */
    hc_handle *next;
    hc_handle **link;              /* what points here in the list of those in flight */
    atomic_ullong waited_since;    /* P2P, PLAN: ns, when a caller began to wait; 0: not yet */
    uint8_t warnings, told_silent; /* likewise: reports of a long wait; the last one named the ranks that are silent */
    uint8_t traced_wait;           /* the trace has its WAIT */
    atomic_int refs;
    atomic_int done;
    uint64_t bytes;
    uint64_t *sums;   /* debug: a checksum an input */
    uint8_t modified; /* debug: an input changed while in flight */
};

/* Room for a request of `ntensors` tensors with `ndims` dims in all, a copy of `name`, and `nrows` entries of
 * rows. NULL: out of memory. [any thread] */
hc_handle *hc_handle_new(int kind, uint32_t set, uint32_t ntensors, uint32_t ndims, const char *name, size_t name_len,
                         uint32_t nrows);
/* The handle of a send or a receive: receives, tag, peer, data, bytes are copied; memory: of the data (enum
 * hc_memory_kind). NULL: out of memory. [any thread] */
hc_handle *hc_handle_of_p2p(uint32_t set, const hc_p2p_op *, int memory);
/* Another reference, before it is submitted: nobody else has one. */
static inline void hc_handle_retain(hc_handle *h) {
    atomic_store_explicit(&h->refs, atomic_load_explicit(&h->refs, memory_order_relaxed) + 1, memory_order_relaxed);
}
void hc_handle_release(hc_handle *);           /* [any thread] */
static inline int hc_handle_done(hc_handle *h) /* [any thread] */
{
    return atomic_load_explicit(&h->done, memory_order_acquire);
}

/* ---- the loop --------------------------------------------------------------------------------------- */

typedef struct hc_loop hc_loop;

/* clang-format off */
#define HC_LOOP_KNOBS(X) /* rows as in HC_ENGINE_KNOBS */                                                              \
    X(uint64_t, peer_timeout, 30, 0, 86400, "s", HC_RANKS_MAY_DIFFER,                                                  \
      "time without an answer from a rank of another node, or with a stopped process on this one, after which that "   \
      "rank counts as lost if a rank waits; 0: never")                                                                 \
    X(uint8_t, deterministic, 0, 0, 1, "", HC_RANKS_AGREE,                                                             \
      "equal bits for equal inputs, whatever the timing and the fusion")                                               \
    X(uint8_t, debug, 0, 0, 1, "", HC_RANKS_MAY_DIFFER,                                                                \
      "check that nobody changes an input while the library owns it")                                                  \
    X(uint8_t, single_copy, 1, 0, 1, "", HC_RANKS_MAY_DIFFER,                                                          \
      "a receiver reads a message of more than 8 KiB in the memory of a sender on its node (process_vm_readv), where " \
      "the system allows it; 0: such messages go through shared memory, which is two copies")
/* clang-format on */

/* What a thread does between two looks for other ranks (waiting.h); AUTO: spin if each rank can have a core, else
 * yield. SLEEP: it does not look again. */
enum hc_wait { HC_WAIT_AUTO, HC_WAIT_SPIN, HC_WAIT_YIELD, HC_WAIT_SLEEP };
int hc_wait_named(const char *); /* "auto", "spin" and so on; AUTO for any other word */

typedef struct hc_loop_config {
    hc_engine_config engine; /* `processes` lives as long as the loop */
    HC_LOOP_KNOBS(HC_KNOB_FIELD)
    uint8_t background; /* a thread of the loop's own drives when nobody waits */
    uint8_t stores;     /* enum hc_stores: how this rank writes what others read */
    uint8_t wait;       /* enum hc_wait: what a thread does that waits for other ranks */
    uint8_t one_thread; /* only the thread that made the loop may drive (MPI_THREAD_FUNNELED) */
    uint8_t heartbeat;  /* every rank of the World has a background thread, and answers while the program computes */
    uint8_t wire;       /* dtype between nodes for float32 and float64, or HC_WIRE_SAME */
    const int32_t *node_of; /* node of each World rank; copied */
    int32_t local_rank, local_size;
    int32_t machine_size;  /* ranks on this machine, which HPCCOLL_NODES may cut into nodes; 0: local_size */
    int32_t fanout;        /* of the World's tree (hc_tree_index_new); 0: a lost leader's neighbours are not told */
    const int32_t *locals; /* World rank of each local rank of the node control segment; copied */
    hc_trace_config trace; /* copied */
} hc_loop_config;

/* Takes over node control segment, control and point-to-point, which hc_loop_free() frees. `net` (may be NULL) and the
 * node control segment's segment stay their makers', and live longer. */
typedef struct hc_loop_parts {
    hc_node_control *node_control;
    hc_control *control;
    hc_p2p *p2p;
    hc_net *net;
} hc_loop_parts;

int hc_loop_new(const hc_loop_config *, const hc_loop_parts *, hc_loop **);
/* Stops the thread, abandons what runs, ends every handle in flight (SHUT_DOWN), frees. */
void hc_loop_free(hc_loop *);
void hc_loop_forked(hc_loop *); /* in the child of a fork(): every later submit ends FORKED at once */

/* Takes the handle in; its outcome arrives in the handle, refusals too. `waits`: the caller goes on to hc_loop_wait(),
 * nobody else need be called. [any thread] */
void hc_loop_submit(hc_loop *, hc_handle *, int waits);
/* Before the first handle with an on_done is submitted: starts the thread that calls these functions. A second call
 * does nothing. OK, NO_MEMORY, FORKED, or UNSUPPORTED: this World has no background thread. One caller at a time. */
int hc_loop_start_completions(hc_loop *);
/* Submits a handle with an on_done, and its caller goes on. Where nothing else is in flight, the caller first drives by
 * itself for `ns` at most, and calls on_done itself if the handle is done by then; otherwise another thread does. Both
 * may happen before this returns. [any thread] */
void hc_loop_begin(hc_loop *, hc_handle *, uint64_t ns);
/* Tells the other ranks of the set that this one has refused a call: name, operation, and `why`, which ends in 0. They
 * have an error for it, and this rank's next request of the name is matched with their next one. Never blocks. [any
 * thread] */
void hc_loop_refuse(hc_loop *, uint32_t set, const hc_request *);
/* ---- calls of few bytes without a name ---- */

/* What must be the same on all ranks; of a dtype, shape or factor that the operation does not have, zeros. */
#define HC_SHORTCUT_DIMS 4
typedef struct hc_shortcut_agreed {
    uint8_t operation, reduction, dtype, ndim;
    int32_t root;
    double prescale, postscale;
    int64_t dims[HC_SHORTCUT_DIMS];
} hc_shortcut_agreed;
typedef struct hc_shortcut_call {
    hc_shortcut_agreed agreed;
    const void *in;
    void *out; /* `in`, or apart from it; NULL: no result here */
    int64_t count;
    size_t bytes; /* at most HC_SHORTCUT_BYTES */
} hc_shortcut_call;

/* Tries a barrier, broadcast, allreduce or reduce, for a caller that waits and has no other call without a name in
 * flight. `shortcut`: of the set's node, which is all of it; NULL: the set has this rank alone. enum hc_shortcut_state;
 * OPEN: call hc_loop_shortcut_wait(), which may yield. TAKEN: hc_loop_shortcut_end() makes the result. OFF: submit a
 * request. */
int hc_loop_shortcut(hc_loop *, uint32_t set, hc_shortcut *, int32_t rank, const hc_shortcut_call *);
int hc_loop_shortcut_wait(hc_loop *, hc_shortcut *); /* TAKEN or OFF */
void hc_loop_shortcut_end(hc_loop *, const hc_shortcut *, int32_t rank, int32_t size, const hc_shortcut_call *);
/* Runs a call of a set of this rank alone, for a caller who waits and gave no name. 1: it is done; 0: submit it. */
int hc_loop_run_alone(hc_loop *, hc_handle *);
/* 1: all `n` are done; 0: not within `ns`. Drives meanwhile. [any thread] */
int hc_loop_wait(hc_loop *, hc_handle *const *handles, size_t n, uint64_t ns);
/* A few turns, if nobody else drives: how a program without a background thread makes progress. */
void hc_loop_progress(hc_loop *);
/* Handles that are not done. [any thread] */
int hc_loop_pending(hc_loop *);
/* How a thread waits here, and why: "spin (2 ranks on 2 cores)". Once all ranks of the node have come. [any thread] */
void hc_loop_describe_waiting(hc_loop *, char *text, size_t room);
/* Likewise how this rank writes what others read: "stream (ranks on 2 L3s)". */
void hc_loop_describe_stores(hc_loop *, char *text, size_t room);
/* The loop's World is broken: the status it broke with, else HC_OK. [any thread] */
int hc_loop_broken(hc_loop *);
/* The newest report of an operation that has waited long, which says who is missing; "" before one. [any thread] */
void hc_loop_last_report(hc_loop *, char *text, size_t room);
const char *hc_loop_broken_text(const hc_loop *); /* once it is broken: how, in a sentence [any thread] */
/* Once it is broken: was this rank lost, as this one knows? [any thread] */
int hc_loop_has_lost(hc_loop *, int32_t rank);
/* The launcher says that this process has ended, which did not shut down its World: its rank is lost as soon as this
 * one waits. A process that is no rank of this World is ignored. [any thread] */
void hc_loop_process_ended(hc_loop *, const char *host, int32_t pid);
/* The position of PREEMPT in the set's log, 0 while there is none. Known before any handle ends whose position is not
 * before it, so who has waited for that handle is told. [any thread] */
uint64_t hc_loop_preempted(hc_loop *, uint32_t set);

/* The knobs of the World that change while it runs: as this rank's log has them. */
typedef struct hc_loop_tuning {
    hc_tuning now;
    uint64_t changes, at; /* how often they have changed here; when the last time, ns, CLOCK_MONOTONIC */
} hc_loop_tuning;
void hc_loop_get_tuning(hc_loop *, hc_loop_tuning *); /* [any thread] */

/* A lap of a program that does the same again and again: from one request of a name to the next. */
typedef struct hc_lap {
    uint64_t begun, ended; /* ns, CLOCK_MONOTONIC */
    uint64_t bytes;        /* of the requests of the set between them */
} hc_lap;
/* Where the reading of laps stands; all zero but for `next` and `name` at first. */
typedef struct hc_laps {
    uint64_t next;            /* number of the next record of the trace */
    uint64_t begun;           /* of the lap under way; 0: none */
    uint64_t bytes;           /* of it so far */
    char name[HC_TRACE_NAME]; /* as the trace has it */
} hc_laps;
/* The laps of the World's requests that the trace shows since the last call, `room` at most. A lap in which records
 * were overwritten before they were read is left out. [any thread] */
size_t hc_loop_read_laps(hc_loop *, hc_laps *, hc_lap *out, size_t room);

/* ---- plans ------------------------------------------------------------------------------------------ */

/* An operation that was agreed once, and has a data plane of its own. Starting it sends no control message and needs no
 * engine; it allocates nothing here. One thread at a time may use a plan. Each start is followed by a wait or by tests,
 * until they say that it is over; then `status` and `text` of its handle say how. */

/* `handle`: of the request (HC_HANDLE_PLAN) or of the message (HC_HANDLE_P2P), whose arrays every start uses. It stays
 * the caller's, and lives longer. NULL: out of memory. */
hc_plan *hc_plan_new(hc_loop *, hc_handle *handle, int32_t set_size);
hc_batch *hc_plan_batch(hc_plan *); /* what its data plane runs; NULL: a message */
/* The plan owns the data plane from here. `by_caller`: any thread may start and test it; that of flat.h. */
void hc_plan_use(hc_plan *, hc_data *, int by_caller);

/* What a member said of its part when the plan was agreed on. */
typedef struct hc_plan_part {
    int64_t bytes, rows; /* of its arrays; rows: of the first one */
    int64_t out_rows;    /* of an `out` whose rows depend on the others; -1: there is none */
} hc_plan_part;
/* What the members of the plan's set have agreed on, from which each makes its own data plane. All is borrowed. */
typedef struct hc_plan_agreed {
    uint8_t operation, is_barrier; /* a barrier is an allreduce that gives nothing */
    int32_t root, rank, size;
    const int32_t *node_of;    /* of each member */
    const hc_plan_part *parts; /* likewise */
    const int64_t *splits;     /* HC_OP_COUNTS: size x size, the rows of each member for each */
} hc_plan_agreed;
int64_t hc_plan_rows_from(const hc_plan_agreed *, int32_t from, int32_t to);
int64_t hc_plan_rows_of(const hc_plan_agreed *, int32_t rank); /* that it gets from all */
int hc_plan_crosses(const hc_plan_agreed *);                   /* it goes between nodes, and needs tags there */
int hc_plan_is_flat(const hc_plan_agreed *);                   /* else it has a hierarchy, with chunks of at most: */
int64_t hc_plan_chunk_bytes(const hc_plan_agreed *);
size_t hc_plan_segment_bytes(const hc_plan_agreed *); /* on this node; 0: it needs none */
/* Gives the plan a flat data plane, which owns the segment after OK. locals: as of hc_flat_new(). */
int hc_plan_use_flat(hc_plan *, const hc_plan_agreed *, hc_segment, hc_node_control *, const int32_t *locals);
/* Not while it is started; also behind hc_loop_free(). NULL is allowed. */
void hc_plan_free(hc_plan *);
/* OK, or BROKEN or FORKED: it was not started. `waits`: the caller goes on to hc_plan_wait(). */
int hc_plan_start(hc_plan *, int waits);
int hc_plan_test(hc_plan *); /* 1: over; 0: not yet */
int hc_plan_soon(hc_plan *); /* the same, and what is over in a moment is over; it never sleeps and never yields */
/* 1: over; 0: not within `ns`. */
int hc_plan_wait(hc_plan *, uint64_t ns);

/* ---- notices ------------------------------------------------------------------------------------------ */

/* A line on stderr, unless it is freed within `ns`; a final line and the end of the process with status 1, unless it
 * is freed within `limit` ns. "": no such line, no such end. NULL: no memory, or no thread. */
typedef struct hc_notice hc_notice;
hc_notice *hc_notice_new(uint64_t ns, const char *text, uint64_t limit, const char *final_line);
void hc_notice_free(hc_notice *); /* NULL is allowed */

/* ---- what observers read ----------------------------------------------------------------------------- */

typedef struct hc_loop_stats {
    hc_counters engine;
    uint64_t control_messages_local, control_bytes_local, control_messages_net, control_bytes_net;
    uint64_t packed_bytes, reduced_bytes, spread_bytes; /* inside the node */
    uint64_t net_sent_bytes, net_sent_messages, net_received_bytes;
    uint64_t requests, shortcuts, batches, cached_batches, fused_requests, payload_bytes;
    uint64_t plan_starts;
    uint64_t p2p_ops, p2p_bytes; /* sends and receives of this rank */
    uint64_t waited_ns;          /* callers blocked, summed over callers */
    uint64_t in_flight_ns;       /* at least one batch was running */
    uint64_t wakes;              /* times the background thread was called */
    uint64_t sleeps;             /* times a driver slept on its doorbell */
} hc_loop_stats;
/* [any thread] A snapshot; single figures are exact, their sum may be torn. */
void hc_loop_get_stats(hc_loop *, hc_loop_stats *);

/* The last events of this rank: trace.h. */

#endif
