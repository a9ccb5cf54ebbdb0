/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.h - drives an engine: takes requests, finishes handles; one thread at a time is the driver.
 *
 * A driver's turn drains the inbox, reads control messages, steps the engine, performs its actions and tests the
 * batches that run. A waiting caller drives; the background thread drives when no caller waits. So a caller that
 * submits and waits does all the work itself, and neither wakes another thread nor waits for it.
 *
 *     submit [any thread] -> inbox -> turn: hc_step -> actions -> hc_data -> handle -> wait [any thread]
 *                                           hc_p2p (messages) ------------->
 */
#pragma once

#include "loop/trace.h"
#include "transport/p2p/p2p.h"
#include "transport/transport.h"
#include "transport/shm/shortcut.h"
#include "transport/shm/shm.h"

#include <stdatomic.h>

/* ---- handles -------------------------------------------------------------------------------------- */

typedef struct hc_handle hc_handle;
typedef struct hc_plan hc_plan;
typedef struct hc_votes hc_votes;

enum {
    HC_HANDLE_COUNTED = 251,
    HC_HANDLE_VOTED,
    HC_HANDLE_VOTE,
    HC_HANDLE_PLAN,
    HC_HANDLE_P2P
}; /* kinds of handles that are not events */
/* The numbers of messages among the operations, for the trace and for texts. */
enum hc_p2p_operation { HC_SEND = HC_OPERATION_COUNT, HC_RECEIVE };

/* The parts of a process set. If it cannot be added, the caller keeps them all. */
typedef struct hc_set_parts {
    const hc_set_config *place;
    hc_data *host;         /* the data plane for host memory; the loop owns it */
    const hc_node *node;   /* the node of `host`, for its counters */
    hc_plane_maker *maker; /* makes data planes for device memory; the loop owns it; NULL: none */
    hc_votes *votes;       /* on small calls between nodes; the loop owns them; NULL: none */
    int32_t lead;          /* World rank of set rank 0, for the trace */
} hc_set_parts;

/* A request in flight. The submitter fills the first part, and may read the second after hc_handle_done(). The
 * submitter has one reference, the loop another while the request is in flight. Its address is its ticket. */
struct hc_handle {
    uint8_t kind; /* HC_EV_ENQUEUE, REFUSE, JOIN, STOP, PREEMPT, TUNE, ADD_SET, REMOVE_SET; HC_HANDLE_... */
    uint32_t set;
    hc_request request;        /* name and tensors are in the handle's memory */
    hc_tensor *tensors;        /* request.tensors, to fill */
    int64_t *dims;             /* room for the dims of all tensors, to fill */
    hc_piece *pieces;          /* request.ntensors of them: in, out, count, row, send_rows, recv_rows */
    int64_t *rows;             /* 2 x set size entries (allgather, alltoall); TUNE: the numbers of hc_tuning; or NULL */
    const hc_set_parts *parts; /* ADD_SET: borrowed from the caller, which waits */
    hc_p2p_op *op;             /* P2P: owned; has the results, too */
    hc_plan *plan;             /* PLAN: the plan that was started; else NULL */
    hc_staging *staging;       /* P2P in device memory: of the loop, freed with the handle */
    void *ready, *finished;    /* device memory: see hc_batch; the submitter keeps them until it is done */
    char *site;                /* debug: the program's lines that made the request, for the trace; owned, or NULL */

    /* Called when the handle is done, by a thread that does not drive: it may run for long, submit and wait. Or NULL.
     * Needs hc_loop_start_completions(). */
    void (*on_done)(hc_handle *, void *context);
    void *context;

    int status;        /* enum hc_status */
    char *text;        /* owned, or NULL */
    int64_t value;     /* JOIN: the last set rank to join; VOTE: the outcome; REFUSE: the call to vote NO on, or -1 */
    uint64_t position; /* in the set's log */

    /* for the loop */
    hc_handle *next;
    hc_handle **link;           /* the pointer to this handle in the list of handles in flight */
    atomic_ullong waited_since; /* P2P, PLAN: ns, when a caller began to wait; 0: not yet */
    uint8_t warnings,
        named_silent;    /* P2P, PLAN: reports of a long wait; named_silent: the last one named silent ranks */
    uint8_t traced_wait; /* the trace has its WAIT */
    atomic_int refs;
    atomic_int done;
    uint64_t bytes;
    uint64_t *sums;   /* debug: a checksum per input */
    uint8_t modified; /* debug: an input changed while in flight */
};

/* Room for a request of `ntensors` tensors with `ndims` dims in all, a copy of `name`, and `nrows` entries of
 * rows. NULL: out of memory. [any thread] */
hc_handle *hc_handle_new(int kind, uint32_t set, uint32_t ntensors, uint32_t ndims, const char *name, size_t name_len,
                         uint32_t nrows);
/* The handle of a send or a receive: receives, tag, peer, data, bytes are copied; memory: of the data (enum
 * hc_memory_kind). NULL: out of memory. [any thread] */
hc_handle *hc_handle_of_p2p(uint32_t set, const hc_p2p_op *, int memory);
/* Adds a reference before the handle is submitted, while only the caller has it. */
static inline void hc_handle_retain(hc_handle *h) {
    atomic_store_explicit(&h->refs, atomic_load_explicit(&h->refs, memory_order_relaxed) + 1, memory_order_relaxed);
}
void hc_handle_release(hc_handle *);           /* [any thread] */
static inline int hc_handle_done(hc_handle *h) /* [any thread] */
{
    return atomic_load_explicit(&h->done, memory_order_acquire);
}
/* The position of an ended request in the log of its set; 0: this rank alone has refused it. */
uint64_t hc_handle_position(const hc_handle *);

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
      "the system allows it, and, on Intel's processors, the rows of a large alltoall or of an allgather of two "      \
      "ranks; 0: both go through shared memory, which is two copies")
/* clang-format on */

/* How a thread waits between two polls for other ranks (waiting.h). AUTO: spin if each rank can have a core, else
 * yield. SLEEP: do not poll again. */
enum hc_wait { HC_WAIT_AUTO, HC_WAIT_SPIN, HC_WAIT_YIELD, HC_WAIT_SLEEP };
int hc_wait_named(const char *); /* "auto", "spin" and so on; AUTO for any other word */

typedef struct hc_loop_config {
    hc_engine_config engine; /* `processes` lives as long as the loop */
    HC_LOOP_KNOBS(HC_KNOB_FIELD)
    uint8_t background;     /* a background thread drives when no caller waits */
    uint8_t stores;         /* enum hc_stores: for data that other ranks read */
    uint8_t wait;           /* enum hc_wait: how a thread waits for other ranks */
    uint8_t one_thread;     /* only the thread that made the loop may drive (MPI_THREAD_FUNNELED) */
    uint8_t heartbeat;      /* every rank has a background thread, which answers while the program computes */
    uint8_t wire;           /* dtype between nodes for float32 and float64, or HC_WIRE_SAME */
    const int32_t *node_of; /* node of each World rank; copied */
    int32_t local_rank, local_size;
    int32_t machine_size; /* ranks on this machine, which HPCCOLL_NODES may split into nodes; 0: local_size */
    int32_t fanout; /* of the World's tree (hc_tree_index_new); 0: the neighbours of a lost leader get no message */
    const int32_t *locals; /* World rank of each local rank of the node control segment; copied */
    hc_trace_config trace; /* copied */
} hc_loop_config;

/* The loop owns node control segment, control and point-to-point, and hc_loop_free() frees them. It borrows `net` (may
 * be NULL) and the memory of the node control segment. */
typedef struct hc_loop_parts {
    hc_node_control *node_control;
    hc_control *control;
    hc_p2p *p2p;
    hc_net *net;
} hc_loop_parts;

void hc_loop_parts_free(hc_loop_parts *); /* what the loop would own; a part may be NULL */

int hc_loop_new(const hc_loop_config *, const hc_loop_parts *, hc_loop **);
/* Stops the thread, abandons what runs, ends every handle in flight (SHUT_DOWN), frees. */
void hc_loop_free(hc_loop *);
/* From now on callers that wait in any World of the process call this, which makes MPI progress. [any thread] */
void hc_loop_drive_mpi(void (*progress)(void));
void hc_loop_forked(hc_loop *); /* in the child of a fork(): every later submit ends FORKED at once */

/* Submits the handle, which gets the result or the refusal. `waits`: the caller will call hc_loop_wait(), so no other
 * thread is woken. [any thread] */
void hc_loop_submit(hc_loop *, hc_handle *, int waits);
/* Starts the thread that calls on_done functions; call it before the first handle that has one. A second call does
 * nothing. OK, NO_MEMORY, FORKED, or UNSUPPORTED: this World has no background thread. One caller at a time. */
int hc_loop_start_completions(hc_loop *);
/* Submits a handle with an on_done, for a caller that does not wait. If nothing else is in flight, it first drives for
 * at most `ns`, and calls on_done itself if the handle is done by then; otherwise another thread calls it. on_done may
 * run before this returns. [any thread] */
void hc_loop_begin(hc_loop *, hc_handle *, uint64_t ns);
/* Tells the other ranks of the set that this one has refused a call: name, operation, and `why`, which ends in 0. Their
 * call gets an error, and this rank's next request of the name matches their next one. Never blocks. [any thread] */
void hc_loop_refuse(hc_loop *, uint32_t set, const hc_request *);
/* ---- calls of few bytes without a name ---- */

/* The values that must be equal on all ranks; zero for a dtype, shape or factor that the operation does not have, and
 * for a number of rows that may differ. */
#define HC_SHORTCUT_DIMS 4
typedef struct hc_shortcut_agreed {
    uint8_t operation, reduction, dtype, ndim;
    int32_t root;
    double prescale, postscale;
    int64_t dims[HC_SHORTCUT_DIMS];
} hc_shortcut_agreed;
/* The values of a call that may differ between ranks. */
typedef struct hc_shortcut_rows {
    int32_t rows; /* that it gives */
    int32_t room; /* rows of its `out`; -1: it has none, or the caller allocates it after the call was taken */
} hc_shortcut_rows;
typedef struct hc_shortcut_call {
    hc_shortcut_agreed agreed;
    hc_shortcut_rows own;
    int32_t rank, size; /* of this rank, of its set */
    uint16_t traits;    /* of the operation */
    const void *in;
    void *out; /* `in`, or memory that does not overlap it; NULL: no result here */
    int64_t count, row;
    size_t bytes;                      /* at most hc_shortcut_bytes(), unless: */
    uint8_t is_large;                  /* this rank's part is too large, which the others do not know */
    int32_t counts[HC_SHORTCUT_RANKS]; /* HC_OP_COUNTS: rows for each rank */
    const hc_votes *votes;             /* that have taken it; NULL: the ranks of one node have. Set by the loop */
    uint8_t is_request;                /* the ranks only count it: count_request.c */
    uint8_t shown;                     /* the operation, for texts */
} hc_shortcut_call;

/* Tries a call, for a caller that waits and has no other unnamed call in flight. `shortcut`: of the node that holds the
 * whole set; NULL: the set has only this rank. Returns enum hc_shortcut_state. OPEN: call hc_loop_shortcut_wait(),
 * which may yield. TAKEN: call hc_loop_shortcut_end() for the result. OFF: submit a request. LARGE: the same, but it
 * may be counted. */
int hc_loop_shortcut(hc_loop *, uint32_t set, hc_shortcut *, const hc_shortcut_call *);
int hc_loop_shortcut_wait(hc_loop *, hc_shortcut *, const hc_shortcut_call *); /* TAKEN or OFF */
/* TAKEN: the rows of this rank's result. `from` NULL, or room for the rows from each rank. */
int64_t hc_loop_shortcut_rows(const hc_shortcut *, const hc_shortcut_call *, int64_t *from);
void hc_loop_shortcut_end(hc_loop *, const hc_shortcut *, const hc_shortcut_call *);
/* How the ranks of a set count. */
typedef struct hc_counting {
    hc_shortcut *shortcut; /* of the set's ranks on this node; NULL: they do not count */
    hc_votes *votes;       /* of a set on several nodes; else NULL */
    int32_t rank, size;    /* of this rank in the set, of the set */
} hc_counting;
/* Lets the ranks of a set agree on a blocking request without a name by their count, if they come at about the same
 * time. Call it for a checked request that no shortcut has tried, and then submit the request. TAKEN: its kind is
 * HC_HANDLE_COUNTED now. OFF: it is a request as before, or one that ends with what has broken the World meanwhile.
 * OPEN, after about `ns`: other nodes vote, so call hc_loop_count_wait(); a caller that waits no longer submits it as
 * HC_HANDLE_VOTED. */
int hc_loop_count(hc_loop *, const hc_counting *, hc_handle *, uint64_t ns);
int hc_loop_count_wait(hc_loop *, const hc_counting *, hc_handle *, uint64_t ns); /* the same */
/* The members of a set on several nodes. */
typedef struct hc_votes_members {
    const int32_t *ranks, *nodes; /* World rank and node of each member */
    int32_t size, own;            /* own: this rank's place among them */
    int32_t group;                /* this and what follows: as in hc_hierarchy_config */
    const char *algorithm;
    uint8_t exact_sums;
} hc_votes_members;
/* The votes of a set's nodes on its small calls. `count` counts the ranks of this node that have come. NULL: there are
 * no votes in this set, on all its ranks; or no memory. */
hc_votes *hc_loop_votes_new(hc_loop *, uint32_t set, hc_shortcut *count, const hc_votes_members *);
void hc_loop_votes_free(hc_votes *); /* for a set that was not added; NULL is allowed */
/* Tries a call of a set on several nodes, and waits for the other ranks. TAKEN, OFF, LARGE: as above; OPEN:
 * after about `ns` its nodes still vote; or the status that has ended the wait and broken the World, with a text.
 *
 * OPEN: call hc_loop_vote_wait(). A caller that does not wait any longer submits the request of the call instead, as
 * HC_HANDLE_VOTED: it ends with the votes, or becomes a request where they turn the call off. Until it is done, make no
 * other call without a name. */
int hc_loop_vote(hc_loop *, uint32_t set, hc_votes *, hc_shortcut_call *, uint64_t ns);
int hc_loop_vote_wait(hc_loop *, hc_votes *, uint64_t ns); /* the same */
const char *hc_loop_vote_text(const hc_votes *);
/* Runs an unnamed call of a set of one rank, for a caller that waits. 1: it is done; 0: submit it. */
int hc_loop_run_alone(hc_loop *, hc_handle *);
/* Waits, and drives if it can. 1: all `n` handles are done; 0: `ns` have passed. [any thread] */
int hc_loop_wait(hc_loop *, hc_handle *const *handles, size_t n, uint64_t ns);
/* Runs a few iterations if no other thread drives; a program without a background thread makes progress with it. */
void hc_loop_progress(hc_loop *);
/* The number of handles that are not done. [any thread] */
int hc_loop_pending(hc_loop *);
/* How threads of this rank wait, and why: "spin (2 ranks on 2 cores)". Valid when all ranks of the node have started.
 * [any thread] */
void hc_loop_describe_waiting(hc_loop *, char *text, size_t room);
/* The same for the stores to shared memory: "stream (ranks on 2 L3s)". */
void hc_loop_describe_stores(hc_loop *, char *text, size_t room);
/* The status that broke the World, else HC_OK. [any thread] */
int hc_loop_broken(hc_loop *);
/* The newest report of an operation that has waited long, with the missing ranks; "" before the first. [any thread] */
void hc_loop_last_report(hc_loop *, char *text, size_t room);
const char *hc_loop_broken_text(const hc_loop *); /* once it is broken: the reason, a sentence [any thread] */
/* 1: the World is broken, and this rank knows that `rank` was lost. [any thread] */
int hc_loop_has_lost(hc_loop *, int32_t rank);
/* The launcher reports that a process ended without shutting down its World: its rank counts as lost as soon as this
 * rank waits. A process that is no rank of this World is ignored. [any thread] */
void hc_loop_process_ended(hc_loop *, const char *host, int32_t pid);
/* Notes that a compiled program gets the result of this handle, for which nothing else waits. It is called while the
 * handle ends, so its set is still there. [any thread] */
void hc_loop_note_compiled(hc_loop *, const hc_handle *);
/* 1: a member has asked all members of the set to stop, at a position of its log that is at most `waited` or that of a
 * compiled program's request: the same answer on all members that have waited for the same requests. PREEMPT's position
 * is stored before any handle of that or a later position ends. [any thread] */
int hc_loop_preempted(hc_loop *, uint32_t set, uint64_t waited);

/* The World's knobs that change at run time, at this rank's position of the log. */
typedef struct hc_loop_tuning {
    hc_tuning now;
    uint64_t changes, at; /* number of changes; time of the last, ns, CLOCK_MONOTONIC */
} hc_loop_tuning;
void hc_loop_get_tuning(hc_loop *, hc_loop_tuning *); /* [any thread] */

/* A lap of an iterative program: from one request of a name to the next. */
typedef struct hc_lap {
    uint64_t begun, ended; /* ns, CLOCK_MONOTONIC */
    uint64_t bytes;        /* of the requests of the set between them */
} hc_lap;
/* The state of reading laps; initially zero but for `next` and `name`. */
typedef struct hc_laps {
    uint64_t next;            /* number of the next record of the trace */
    uint64_t begun;           /* of the current lap; 0: none */
    uint64_t bytes;           /* of the current lap so far */
    char name[HC_TRACE_NAME]; /* the name in the trace */
} hc_laps;
/* Reads at most `room` laps of the World's requests from the trace, since the last call. A lap with overwritten records
 * is left out. [any thread] */
size_t hc_loop_read_laps(hc_loop *, hc_laps *, hc_lap *out, size_t room);

/* ---- plans ------------------------------------------------------------------------------------------ */

/* A persistent operation: it was agreed once and has its own data plane. A start sends no control message, needs no
 * engine and allocates nothing. One thread at a time may use a plan. After each start call wait or test until it is
 * over; then `status` and `text` of its handle have the result. */

/* `handle`: of the request (HC_HANDLE_PLAN) or of the message (HC_HANDLE_P2P), whose arrays every start uses. The plan
 * borrows it. NULL: out of memory. */
hc_plan *hc_plan_new(hc_loop *, hc_handle *handle, int32_t set_size);
hc_batch *hc_plan_batch(hc_plan *); /* the batch for its data plane; NULL: a message */
/* The plan takes ownership of the data plane. `by_caller`: any thread may start and test it (flat.h). */
void hc_plan_use(hc_plan *, hc_data *, int by_caller);

/* A member's part, as exchanged when the plan was agreed. */
typedef struct hc_plan_part {
    int64_t bytes, rows; /* of its arrays; rows: of the first one */
    int64_t out_rows;    /* of an `out` whose rows depend on other members; -1: no `out` */
} hc_plan_part;
/* The agreed facts of a plan, from which each member makes its data plane. All pointers are borrowed. */
typedef struct hc_plan_agreed {
    uint8_t operation, is_barrier; /* a barrier is an allreduce without data */
    int32_t root, rank, size;
    const int32_t *node_of;    /* of each member */
    const hc_plan_part *parts; /* likewise */
    const int64_t *splits;     /* HC_OP_COUNTS: size x size, the rows of each member for each */
} hc_plan_agreed;
int64_t hc_plan_rows_from(const hc_plan_agreed *, int32_t from, int32_t to);
int64_t hc_plan_rows_of(const hc_plan_agreed *, int32_t rank); /* rows that it gets from all members */
int hc_plan_crosses(const hc_plan_agreed *);                   /* 1: it spans nodes, and needs tags of the net */
int hc_plan_is_flat(const hc_plan_agreed *);                   /* 1: a flat data plane; 0: a hierarchy */
int64_t hc_plan_chunk_bytes(const hc_plan_agreed *);           /* of its hierarchy, at most */
size_t hc_plan_segment_bytes(const hc_plan_agreed *);          /* on this node; 0: it needs no segment */
/* Gives the plan a flat data plane, which owns the segment after OK. locals: as for hc_flat_new(). */
int hc_plan_use_flat(hc_plan *, const hc_plan_agreed *, hc_segment, hc_node_control *, const int32_t *locals);
/* Do not call it while a start runs. It may come after hc_loop_free(). NULL is allowed. */
void hc_plan_free(hc_plan *);
/* OK; BROKEN or FORKED: it was not started. `waits`: the caller will call hc_plan_wait(). */
int hc_plan_start(hc_plan *, int waits);
int hc_plan_test(hc_plan *); /* 1: over; 0: not yet */
int hc_plan_poll(hc_plan *); /* the same, but polls for a moment; it never sleeps and never yields */
/* 1: over; 0: `ns` have passed. */
int hc_plan_wait(hc_plan *, uint64_t ns);

/* ---- notices ------------------------------------------------------------------------------------------ */

/* Prints `text` on stderr unless it is freed within `ns`; prints `final_line` and ends the process with status 1 unless
 * it is freed within `limit` ns. "": no line, no end. NULL: no memory, or no thread. */
typedef struct hc_notice hc_notice;
hc_notice *hc_notice_new(uint64_t ns, const char *text, uint64_t limit, const char *final_line);
void hc_notice_free(hc_notice *); /* NULL is allowed */

/* ---- figures ----------------------------------------------------------------------------------------- */

typedef struct hc_loop_stats {
    hc_counters engine;
    uint64_t control_messages_local, control_bytes_local, control_messages_net, control_bytes_net;
    uint64_t packed_bytes, reduced_bytes, spread_bytes; /* inside the node */
    uint64_t net_sent_bytes, net_sent_messages, net_received_bytes;
    uint64_t requests, shortcuts, counted, batches, cached_batches, fused_requests, payload_bytes;
    uint64_t plan_starts;
    uint64_t p2p_ops, p2p_bytes; /* sends and receives of this rank */
    uint64_t waited_ns;          /* time in which callers were blocked, summed over callers */
    uint64_t in_flight_ns;       /* time in which at least one batch was running */
    uint64_t wakes;              /* number of calls of the background thread */
    uint64_t sleeps;             /* number of sleeps on the doorbell */
} hc_loop_stats;
/* [any thread] A snapshot: each figure is exact, but they may be from different moments. */
void hc_loop_get_stats(hc_loop *, hc_loop_stats *);

/* The last events of this rank: trace.h. */
