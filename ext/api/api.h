/* SPDX-License-Identifier: Apache-2.0
 *
 * api.h - declarations shared by the files of the C interface. It is private to ext/api.
 *
 *     hpccoll.h     the public interface
 *     codes.c       texts of statuses, the last error of a thread; the public numbers equal those of core/hc.h
 *     settings.c    knobs from options and environment
 *     rendezvous.c  exchanges between the ranks at the start
 *     parts.c       nodes, segments, the loop, process sets
 *     start.c       reports of the ranks, nodes, net
 *     list.c        the Worlds of this process
 *     worlds.c      creates and ends Worlds
 *     sets.c        subset and split
 *     queries.c     ranks and counters
 *     requests.c    waits, and outcomes of requests
 *     calls.c       turns arguments into a request
 *     shortcuts.c   calls of few bytes, without a request
 *     operations.c  the public functions of the collectives
 *     ops.c         table of user-defined reductions
 *     user_reductions.c  operations with user-defined reductions
 *     messages.c    send and receive
 *     agree.c       agreement of the ranks on a plan
 *     plan_memory.c memory and lists of plans
 *     plans.c       persistent operations: init, start, wait, free
 */
#ifndef HC_API_H
#define HC_API_H

#include "api/hpccoll.h"
#include "core/hc.h"
#include "loop/loop.h"
#include "transport/net/mpi_net.h"
#include "world/arguments.h"
#include "world/job.h"
#include "world/user_reduction.h"

#include <pthread.h>

/* ---- codes.c ----------------------------------------------------------------------------------------------- */

#define HC__ERROR_BYTES 2048
/* Sets the text as this thread's last error (NULL or "": the text of the status). Returns the status. "Error set" below
 * means that the function has called it. */
int hc__error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- settings.c -------------------------------------------------------------------------------------------- */

#define HC__TEXT_KNOB 512

/* clang-format off */
#define HC_WORLD_KNOBS(X) /* rows as in HC_ENGINE_KNOBS; a test compares them with hpccoll/config.py */ \
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
    X(algorithm, "auto", "auto|direct|stages|ring", HC_RANKS_AGREE) \
    X(wire, "none", "none|fp16|bf16", HC_RANKS_AGREE) \
    X(net, "auto", "auto|mpi", HC_RANKS_AGREE) \
    X(simd, "auto", "auto|avx512|avx2|portable", HC_RANKS_MAY_DIFFER) \
    X(stores, "auto", "auto|plain|stream", HC_RANKS_MAY_DIFFER) \
    X(wait, "auto", "auto|spin|yield|sleep", HC_RANKS_MAY_DIFFER) \
    X(trace_dir, "", "", HC_RANKS_MAY_DIFFER)
/* clang-format on */

#define HC__TEXT_FIELD(name, ...) char name[HC__TEXT_KNOB];

#define HC__IGNORED_BYTES 512

typedef struct hc__settings {
    hc_engine_config engine;
    hc_loop_config loop; /* its knobs; `engine` in it is not used */
    hc_hierarchy_config hierarchy;
    HC_WORLD_KNOBS(HC_KNOB_FIELD)
    HC_WORLD_TEXTS(HC__TEXT_FIELD)
    char ignored[HC__IGNORED_BYTES]; /* variables of the environment without effect in C: "HPCCOLL_X, HPCCOLL_Y" */
} hc__settings;

#define HC__AGREED_BYTES 2048 /* text of the knobs that must be equal on all ranks */

/* Reads the environment and `options` (or NULL). OK, or INVALID (error set). */
int hc__settings_read(hc__settings *, const char *options);
/* Writes the knobs that must be equal on all ranks: "rails=0 fanout=16 ...". */
void hc__settings_agreed(const hc__settings *, char text[HC__AGREED_BYTES]);
/* Finds the first knob that differs between two such texts, and copies its word from each. 0: all are equal. */
int hc__settings_differ(const char *a, const char *b, char word_a[128], char word_b[128]);

/* ---- rendezvous.c ------------------------------------------------------------------------------------------ */

#define HC__WHY_BYTES 512

/* State of the exchanges at the start. `net` NULL: this rank is alone. */
typedef struct hc__rendezvous {
    hc_net *net;
    int32_t rank, size;
    uint64_t timeout; /* ns for each exchange */
    uint32_t number;  /* exchanges so far */
    const hc_processes *processes;
    char why[HC__WHY_BYTES]; /* text of the last failure, the same on all ranks that take part */
} hc__rendezvous;

/* An allgather of `bytes` per rank. OK, or a status with `why`. */
int hc__rendezvous_allgather(hc__rendezvous *, const void *mine, size_t bytes, void *all);
/* `status` below 0: this rank has failed, for the reason `why`. All ranks get the status of the lowest rank that has
 * failed. */
int hc__rendezvous_agree(hc__rendezvous *, int status, const char *why);

/* ---- parts.c ----------------------------------------------------------------------------------------------- */

/* The functions of the library that has made a loop, which may be another copy of this code: Python's extension.
 * Handles are only memory, so either copy may make and free them. */
typedef struct hc_loop_calls {
    int version; /* HC_LOOP_CALLS_VERSION: of this struct, and of the structs of core/hc.h and loop/loop.h */
    void (*submit)(hc_loop *, hc_handle *, int);
    int (*wait)(hc_loop *, hc_handle *const *, size_t, uint64_t);
    void (*progress)(hc_loop *);
    int (*pending)(hc_loop *);
    void (*get_stats)(hc_loop *, hc_loop_stats *);
    void (*refuse)(hc_loop *, uint32_t, const hc_request *);
    const char *(*broken_text)(const hc_loop *);
    int (*set_make)(hc_job *, const int32_t *, int32_t, uint32_t, uint32_t, hc_segment *);
    int (*set_remove)(hc_job *, uint32_t);
    hc_plan *(*plan_new)(hc_loop *, hc_handle *, int32_t);
    int (*plan_build)(const hc_job *, const hc_members *, const hc_plan_terms *, hc_handle *, hc_segment *, hc_plan **);
    void (*plan_free)(hc_plan *);
    int (*plan_start)(hc_plan *, int);
    int (*plan_poll)(hc_plan *);
    int (*plan_test)(hc_plan *);
    int (*plan_wait)(hc_plan *, uint64_t);
} hc_loop_calls;
#define HC_LOOP_CALLS_VERSION 4
/* The functions of the including code's copy. */
#define HC_LOOP_CALLS                                                                                                \
    {HC_LOOP_CALLS_VERSION, hc_loop_submit,      hc_loop_wait, hc_loop_progress, hc_loop_pending, hc_loop_get_stats, \
     hc_loop_refuse,        hc_loop_broken_text, hc_set_make,  hc_set_remove,    hc_plan_new,     hc_plan_build,     \
     hc_plan_free,          hc_plan_start,       hc_plan_poll, hc_plan_test,     hc_plan_wait}
extern const hc_loop_calls hc__own_calls;

/* The target of Python's capsule "hpccoll.world", which owns it and sets `closed` when the World ends. */
typedef struct hc_python_world {
    hc_loop_calls calls;
    hc_job *job;           /* valid until `closed` */
    uint64_t stop_timeout; /* ns */
    uint32_t set;
    int32_t rank, size;
    const int32_t *members;
    _Atomic int closed;
} hc_python_world;

/* The state shared by a World and all Worlds made from it. */
typedef struct hc__base {
    hc_job *job, own;       /* `job` is `own`, or the job of a World of Python */
    hc_job_user python_job; /* registers this base as a user of Python's job */
    hc_loop_calls calls;
    uint8_t comm[HC_MPI_COMM_BYTES];
    const hc_mpi_family *mpi; /* NULL: without MPI */
    hc_segment segment;       /* of the node control segment */
    hc__settings settings;
    hc_processes processes;
    char *process_memory;
    int32_t local_rank, local_size, machine_size; /* of a loop of this library */
    uint8_t background, one_thread, heartbeat;
    hpccoll_plan *plans;     /* plans that are not freed */
    hc_python_world *python; /* NULL: the loop belongs to this library */
    pthread_mutex_t lock;    /* of `plans` */
} hc__base;

#define HC__WORLD_ALIVE 0x6870636f6c6cull

/* The memory stays after the World has ended, so that a call with a freed World is an error, not a crash. */
struct hpccoll_world {
    uint64_t state; /* HC__WORLD_ALIVE, or 0 */
    const char *ended_by;
    hc__base *base;
    uint32_t number;
    int32_t rank, size;
    int32_t *members;           /* World rank of each member */
    struct hpccoll_world *next; /* list of all Worlds */
};

/* Makes the loop of this rank, with its node control segment and net. All ranks call it, after the exchange of their
 * reports. */
int hc__parts_make(hc__base *, hc__rendezvous *);
void hc__parts_free(hc__base *);

/* Makes a segment in two steps; all ranks of `agree` call it. `leads`: this rank creates it; `takes_part`: this rank
 * attaches to it; neither: it only takes part in the agreement. */
typedef struct hc__agreement {
    int (*agree)(void *of, int status, const char *why); /* returns the same status on all ranks (error set) */
    void *of;
} hc__agreement;
int hc__segment_make(hc_segment *, const char *name, size_t bytes, int leads, int takes_part, hc__agreement);

/* Makes a process set with these members; this rank is a member. OK, or a status (error set). It takes the segment,
 * also after an error. */
int hc__set_make(hc__base *, uint32_t number, uint32_t generation, const int32_t *ranks, int32_t size, hc_segment *);
/* Makes a segment for the members of each node; `what` names it. A rank that is no member only takes part in the
 * agreement. */
int hc__members_segment(const hc__base *, const char *what, const int32_t *members, int32_t size, size_t bytes,
                        hc__agreement, hc_segment *);
/* Makes the segment of a process set. A rank that is no member only takes part in the agreement. */
int hc__set_segment(hc__base *, uint32_t number, const int32_t *members, int32_t size, hc__agreement, hc_segment *);

/* ---- start.c ----------------------------------------------------------------------------------------------- */

/* Makes the loop of this rank and the set of all ranks; all ranks call it. `net`: over the program's communicator
 * `comm`, only for the start; NULL: this rank is alone. OK, or a status (error set). */
int hc__start(hc__base *, hc_net *net, const void *comm);

/* ---- list.c ------------------------------------------------------------------------------------------------ */

hpccoll_world *hc__world_new(hc__base *, uint32_t number, const int32_t *members, int32_t size, int32_t rank);
hpccoll_world *hc__world_newest(void); /* head of the list by `next` */
void hc__world_ended(hpccoll_world *, const char *by);
void hc__worlds_ended(const hc__base *, const char *by); /* all Worlds with this base */
/* OK, or a status (error set): the World is NULL, was freed, or has ended. */
int hc__world_check(const hpccoll_world *);
/* The order of a living World's calls without a name. */
static inline hc_order *hc__order(const hpccoll_world *world) {
    return &world->base->job->orders[world->number];
}

/* ---- callbacks after an operation, in the thread that waits for it ----------------------------------------- */

typedef struct hc__after {
    int (*finish)(struct hc__after *, const hc_handle *); /* the handle is done: OK, or a status (error set) */
    void (*free)(struct hc__after *);
} hc__after;

/* ---- calls.c ----------------------------------------------------------------------------------------------- */

/* The arguments of a public function. */
typedef struct hc__call {
    uint8_t operation, reduction;
    int root; /* if it has a root */
    const hpccoll_array *arrays;
    int n;
    uint8_t is_group, is_last;
    int64_t out_count; /* if rows may differ between ranks */
    const int64_t *splits;
    int64_t *counts; /* receives the rows of each rank */
    const hpccoll_args *args;
} hc__call;

/* The same arguments as structs of world/arguments.h. */
typedef struct hc__read {
    hc_arguments arguments;
    hc_place place;
    hc_operand two[2], *operands; /* a group's `operands` are allocated */
    hc_user_reduction user;       /* if `arguments` have one */
} hc__read;
/* OK, or NO_MEMORY (error set). */
int hc__call_read(const hc__call *, const hpccoll_world *, hc__read *);
void hc__read_free(hc__read *);
/* Fills in absent arguments, reads them, and makes all checks that this rank can make alone: OK, and the caller calls
 * hc__read_free(); or a status (error set). */
int hc__call_check(hc__call *, const hpccoll_world *, hc__read *);
static inline int hc__nothing_in_flight(const hpccoll_world *world) {
    hc_job *job = world->base->job;
    return hc_in_flight_none(&job->in_flight, job->loop, world->base->calls.pending);
}
/* Makes the handle of checked arguments with a copy of the name; NULL (error set): no memory. */
hc_handle *hc__call_handle(const hc__call *, const hc__read *, const char *name, int length);
/* Checks the call and submits it to the loop: OK and its handle, or a status (error set), and nothing was sent. The
 * handle is NULL if a shortcut has done the call, which it may do for an unnamed call whose caller waits. */
int hc__call_begin(const hc__call *, hpccoll_world *, int waits, hc_handle **);
/* The same for a step of a checked call with a reduction of the program; `read` has the arguments of the call. */
int hc__call_step(const hc__call *, hpccoll_world *, const hc__read *read, const hc_folding_step *step, int waits,
                  hc_handle **);
/* Call it after this rank has refused the call (error set): it tells the other ranks if the call has no name. Returns
 * the status. */
int hc__call_refused(const hc__call *, hpccoll_world *, int status);
/* Begins the call and waits. */
int hc__call_now(const hc__call *, hpccoll_world *);
int hc__call_async(const hc__call *, hpccoll_world *, hpccoll_request **);
int hc__call_plan(const hc__call *, hpccoll_world *, hpccoll_plan **);
/* Checks the World and the address for a plan, and sets *plan to NULL. OK, or a status (error set). */
int hc__plan_check(const hpccoll_world *, hpccoll_plan **);
/* Makes a plan of `given` with all ranks, which compare `whole`. OK, or a status (error set). */
int hc__plan_make(const hc__call *, hpccoll_world *, const hc__read *given, const hc__read *whole, hpccoll_plan **);

/* ---- ops.c ------------------------------------------------------------------------------------------------- */

/* 1: the number is that of a reduction of the program, of MINLOC or MAXLOC; copies it. */
int hc__op_find(unsigned number, hc_user_reduction *);
/* Checks the reduction of a call that the engine does not have, and its dtype. OK, or a status (error set). */
int hc__op_check(const hc__call *, hpccoll_dtype);

/* ---- messages.c -------------------------------------------------------------------------------------------- */

/* Checks a message and makes its handle. OK, or a status (error set). */
int hc__message_handle(void *data, int64_t count, hpccoll_dtype, int receives, int peer, int tag, const hpccoll_world *,
                       hc_handle **);

/* ---- sets.c ------------------------------------------------------------------------------------------------ */

/* An allgather of all ranks' values, under a name reserved for the library. */
int hc__exchange(hpccoll_world *, const char *name, const void *mine, size_t bytes, void *all);
/* The `agree` of an hc__agreement among all ranks of a World. */
int hc__agree(void *world, int status, const char *why);

/* ---- agree.c, plans.c -------------------------------------------------------------------------------------- */

/* All ranks call it with their calls: OK and the terms, or the same error on all (error set). They compare `whole`, of
 * which `given` may be a part. `node_of`: of each rank. */
int hc__plan_agree(const hc__read *given, const hc__read *whole, hpccoll_world *, const int32_t *node_of,
                   hc_plan_terms *);
/* Call it after this rank has refused its call (error set): the other ranks get an error, too. Returns the status. */
int hc__plan_refuse(const hc__call *, hpccoll_world *, int status);
#define HC__PLAN_ALIVE 0x68706c616eull

struct hpccoll_plan {
    uint64_t state; /* HC__PLAN_ALIVE, or 0 */
    hpccoll_world *world;
    hc_plan *c;        /* NULL: a list, or its World has ended */
    hc_handle *handle; /* NULL like `c` */
    int number;        /* of its tags between nodes; -1: no tags */
    uint8_t started, is_list, byte[1];
    int n; /* plans in a list */
    hpccoll_plan **parts;
    hc__after *after; /* called after each start; NULL: no callback */
    int *from;        /* for a receive, like the next two */
    int64_t *received;
    size_t element;
    hpccoll_plan *next, **link; /* in the list of its base, or of freed plans */
};

/* ---- plan_memory.c ----------------------------------------------------------------------------------------- */

/* NULL (error set): no memory. */
hpccoll_plan *hc__plan_new(hpccoll_world *);
void hc__plan_link(hpccoll_plan *); /* adds it to its World, which ends it */
/* The first frees the resources of a plan, the second keeps its memory for a later plan. */
void hc__plan_give_back(hpccoll_plan *);
void hc__plan_rest(hpccoll_plan *);
/* Frees the resources of the plans of a World (NULL: of all Worlds), after the end of its loop or set. */
void hc__plans_free(hc__base *, const hpccoll_world *);

/* ---- shortcuts.c ------------------------------------------------------------------------------------------- */

/* 1: all ranks took part, and the result is complete; 0: submit a request. The call must be checked and unnamed, and
 * its caller must wait. `counts`: NULL, or receives the rows of each rank. */
int hc__shortcut(const hc__read *, hpccoll_world *, int64_t *counts);

/* ---- requests.c -------------------------------------------------------------------------------------------- */

/* Blocks for at most `ns`; 1: done. */
int hc__await(hpccoll_world *, hc_handle *, uint64_t ns);
/* The status of a handle that is done (error set if it is an error). */
int hc__status(const hc_handle *);
/* The same; also releases the handle. */
int hc__outcome(hpccoll_world *, hc_handle *, int64_t *counts);
/* After a receive: writes the sender and the number of elements; either pointer may be NULL. */
void hc__note_message(const hpccoll_world *, const hc_handle *, size_t element, int *from, int64_t *received);
/* Makes a request, for the handle that hc__request_hold() sets. NULL: no memory. */
hpccoll_request *hc__request_new(hpccoll_world *);
void hc__request_hold(hpccoll_request *, hc_handle *, int64_t *counts, int *from);
void hc__request_after(hpccoll_request *, hc__after *);    /* the request owns it */
void hc__request_element(hpccoll_request *, size_t bytes); /* of a message: `counts` gets the number of elements */
void hc__request_drop(hpccoll_request *);

/* ---- user_reductions.c ------------------------------------------------------------------------------------- */

/* 1: its reduction is not one of the engine's. */
static inline int hc__call_is_users(const hc__call *call) {
    return call->reduction >= HC_REDUCTION_COUNT && call->operation < HC_OPERATION_COUNT &&
           hc_operation_has(call->operation, HC_OP_REDUCES);
}

int hc__users_now(const hc__call *, hpccoll_world *);
int hc__users_async(const hc__call *, hpccoll_world *, hpccoll_request **);
int hc__users_plan(const hc__call *, hpccoll_world *, hpccoll_plan **);

#endif
