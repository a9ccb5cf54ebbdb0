/* SPDX-License-Identifier: Apache-2.0
 *
 * api.h - what the files of the C interface tell each other. It is private to ext/api.
 *
 *     hpccoll.h     what programs see
 *     codes.c       statuses in words, the last error of a thread; the public numbers are those of core/hc.h
 *     settings.c    knobs from options and environment
 *     rendezvous.c  how the ranks exchange what they must know of each other at the start
 *     parts.c       nodes, segments, the loop, process sets
 *     start.c       what the ranks say of themselves, nodes, net
 *     list.c        the Worlds of this process
 *     worlds.c      Worlds from a communicator, and their ends
 *     sets.c        subset and split
 *     queries.c     ranks and counters
 *     requests.c    waits, and what becomes of a request
 *     unnamed.c     the order of calls without a name
 *     calls.c       arguments to a request
 *     shortcuts.c   calls of few bytes, without a request
 *     operations.c  the public functions of the collectives
 *     ops.c         reductions of the program's own: their table
 *     user_reductions.c  operations with them
 *     messages.c    send and receive
 *     agree.c       how the ranks agree on a plan
 *     plan_memory.c what plans hold
 *     plans.c       persistent operations: made, started, waited for, freed
 */
#ifndef HC_API_H
#define HC_API_H

#include "api/hpccoll.h"
#include "core/hc.h"
#include "loop/in_flight.h"
#include "loop/loop.h"
#include "transport/net/mpi_net.h"
#include "world/arguments.h"
#include "world/job.h"

#include <pthread.h>

/* ---- codes.c ----------------------------------------------------------------------------------------------- */

#define HC__ERROR_BYTES 2048
/* Notes the text as this thread's last error (NULL or "": the status in words). Returns the status. */
int hc__error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- settings.c -------------------------------------------------------------------------------------------- */

#define HC__TEXT_KNOB 512

/* clang-format off */
#define HC_WORLD_KNOBS(X) /* rows as in HC_ENGINE_KNOBS; hpccoll/config.py has the same, and a test compares */ \
    X(uint64_t, start_timeout, 120, 0.1, 86400, "s", HC_RANKS_MAY_DIFFER, \
      "longest time to wait for all ranks at the start") \
    X(uint64_t, stop_timeout, 60, 0, 86400, "s", HC_RANKS_MAY_DIFFER, \
      "longest time to wait for the others at the end") \
    X(uint32_t, fanout, 16, 1, 1024, "ranks", HC_RANKS_AGREE, "children of a rank in the control tree") \
    X(uint8_t, background, 1, 0, 1, "", HC_RANKS_MAY_DIFFER, "a thread drives while nobody waits") \
    X(uint32_t, verbose, 1, 0, 1, "", HC_RANKS_MAY_DIFFER, "whether rank 0 says on stderr what was chosen")
/*    name, default, choices ("": any), agreed */
#define HC_WORLD_TEXTS(X) \
    X(nodes, "", "", HC_RANKS_AGREE) \
    X(algorithm, "auto", "auto|recursive_doubling|direct|ring|rabenseifner", HC_RANKS_AGREE) \
    X(wire, "none", "none|fp16|bf16", HC_RANKS_AGREE) \
    X(net, "auto", "auto|mpi", HC_RANKS_AGREE) \
    X(simd, "auto", "auto|avx512|avx2|portable", HC_RANKS_MAY_DIFFER) \
    X(stores, "auto", "auto|plain|stream", HC_RANKS_MAY_DIFFER) \
    X(wait, "auto", "auto|spin|yield|sleep", HC_RANKS_MAY_DIFFER) \
    X(trace_dir, "", "", HC_RANKS_MAY_DIFFER)
/* clang-format on */

#define HC__TEXT_FIELD(name, ...) char name[HC__TEXT_KNOB];

typedef struct hc__settings {
    hc_engine_config engine;
    hc_loop_config loop; /* its own knobs; `engine` in it is not used */
    hc_hierarchy_config hierarchy;
    HC_WORLD_KNOBS(HC_KNOB_FIELD)
    HC_WORLD_TEXTS(HC__TEXT_FIELD)
} hc__settings;

#define HC__AGREED_BYTES 2048 /* the knobs that all ranks must agree on, as text */

/* From the environment and `options` (or NULL). OK, or INVALID, noted. */
int hc__settings_read(hc__settings *, const char *options);
/* "rails=0 fanout=16 ...": equal on ranks whose settings go together. */
void hc__settings_agreed(const hc__settings *, char text[HC__AGREED_BYTES]);
/* The first knob that differs between two such texts: its words in each. 0: there is none. */
int hc__settings_differ(const char *a, const char *b, char word_a[128], char word_b[128]);

/* ---- rendezvous.c ------------------------------------------------------------------------------------------ */

#define HC__WHY_BYTES 512

/* The ranks at the start. `net` NULL: this rank is alone. */
typedef struct hc__rendezvous {
    hc_net *net;
    int32_t rank, size;
    uint64_t timeout; /* ns for each exchange */
    uint32_t number;  /* of exchanges so far */
    const hc_processes *processes;
    char why[HC__WHY_BYTES]; /* of the last failure, the same on all ranks that are here */
} hc__rendezvous;

/* Gives `bytes` of each rank to all, in the order of the ranks. OK, or a status with `why`. */
int hc__rendezvous_allgather(hc__rendezvous *, const void *mine, size_t bytes, void *all);
/* `status` below 0: this rank could not do a step, and `why` says why. All ranks learn of the first that could not. */
int hc__rendezvous_agree(hc__rendezvous *, int status, const char *why);

/* ---- parts.c ----------------------------------------------------------------------------------------------- */

/* The functions of the library that has made a loop: another copy of this code, Python's extension, may have. Handles
 * are memory alone, which either copy may make and free. */
typedef struct hc_loop_calls {
    int version; /* HC_LOOP_CALLS_VERSION: of this struct, and of the structs of core/hc.h and loop/loop.h */
    void (*submit)(hc_loop *, hc_handle *, int);
    int (*wait)(hc_loop *, hc_handle *const *, size_t, uint64_t);
    void (*progress)(hc_loop *);
    int (*pending)(hc_loop *);
    void (*get_stats)(hc_loop *, hc_loop_stats *);
    void (*refuse)(hc_loop *, uint32_t, const hc_request *);
    const char *(*broken_text)(const hc_loop *);
    int (*command)(const hc_job *, hc_handle *);
    int (*set_make)(const hc_job *, const int32_t *, int32_t, uint32_t, uint32_t, hc_segment *, hc_shortcut **);
    hc_plan *(*plan_new)(hc_loop *, hc_handle *, int32_t);
    int (*plan_build)(const hc_job *, const hc_members *, const hc_plan_terms *, hc_handle *, hc_segment *, hc_plan **);
    void (*plan_free)(hc_plan *);
    int (*plan_start)(hc_plan *, int);
    int (*plan_soon)(hc_plan *);
    int (*plan_test)(hc_plan *);
    int (*plan_wait)(hc_plan *, uint64_t);
} hc_loop_calls;
#define HC_LOOP_CALLS_VERSION 3
/* Those of the code that includes this. */
#define HC_LOOP_CALLS                                                                                                  \
    {HC_LOOP_CALLS_VERSION, hc_loop_submit,      hc_loop_wait,   hc_loop_progress, hc_loop_pending, hc_loop_get_stats, \
     hc_loop_refuse,        hc_loop_broken_text, hc_job_command, hc_set_make,      hc_plan_new,     hc_plan_build,     \
     hc_plan_free,          hc_plan_start,       hc_plan_soon,   hc_plan_test,     hc_plan_wait}
extern const hc_loop_calls hc__own_calls;

/* What a capsule "hpccoll.world" of Python points to; the capsule owns it, and sets `closed` when the World ends. */
typedef struct hc_python_world {
    hc_loop_calls calls;
    hc_job *job;           /* until it is closed */
    uint64_t stop_timeout; /* ns */
    uint32_t set;
    int32_t rank, size;
    const int32_t *members;
    _Atomic int closed;
} hc_python_world;

/* What all Worlds that were made of one share. */
typedef struct hc__base {
    hc_job *job, own;       /* `job` is `own`, or that of a World of Python */
    hc_job_user python_job; /* this base as a user of the second */
    hc_loop_calls calls;
    uint8_t comm[HC_MPI_COMM_BYTES];
    const hc_mpi_family *mpi; /* NULL: without MPI */
    hc_segment segment;       /* of the node control segment */
    hc__settings settings;
    hc_processes processes;
    char *process_memory;
    int32_t local_rank, local_size, machine_size; /* of a loop of this library */
    hc_shortcut *shortcut;                        /* of the World of all ranks */
    uint8_t background, one_thread, heartbeat;
    hpccoll_plan *plans;     /* that were not freed */
    hc_python_world *python; /* NULL: the loop is this library's */
    pthread_mutex_t lock;    /* of `in_flight` and `plans` */
    hc_in_flight in_flight;
    atomic_int noted; /* in_flight is not empty */
} hc__base;

#define HC__WORLD_ALIVE 0x6870636f6c6cull

/* Its memory is kept when it ends, so that a call with a World that was freed is an error and no crash. */
struct hpccoll_world {
    uint64_t state; /* HC__WORLD_ALIVE, or 0 */
    const char *ended_by;
    hc__base *base;
    uint32_t number;
    int32_t rank, size;
    int32_t *members; /* World rank of each */
    atomic_int unnamed_open, unnamed_next;
    atomic_int has_refused; /* a call without a name, and the ranks have agreed on none since: no shortcut is taken */
    hc_shortcut *shortcut;  /* of its node, where that is the whole World; else NULL */
    _Atomic(uintptr_t) unnamed_thread;
    struct hpccoll_world *next; /* of all that were made */
};

/* The loop of this rank, with its node control segment and net. All ranks call it, after the hello. */
int hc__parts_make(hc__base *, hc__rendezvous *);
void hc__parts_free(hc__base *);

/* Makes a segment in two steps that all ranks of `agree` take; `here`: ranks of it on this node, NULL: this rank only
 * takes part. */
typedef struct hc__agreement {
    int (*agree)(void *of, int status, const char *why); /* the same answer on all; notes the error */
    void *of;
} hc__agreement;
int hc__segment_make(hc_segment *, const char *name, size_t bytes, int leads, int takes_part, hc__agreement);

/* A process set with these members, of which this rank is one. OK, or a status, noted. *shortcut: of its node, or NULL.
 * The segment is taken in both cases. */
int hc__set_make(hc__base *, uint32_t number, uint32_t generation, const int32_t *ranks, int32_t size, hc_segment *,
                 hc_shortcut **shortcut);
/* Memory of the members of each node; `what` names it. A rank that is no member only takes part in the agreement. */
int hc__members_segment(const hc__base *, const char *what, const int32_t *members, int32_t size, size_t bytes,
                        hc__agreement, hc_segment *);
/* Its segment. A rank that is no member only takes part in the agreement. */
int hc__set_segment(hc__base *, uint32_t number, const int32_t *members, int32_t size, hc__agreement, hc_segment *);

/* ---- start.c ----------------------------------------------------------------------------------------------- */

/* The loop of this rank and the set of all ranks; all ranks call it. `net`: over the program's communicator `comm`, for
 * the start alone; NULL: this rank is alone. OK, or a status, noted. */
int hc__start(hc__base *, hc_net *net, const void *comm);

/* ---- list.c ------------------------------------------------------------------------------------------------ */

hpccoll_world *hc__world_new(hc__base *, uint32_t number, const int32_t *members, int32_t size, int32_t rank);
hpccoll_world *hc__world_newest(void); /* the first of a list, by `next` */
void hc__world_ended(hpccoll_world *, const char *by);
void hc__worlds_ended(const hc__base *, const char *by); /* all that have this base */
/* OK, or a status, noted: the World is NULL, was freed, or has ended. */
int hc__world_check(const hpccoll_world *);

/* ---- unnamed.c --------------------------------------------------------------------------------------------- */

#define HC__UNNAMED "unnamed call c" /* Python's are "unnamed call 0" and so on: one World may have both */
#define HC__UNNAMED_BYTES 32
/* The name of the next call without one, which follows from the program's order alone, and its length; or a status,
 * noted: another thread has such calls in flight. */
int hc__unnamed_begin(hpccoll_world *, char name[HC__UNNAMED_BYTES]);
void hc__unnamed_take_back(hpccoll_world *); /* it was not submitted */
void hc__unnamed_over(hpccoll_world *);      /* it is over */

/* ---- what is done behind an operation, by the thread that has waited for it -------------------------------- */

typedef struct hc__after {
    int (*finish)(struct hc__after *, const hc_handle *); /* the handle is done: OK, or a status, noted */
    void (*free)(struct hc__after *);
} hc__after;

/* ---- calls.c ----------------------------------------------------------------------------------------------- */

/* One operation: what its public function was given. */
typedef struct hc__call {
    uint8_t operation, reduction;
    int root; /* where it has one */
    const hpccoll_array *arrays;
    int n;
    uint8_t is_group, is_last;
    int64_t out_count; /* where the ranks' rows differ */
    const int64_t *splits;
    int64_t *counts; /* where the rows of each rank go */
    const hpccoll_args *args;
    const struct hc__call *stands_for; /* NULL, or the call with a reduction of the program's own that it moves: the
                                          arrays of that one are the program's */
} hc__call;

/* The same as the layer below has it. */
typedef struct hc__read {
    hc_arguments arguments;
    hc_place place;
    hc_operand two[2], *operands; /* `operands` of a group have memory of their own */
} hc__read;
/* OK, or NO_MEMORY, noted. */
int hc__call_read(const hc__call *, const hpccoll_world *, hc__read *);
void hc__read_free(hc__read *);
/* Fills in arguments that are absent, reads them, and says all that is wrong on this rank alone: OK, and the caller
 * frees what was read; or a status, noted. */
int hc__call_check(hc__call *, const hpccoll_world *, hc__read *);
/* The handle of a checked call with this type between nodes and a copy of the name; NULL, noted: no memory. */
hc_handle *hc__call_handle(const hc__call *, const hpccoll_world *, const char *name, int length, int wire);
/* Checks the call and hands it to the loop: OK and its handle, or a status, noted, and nothing was sent. NULL for the
 * handle of a call without a name, whose caller waits: a shortcut has done it. */
int hc__call_begin(const hc__call *, hpccoll_world *, int waits, hc_handle **);
/* This rank has refused the call, with an error that is noted: tells the other ranks if it has no name. Returns the
 * status. */
int hc__call_refused(const hc__call *, hpccoll_world *, int status);
/* Begins it and waits. */
int hc__call_now(const hc__call *, hpccoll_world *);
int hc__call_async(const hc__call *, hpccoll_world *, hpccoll_request **);
int hc__call_plan(const hc__call *, hpccoll_world *, hpccoll_plan **);
/* A World that has plans, and a place for one, which becomes NULL. OK, or a status, noted. */
int hc__plan_check(const hpccoll_world *, hpccoll_plan **);

/* ---- ops.c ------------------------------------------------------------------------------------------------- */

typedef struct hc__op {
    hpccoll_function *function;                              /* NULL: the place is free */
    void (*neutral)(void *to, int64_t count, hpccoll_dtype); /* fills in what changes nothing; NULL: unknown */
    void *context;
    int64_t block;
    char name[48];
} hc__op;

/* 1: the number is that of a reduction of the program's own, or MINLOC or MAXLOC, which is copied. */
int hc__op_find(unsigned number, hc__op *);
/* What is wrong, on this rank alone, with a call whose reduction is none of the engine's. OK, or a status, noted. */
int hc__op_check(const hc__call *, hpccoll_dtype, int64_t count);

/* ---- messages.c -------------------------------------------------------------------------------------------- */

/* Checks a message and makes its handle, or gives a status, noted. */
int hc__message_handle(void *data, int64_t count, hpccoll_dtype, int receives, int peer, int tag, const hpccoll_world *,
                       hc_handle **);

/* ---- sets.c ------------------------------------------------------------------------------------------------ */

/* All ranks' values, by an operation under a name that no program has. */
int hc__exchange(hpccoll_world *, const char *name, const void *mine, size_t bytes, void *all);
/* An hc__agreement of all ranks of a World. */
int hc__agree(void *world, int status, const char *why);

/* ---- agree.c, plans.c -------------------------------------------------------------------------------------- */

/* All ranks call it with their calls: OK and the terms, or one error on all, noted. They compare `whole`, of which
 * `given` may be a part. `node_of`: of each rank. */
int hc__plan_agree(const hc__read *given, const hc__read *whole, hpccoll_world *, const int32_t *node_of,
                   hc_plan_terms *);
/* Where this rank has refused its call, with an error that is noted: tells the others, which have an error, too.
 * Returns the status. */
int hc__plan_refuse(const hc__call *, hpccoll_world *, int status);
#define HC__PLAN_ALIVE 0x68706c616eull

struct hpccoll_plan {
    uint64_t state; /* HC__PLAN_ALIVE, or 0 */
    hpccoll_world *world;
    hc_plan *c;        /* NULL: a list, or its World has ended */
    hc_handle *handle; /* likewise */
    int number;        /* of its tags between nodes; -1: it has none */
    uint8_t started, is_list, byte[1];
    int n; /* of a list */
    hpccoll_plan **parts;
    hc__after *after; /* of each start; NULL: nothing */
    int *from;        /* of a receive, as the next two */
    int64_t *received;
    size_t element;
    hpccoll_plan *next, **link; /* of the plans of its base, or of those that rest */
};

/* ---- plan_memory.c ----------------------------------------------------------------------------------------- */

/* NULL, noted: no memory. */
hpccoll_plan *hc__plan_new(hpccoll_world *);
void hc__plan_link(hpccoll_plan *); /* to its World, which ends it */
/* Frees what it holds; then its memory rests. */
void hc__plan_give_back(hpccoll_plan *);
void hc__plan_rest(hpccoll_plan *);
/* Frees what the plans of a World hold (NULL: of all Worlds), behind the end of its loop or of its set. */
void hc__plans_free(hc__base *, const hpccoll_world *);

/* ---- shortcuts.c ------------------------------------------------------------------------------------------- */

/* 1: all ranks have come, and the result is there; 0: submit a request. The call has been checked, has no name, and its
 * caller waits. */
int hc__shortcut(const hc__read *, hpccoll_world *);

/* ---- requests.c -------------------------------------------------------------------------------------------- */

/* Blocks for at most `ns`; 1: done. */
int hc__await(hpccoll_world *, hc_handle *, uint64_t ns);
/* The status of a handle that is done, noted where it is an error. */
int hc__status(const hc_handle *);
/* The same; gives the handle back. */
int hc__outcome(hpccoll_world *, hc_handle *, int64_t *counts);
/* Tells the caller of a receive that is over who has sent, and how many elements; either may be NULL. */
void hc__note_message(const hpccoll_world *, const hc_handle *, size_t element, int *from, int64_t *received);
/* A request that holds the handle, which is submitted. NULL: no memory. */
hpccoll_request *hc__request_new(hpccoll_world *);
void hc__request_hold(hpccoll_request *, hc_handle *, int64_t *counts, int *from);
void hc__request_after(hpccoll_request *, hc__after *);    /* which the request owns */
void hc__request_element(hpccoll_request *, size_t bytes); /* of a message: `counts` gets how many came */
void hc__request_drop(hpccoll_request *);

/* ---- user_reductions.c ------------------------------------------------------------------------------------- */

int hc__call_is_users(const hc__call *); /* its reduction is one of ops.c */
int hc__users_now(const hc__call *, hpccoll_world *);
int hc__users_async(const hc__call *, hpccoll_world *, hpccoll_request **);
int hc__users_plan(const hc__call *, hpccoll_world *, hpccoll_plan **);

#endif
