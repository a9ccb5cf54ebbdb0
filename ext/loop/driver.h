/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h - the loop's state and internal functions. It is private to ext/loop.
 *
 * Access: any thread may use fields marked [any]. The driver writes `counters`, and any thread reads them. All other
 * fields belong to the driver, the thread that holds `driving`.
 */
#ifndef HC_LOOP_DRIVER_H
#define HC_LOOP_DRIVER_H

#include "loop/waiting.h"

#include <pthread.h>

#define HC__MS 1000000ull
#define HC__IDLE_TICK (250 * HC__MS)   /* how often the background thread wakes when nothing is pending */
#define HC__HEARTBEAT_NS (50 * HC__MS) /* how often a waiting driver checks that all peers are alive */

/* ---- batch.c: from agreed items to a batch of the data plane ---------------------------------------- */

typedef struct hc__run {
    hc_batch batch; /* first: hc_data sees this */
    uint64_t number;
    uint64_t started, bytes;
    uint8_t cached;
    uint32_t nitems;
    const hc_handle *first; /* the batch's first handle, to name it; NULL: this rank has joined */
    int32_t capacity;       /* pieces that fit */
    uint32_t room;          /* calls whose events fit */
    void **events;          /* device memory: batch.ready and batch.finished point into this */
    hc_piece **origin;      /* the handle's piece that batch.pieces[i] was copied from, NULL when joined */
    int64_t *zeros;         /* joined: nothing to send; set size entries */
    int64_t *scratch;       /* joined: in place of received counts */
    struct hc__run *next;
} hc__run;

/* A process set of this rank: its data planes, and its batches in log order. */
typedef struct hc__set_queue {
    uint8_t used;
    uint32_t number, wire; /* wire: its number in messages */
    int32_t size;
    hc_data *data[HC_MEMORY_KINDS]; /* by the memory of the batch; NULL: not made yet */
    hc_data *running;               /* the data plane that runs `head`; NULL: not started */
    hc_plane_maker *maker;
    const hc_node *node;
    uint64_t packed, reduced, spread; /* the part of the node's figures that is counted */
    hc__run *head, **tail, *spare;
    hc_handle *stops;          /* handles that wait for STOPPED */
    _Atomic uint8_t stopped;   /* [any] reads the first set's */
    char shutdown_reason[320]; /* names the rank that stopped it */
} hc__set_queue;

/* ---- plan.c, run_plans.c: persistent operations ---------------------------------------------------- */

enum hc__plan_state { HC__OVER, HC__WITH_CALLER, HC__WITH_LOOP };

struct hc_plan {
    hc_loop *loop;
    hc_handle *handle;
    hc_data *data;            /* NULL: a message */
    hc__run *run;             /* NULL: a message */
    hc_piece *pieces;         /* the batch's pieces before a start; the data plane writes results to the batch's */
    int32_t peer;             /* of a message; HC_ANY_PEER in a receive */
    uint8_t by_caller, state; /* state: the caller's */
};

/* ---- heartbeat.c, node_life.c, silence.c: who is alive ----------------------------------------------------------- */

/* The state of a rank without a sign of life; later values are more specific. */
enum hc__silence { HC__SILENT = 1, HC__AWAY, HC__DEBUGGED, HC__STOPPED, HC__SILENCES };
#define HC__SILENT_MOST 8
#define HC__OWN (-1) /* this rank has seen it itself */
typedef struct hc__silent {
    int32_t rank, from;   /* from: the rank that reported it, or HC__OWN */
    uint8_t kind, is_new; /* is_new: not yet sent to the neighbours */
    uint64_t since, at;   /* at: when it was last seen or reported */
} hc__silent;

/* A neighbour in the World's tree that is on another node. */
typedef struct hc__neighbour {
    int32_t rank;
    uint64_t asked, asked_other; /* when this rank asked it, and another rank of its node */
} hc__neighbour;

/* A rank of this node: its count of progress iterations, and when the count last changed. */
typedef struct hc__local {
    uint64_t turns, moved, looked;
} hc__local;

/* ---- the loop ---------------------------------------------------------------------------------------- */

/* ---- the trace --------------------------------------------------------------------------------------- */

typedef struct hc__trace {
    hc_trace_header *header; /* [any] reads; waiting threads write `callers`, the driver all else */
    hc_trace_record *records;
    char (*sites)[HC_TRACE_SITE]; /* of each record, or NULL */
    int fd;                       /* -1: other processes cannot read the ring */
    atomic_int writing;           /* [any] 1: a thread writes the file */
    uint64_t broke_at;            /* the last record in the file of a broken World; 0: not broken */
    char file[sizeof(((hc_trace_header *)0)->folder) + 64], unfinished[sizeof(((hc_trace_header *)0)->folder) + 72];
    char stack[sizeof(((hc_trace_header *)0)->folder) + 64];
    char note[sizeof(((hc_trace_header *)0)->folder) + 64]; /* the file that explains the folder */
} hc__trace;

/* ---- the loop's figures ------------------------------------------------------------------------------ */

/* The driver counts; any thread reads. */
typedef struct hc__counters_of_loop {
    hc_counter requests, batches, cached_batches, fused_requests, payload_bytes, p2p_ops, p2p_bytes;
    hc_counter packed_bytes, reduced_bytes, spread_bytes, in_flight_ns, sleeps;
} hc__counters_of_loop;

/* ---- completion.c: functions that are called when a handle is done ----------------------------------- */

typedef struct hc__completion {
    _Atomic(hc_handle *) done;      /* [any] handles whose function must be called, newest first; a reference each */
    _Atomic uint32_t call;          /* [any] futex of the thread */
    _Atomic uint32_t begun;         /* [any] number of handles whose callers did not wait */
    atomic_int listening, stopping; /* [any] listening: the thread checks by itself in a moment */
    uint8_t by_driver;              /* the driver calls the functions of its handles after it has left its place */
    uint8_t has_thread;
    pthread_t thread;
} hc__completion;

/* The World's knobs that may change at run time, at this rank's position of the log. The driver writes them. */
typedef struct hc__tuned {
    atomic_ullong fusion_threshold, raise_bytes, raise_window;
    atomic_ullong changes, at; /* changes: incremented before and after each write; at: time of the last, ns */
} hc__tuned;

/* ---- heartbeat.c, node_life.c, silence.c: signs of life of other ranks -------------------------------- */

typedef struct hc__watch {
    hc_counter *turns;            /* progress iterations, in shared memory */
    uint64_t ask_every, patience; /* ns: between questions; without a sign of life until it is reported */
    uint64_t watched;             /* time of the last check of other ranks */
    uint64_t watching;            /* the same while a caller waits; else 0 */
    uint64_t pinged, asked_at;    /* when this rank asked other nodes; when it was asked */
    hc__neighbour *neighbours;
    int32_t nneighbours;
    hc__local *local; /* of each rank of the node */
    uint64_t *owed;   /* per World rank: time of the oldest unanswered question; 0: none */
    hc__silent silent[HC__SILENT_MOST];
    uint32_t nsilent;
    uint8_t published;     /* the leader's list in shared memory is not empty */
    uint64_t listed_at;    /* when the engine got the list */
    char silent_text[512]; /* the list as text, or "" */
} hc__watch;

/* ---- failure.c --------------------------------------------------------------------------------------- */

typedef struct hc__failure {
    hc_event event;
    uint8_t is_next; /* it is the next event of the engine */
    char text[1024], broken_text[1088];
    uint32_t lost; /* once it is broken: 1 + the rank that was lost first; 0: none, or unknown */
} hc__failure;

/* ---- p2p.c: messages in flight ------------------------------------------------------------------------ */

typedef struct hc__messages {
    hc_handle *ops;      /* sends and receives, newest first */
    uint32_t nlistening; /* number of ops that need a listener; for the others their callers poll */
    hc_p2p_op *unposted; /* sends that wait for their copy from a device, and sends ordered after them; oldest first */
} hc__messages;

/* ---- thread.c: the background thread ------------------------------------------------------------------ */

typedef struct hc__background {
    pthread_t thread, maker;
    uint8_t has_thread;
    atomic_int stopping;   /* [any] */
    atomic_int coalescing; /* [any] it checks in a moment: no need to ring */
    _Atomic uint32_t call; /* [any] its futex */
} hc__background;

struct hc_loop {
    hc_loop_config config;
    hc_loop_parts parts;
    hc_engine *engine;
    int32_t *node_of, *locals;

    _Atomic(hc_handle *) inbox;     /* [any] newest first */
    atomic_int driving;             /* [any] 1: a thread is the driver */
    atomic_int flush;               /* [any] a caller waits: raise everything (R1) */
    atomic_int call_me;             /* [any] the driver sleeps: the next submit must ring */
    atomic_int way_to_wait;         /* [any] enum hc_wait; AUTO: not known yet */
    atomic_ullong inbox_bytes;      /* [any] since the last drain */
    _Atomic uint32_t epoch;         /* [any] futex: a handle is done, or the driver's place is free */
    atomic_int sleepers;            /* [any] on `epoch` */
    atomic_int forked;              /* [any] */
    atomic_int broken;              /* [any] status */
    atomic_int ended;               /* [any] 1 + a rank whose process has ended, by its launcher; 0: none */
    atomic_int pending;             /* [any] handles that are not done */
    atomic_ullong waited_ns, wakes; /* [any] */
    atomic_ullong plan_starts;      /* [any] */
    atomic_ullong alone, shortcuts; /* [any] number of calls of hc_loop_run_alone(), number of shortcuts taken */

    atomic_ullong preempted[HC_MAX_SETS]; /* [any] position of PREEMPT in the set's log; 0: none */
    hc__tuned tuned;                      /* [any] the World's knobs that may change */

    hc__set_queue queues[HC_MAX_SETS];
    uint32_t nqueues, nrunning; /* nqueues: 1 + the highest number in use */
    uint64_t wake_at;
    uint8_t *unsent; /* per World rank: 1 while a message of the engine to it is unsent */
    hc__messages messages;
    hc_handle *plans;    /* starts of plans that the driver runs */
    hc_handle *requests; /* requests that the engine holds; if it runs out of memory, the loop ends them */
    hc_handle *removals; /* REMOVE_SET: sets whose messages still use memory of their data planes */
    hc__failure failure;
    uint64_t in_flight_since;
    hc__counters_of_loop counters;

    hc_processes processes;
    hc__watch watch;
    char report[1024]; /* the newest report of a waiting operation, or "" */

    hc__background background;
    hc__completion completion;
    hc__trace trace;
};

uint64_t hc__loop_now(void);

/* inbox.c */
void hc__inbox_push(hc_loop *, hc_handle *); /* [any thread] */
hc_handle *hc__inbox_take(hc_loop *);        /* oldest first; linked by next */

/* handle.c */
void hc__handle_finish(hc_loop *, hc_handle *, int status, const char *text);
void hc__handle_link(hc_handle **list, hc_handle *);
void hc__handle_unlink(hc_handle *);
void hc__wake_waiters(hc_loop *); /* [any thread] */
void hc__futex_wait(_Atomic uint32_t *, uint32_t seen, uint64_t ns);
void hc__futex_wake(_Atomic uint32_t *);
void hc__checksum(hc_handle *); /* debug: at submit */
void hc__checksum_verify(hc_handle *);

/* batch.c */
double hc__factor_of(const hc_request *, int dtype); /* prescale and postscale as one factor */
hc__run *hc__run_build(hc_loop *, hc__set_queue *, const hc_action *run);
hc__run *hc__run_compose(const hc_loop *, hc__set_queue *, const hc_action *run); /* uncounted, untraced */
void hc__run_deliver(const hc_loop *, hc__run *); /* results back into the handles' pieces */
void hc__run_free(hc__run *);

/* set_queues.c, run_batches.c */
int hc__set_queue_add(hc_loop *, hc_handle *);
void hc__set_queue_remove(hc_loop *, hc__set_queue *);
/* Finishes the handles that wait for the end of the set's log. */
void hc__set_queue_finish_stops(hc_loop *, hc__set_queue *, int status, const char *text);
void hc__set_queue_stopped(hc__set_queue *, const char *text); /* its log has ended */
void hc__set_queue_push(hc__set_queue *, hc__run *);
int hc__set_queues_test(hc_loop *); /* tests running batches, starts others; 1: something moved */
void hc__set_queues_abandon(hc_loop *);
int hc__set_queues_need_polling(const hc_loop *); /* 1: a batch waits for an event that wakes no driver */
void hc__set_queues_watch(hc_loop *);             /* checks the launched work of ended batches */
hc__set_queue *hc__set_queue_find(hc_loop *, uint32_t set);
/* The data plane for a kind of memory: OK, or a status with text (HC_PLANE_TEXT bytes). */
int hc__set_queue_data(hc__set_queue *, int memory, hc_data **, char *text);

/* failure.c */
/* A failure becomes the next event of this iteration. */
void hc__loop_fail(hc_loop *, int status, int32_t peer, const char *text);
/* The same for a batch without memory for `what`. Pass the action or the built batch; the other may be NULL. */
void hc__loop_fail_of_memory(hc_loop *, const hc_action *run, const hc__run *, const char *what);
/* The same for data that could not be moved: the text is `what`, and the net's text if the net has failed. */
void hc__loop_fail_to_move(hc_loop *, int status, int32_t peer, const char *what);

/* `rank` is lost, because of `why`. */
void hc__loop_lose(hc_loop *, int32_t rank, const char *why);
void hc__loop_lose_in_time(hc_loop *, int32_t rank, const char *what); /* `what` has outlasted peer_timeout */

/* tuning.c */
void hc__tuning_begin(hc_loop *);
void hc__tuning_perform(hc_loop *, const hc_action *);

/* perform.c */
int hc__loop_step(hc_loop *, hc_event *); /* stamps the time, steps, performs */

/* progress.c */
int hc__progress_once(hc_loop *); /* 1: something moved */
void hc__progress_in(hc_loop *);  /* only takes submitted requests */
void hc__progress_out(hc_loop *); /* only sends queued control messages */

/* drive.c: messages */
/* Posts a message from the caller's thread, after all earlier submissions, if the driver's place is free. `waits`: the
 * caller will wait for it. 1: posted; 0: submit it. [any thread] */
int hc__drive_message(hc_loop *, hc_handle *, int waits);
/* Drives for a moment if the message is inside the node. 1: it is done; 0: wait for it. [any thread] */
int hc__drive_briefly(hc_loop *, hc_handle *);

/* place.c */
int hc__loop_idle(hc_loop *);    /* 1: nothing moves by itself; messages may wait for their peers */
int hc__loop_listens(hc_loop *); /* 1: idle, and no caller waits: open receives may stay open for long */
/* The work for a driver: nothing; receives that may have to answer; data that moves. */
enum hc__left { HC__QUIET, HC__LISTENS, HC__MOVES };
enum hc__left hc__loop_left(hc_loop *);
int hc__may_drive(const hc_loop *); /* [any thread] */
int hc__driver_try(hc_loop *);      /* [any thread] 1: this thread is the driver now */
/* A thread of the program leaves the driver's place. With the result it must drive again at once or call the background
 * thread, at least for new work; the background thread knows the work that existed before. */
enum hc__left hc__driver_leave(hc_loop *) __attribute__((warn_unused_result));
void hc__driver_vacate(hc_loop *); /* the background thread leaves */
void hc__driver_await(hc_loop *);  /* [any thread] sleeps until the place is free, or for a while */
/* [any thread] 1: there is no background thread, and this process still holds messages that other ranks wait for. */
int hc__loop_owes(hc_loop *);
int hc__look_away(hc_loop *); /* from now on submitters must ring; 1: the inbox already has a request */
uint64_t hc__sleep_limit(hc_loop *, uint64_t now, uint64_t idle_since, uint64_t limit); /* ns */
int hc__about_to_sleep(hc_loop *, uint64_t now); /* 0: a thread has submitted meanwhile, check again */

/* p2p.c */
void hc__p2p_take(hc_loop *, hc_handle *);
int hc__p2p_progress(hc_loop *); /* 1: something moved */
void hc__p2p_stop(hc_loop *, uint32_t set);
int hc__p2p_borrow(const hc_loop *, uint32_t set); /* 1: a message uses memory of the set's data plane */
void hc__p2p_break(hc_loop *, int status, const char *text);
void hc__p2p_watch(hc_loop *, uint64_t now, void (*watch)(hc_loop *, int32_t peer, uint64_t now));

/* run_plans.c */
void hc__plan_take(hc_loop *, hc_handle *);
int hc__plans_test(hc_loop *); /* 1: something moved */
void hc__plans_stop(hc_loop *, uint32_t set);
void hc__plans_abandon(hc_loop *);
void hc__plans_break(hc_loop *, int status, const char *text);
void hc__plans_watch(hc_loop *, uint64_t now);

/* long_wait.c */
/* Reports a wait of `ns` that the engine does not know of, or breaks the World at the stall limit. */
void hc__watch_wait(hc_loop *, hc_handle *, uint64_t ns,
                    void (*describe)(hc_loop *, const hc_handle *, char *, size_t));

/* thread.c */
int hc__thread_start(hc_loop *);
void hc__thread_stop(hc_loop *);
void hc__thread_call(hc_loop *); /* [any thread] */

/* completion.c */
void hc__completion_call(hc_loop *);  /* calls the functions of done handles [any thread that does not drive] */
void hc__completion_begun(hc_loop *); /* a handle was submitted whose caller does not wait [any thread] */
void hc__completion_stop(hc_loop *);  /* call it when all handles have ended */

/* heartbeat.c */
void hc__heartbeat(hc_loop *, uint64_t now);
void hc__heartbeat_idle(hc_loop *);
/* 1: it was a heartbeat message; 0: it was not; or a status. */
int hc__heartbeat_message(hc_loop *, int32_t peer, const uint8_t *bytes, size_t nbytes);

/* node_life.c */
void hc__node_begin(hc_loop *, uint64_t now); /* restarts all clocks */
void hc__node_look(hc_loop *, uint64_t now);
void hc__node_publish(hc_loop *, uint64_t now); /* the leader publishes for the ranks of its node */
int hc__node_reports(hc_loop *);                /* 1: this rank prints the reports of its node */
void hc__node_read(hc_loop *, uint64_t now);    /* the other ranks read that */

/* silence.c */
void hc__silence_note(hc_loop *, const hc__silent *, uint64_t now);
void hc__silence_end(hc_loop *, int32_t rank); /* the rank gave a sign of life */
void hc__silence_expire(hc_loop *, uint64_t now);
void hc__silence_describe(hc_loop *, uint64_t now);

/* trace.c */
int hc__trace_new(hc_loop *);
void hc__trace_free(hc__trace *);
void hc__trace_forked(hc__trace *);
void hc__trace_message(hc_loop *, int kind, int32_t peer, uint64_t bytes);
void hc__trace_handle(hc_loop *, int kind, const hc_handle *, uint64_t batch);
void hc__trace_batch(hc_loop *, int kind, uint32_t set, const hc__run *);
void hc__trace_break(hc_loop *, int status, const char *text);
void hc__trace_set(hc_loop *, const hc__set_queue *, int32_t lead); /* a set begins or, not used, ends */

/* trace_file.c */
void hc__trace_prepare(hc_loop *);
int hc__trace_write_file(hc__trace *); /* async-signal-safe */
void hc__trace_write_broken(hc_loop *);
void hc__trace_watch_signal(hc_loop *);
void hc__trace_at_signal(hc_loop *); /* from here on SIGUSR2 writes the file */
void hc__trace_not_at_signal(hc_loop *);

#endif
