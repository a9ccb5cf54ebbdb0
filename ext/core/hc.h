/* SPDX-License-Identifier: Apache-2.0
 *
 * hc.h - the vocabulary of the engine: what goes in (events) and what comes out (actions).
 *
 * The engine is one function, step(state, event) -> actions. It uses no thread, clock, socket, environment or library;
 * every event has the time as a field. One engine serves one rank of one World and all process sets that the rank is a
 * member of. Only one thread may be inside an engine at a time (the driver of ext/loop sees to that).
 *
 *     enqueue -> negotiate -> fuse -> (reduce, outside) -> complete
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tables: all codes, names and texts are generated from these --------------------------------- */

/*       NAME        bytes  text        */
#define HC_DTYPES(X)             \
    X(BOOL, 1, "bool")           \
    X(UINT8, 1, "uint8")         \
    X(INT8, 1, "int8")           \
    X(UINT16, 2, "uint16")       \
    X(INT16, 2, "int16")         \
    X(UINT32, 4, "uint32")       \
    X(INT32, 4, "int32")         \
    X(UINT64, 8, "uint64")       \
    X(INT64, 8, "int64")         \
    X(FLOAT16, 2, "float16")     \
    X(BFLOAT16, 2, "bfloat16")   \
    X(FLOAT32, 4, "float32")     \
    X(FLOAT64, 8, "float64")     \
    X(COMPLEX64, 8, "complex64") \
    X(COMPLEX128, 16, "complex128")

/* The traits of an operation. The engine, the loop, the data planes and Cython test these traits and never the
 * operation itself; only a table of implementations is indexed by the operation. */
enum hc_operation_trait {
    HC_OP_REDUCES = 1,          /* combines values: a reduction, factors, and a neutral element for a joined rank */
    HC_OP_ROOTED = 2,           /* one rank, `root`, has a special part; an error if it has joined */
    HC_OP_ROWS_DIFFER = 4,      /* dims[0] may differ between ranks; a joined rank has no rows */
    HC_OP_RESULT_ALLOCATED = 8, /* only the data plane knows the size of the result, so it allocates it */
    HC_OP_COUNTS = 16,          /* the caller passes the number of rows for each rank */
    HC_OP_ELEMENTWISE = 32,     /* only the comparison of requests uses shapes: a tensor is a run of elements */
    HC_OP_FUSES = 64,           /* several requests may share a batch, and a request may be a group */
    HC_OP_NARROWS = 128,        /* may use a narrower type between nodes (compression) */
    HC_OP_NO_TENSORS = 256,     /* carries no data */
    HC_OP_ONLY_EVENT = 512,     /* has its own event and is no request */
    HC_OP_TO_ROOT = 1024,       /* only the root has a result */
    HC_OP_PREFIX = 2048,        /* combines the ranks up to this one; a mean of them is not defined */
    HC_OP_EXCLUSIVE = 4096      /* of the ranks up to this one without this one itself */
};

/*    NAME           text             traits; bindings/table.toml has their parameters in C, C++ and Fortran */
#define HC_OPERATIONS(X)                                                                                \
    X(ALLREDUCE, "allreduce", HC_OP_REDUCES | HC_OP_ELEMENTWISE | HC_OP_FUSES | HC_OP_NARROWS)          \
    X(ALLGATHER, "allgather", HC_OP_ROWS_DIFFER | HC_OP_RESULT_ALLOCATED)                               \
    X(BROADCAST, "broadcast", HC_OP_ROOTED)                                                             \
    X(REDUCESCATTER, "reducescatter", HC_OP_REDUCES)                                                    \
    X(ALLTOALL, "alltoall", HC_OP_ROWS_DIFFER | HC_OP_RESULT_ALLOCATED | HC_OP_COUNTS)                  \
    X(BARRIER, "barrier", HC_OP_NO_TENSORS)                                                             \
    X(JOIN, "join", HC_OP_NO_TENSORS | HC_OP_ONLY_EVENT)                                                \
    X(REDUCE, "reduce", HC_OP_REDUCES | HC_OP_ROOTED | HC_OP_TO_ROOT | HC_OP_ELEMENTWISE | HC_OP_FUSES) \
    X(GATHER, "gather", HC_OP_ROOTED | HC_OP_TO_ROOT | HC_OP_ROWS_DIFFER | HC_OP_RESULT_ALLOCATED)      \
    X(SCATTER, "scatter", HC_OP_ROOTED | HC_OP_ROWS_DIFFER | HC_OP_RESULT_ALLOCATED | HC_OP_COUNTS)     \
    X(SCAN, "scan", HC_OP_REDUCES | HC_OP_ELEMENTWISE | HC_OP_FUSES | HC_OP_PREFIX)                     \
    X(EXSCAN, "exscan", HC_OP_REDUCES | HC_OP_ELEMENTWISE | HC_OP_FUSES | HC_OP_PREFIX | HC_OP_EXCLUSIVE)

/* In the order of Horovod's numbers, which its programs pass. Front ends build ADASUM from several operations; here it
 * is defined for no dtype. */
#define HC_REDUCTIONS(X)  \
    X(AVERAGE, "AVERAGE") \
    X(SUM, "SUM")         \
    X(ADASUM, "ADASUM")   \
    X(MIN, "MIN")         \
    X(MAX, "MAX")         \
    X(PRODUCT, "PRODUCT") \
    X(BAND, "BAND")       \
    X(BOR, "BOR")         \
    X(BXOR, "BXOR")       \
    X(LAND, "LAND")       \
    X(LOR, "LOR")         \
    X(LXOR, "LXOR")

/*      NAME          code  text                                                   Python exception   */
#define HC_STATUSES(X)                                                                    \
    X(OK, 0, "ok", "")                                                                    \
    X(MISMATCH, -1, "ranks disagree about a request", "MismatchError")                    \
    X(DUPLICATE_NAME, -2, "a request of this name is in flight", "DuplicateNameError")    \
    X(SHUT_DOWN, -3, "the World has been shut down", "ShutDownError")                     \
    X(ROOT_JOINED, -4, "the root of a rooted operation has joined", "RootJoinedError")    \
    X(PEER_LOST, -5, "a rank of the World was lost", "PeerLostError")                     \
    X(STALLED, -6, "ranks are awaited beyond the stall limit", "StallError")              \
    X(TRANSPORT, -7, "a transport failed", "TransportError")                              \
    X(INVALID, -8, "an argument is not valid", "InvalidArgumentError")                    \
    X(NO_MEMORY, -9, "out of memory", "OutOfMemoryError")                                 \
    X(BAD_MESSAGE, -10, "a control message could not be decoded", "ProtocolError")        \
    X(FORKED, -11, "the World was made before fork() and is the parent's", "ForkedError") \
    X(BROKEN, -12, "the World is broken by an earlier failure", "BrokenWorldError")       \
    X(UNSUPPORTED, -13, "this combination is not defined", "UnsupportedError")            \
    X(RESULT_SIZE, -14, "the output has not the size of the result", "ResultSizeError")

enum hc_dtype {
#define X(name, bytes, text) HC_##name,
    HC_DTYPES(X)
#undef X
        HC_DTYPE_COUNT
};
enum hc_operation {
#define X(name, text, traits) HC_##name,
    HC_OPERATIONS(X)
#undef X
        HC_OPERATION_COUNT
};
enum hc_reduction {
#define X(name, text) HC_##name,
    HC_REDUCTIONS(X)
#undef X
        HC_REDUCTION_COUNT
};
enum hc_status {
#define X(name, code, text, exception) HC_##name = code,
    HC_STATUSES(X)
#undef X
};
enum hc_memory_kind { HC_MEMORY_HOST, HC_MEMORY_CUDA, HC_MEMORY_KINDS };

/* The most elements of an array, so that its bytes, in any dtype, fit an int64_t. */
#define HC_MAX_ELEMENTS (INT64_MAX / 16)
size_t hc_dtype_size(int dtype);
/* The product of `n` dimensions; -1 if one is negative, or if the nonzero ones exceed HC_MAX_ELEMENTS. */
int64_t hc_elements(const int64_t *dims, uint32_t n);
const char *hc_dtype_name(int dtype);
const char *hc_operation_name(int operation);
extern const uint16_t hc_operation_traits[HC_OPERATION_COUNT];
/* 1: the operation has the trait (enum hc_operation_trait). 0 also for a number that is no operation. */
static inline int hc_operation_has(int operation, int trait) {
    return operation >= 0 && operation < HC_OPERATION_COUNT && (hc_operation_traits[operation] & trait) != 0;
}
/* 1: the result uses values of this rank of the set. */
static inline int hc_operation_gives(int operation, int32_t root, int32_t rank) {
    return !hc_operation_has(operation, HC_OP_ROOTED) || hc_operation_has(operation, HC_OP_TO_ROOT) || rank == root;
}
/* 1: this rank of the set gets the result. */
static inline int hc_operation_gets(int operation, int32_t root, int32_t rank) {
    return !hc_operation_has(operation, HC_OP_TO_ROOT) || rank == root;
}
const char *hc_reduction_name(int reduction);
const char *hc_status_name(int status);      /* "MISMATCH" */
const char *hc_status_text(int status);      /* one sentence */
const char *hc_status_exception(int status); /* name of the Python class, "" for OK */

/* ---- a request: what one rank wants, and the part of it that all ranks must agree on ------------- */

#define HC_MAX_DIMS 64
#define HC_MAX_NAME 4096                /* bytes of UTF-8 */
#define HC_MAX_TYPE 48                  /* likewise */
#define HC_ORDER_PREFIX "unnamed call " /* begins the name of a call without one; no name of the program does */

typedef struct hc_tensor {
    uint8_t dtype;       /* enum hc_dtype */
    uint8_t ndim;        /* <= HC_MAX_DIMS */
    uint8_t type_len;    /* bytes of `type` */
    const int64_t *dims; /* elements per dimension; dims[0] is not agreed where HC_OP_ROWS_DIFFER */
    const char *type;    /* a type beyond dtype and dims, as "<M8[s]" of bytes; need not end in 0 */
} hc_tensor;

/* All fields but `ticket`, `order` and `name` are the signature: it must be equal on all ranks, else all ranks get a
 * MISMATCH. ntensors > 1, or HC_REQUEST_GROUP set: a group. It is agreed and completed as one request, has its own
 * batch per dtype, and the fusion threshold never cuts it. */
typedef struct hc_request {
    uint64_t ticket;  /* the caller's number, never 0; returned in RUN and COMPLETE */
    uint64_t order;   /* of a call without a name: which one of its set on this rank, from 1; else 0 */
    const char *name; /* UTF-8, need not end in 0 */
    uint32_t name_len;
    uint8_t operation; /* enum hc_operation */
    uint8_t reduction; /* enum hc_reduction; SUM where there is none */
    uint8_t memory;    /* enum hc_memory_kind */
    uint8_t wire;      /* dtype between nodes (compression), or HC_WIRE_SAME */
    uint8_t flags;     /* HC_REQUEST_... */
    int32_t root;      /* rank in the set; -1 where there is none */
    double prescale, postscale;
    uint32_t ntensors;
    const hc_tensor *tensors;
    const char *why; /* REFUSE: the reason; need not end in 0 */
    uint32_t why_len;
    uint32_t calls; /* number of calls of this name in a compiled program; 0 or 1: only this one */
} hc_request;

#define HC_WIRE_SAME 255
#define HC_REQUEST_GROUP 1
#define HC_REQUEST_LAST 2     /* the rank's last request of the set; of the World: of all sets. Other ranks are told */
#define HC_REQUEST_REFUSED 4  /* internal: not a request; its rank has refused the call (HC_EV_REFUSE) */
#define HC_REQUEST_COUNTED 8  /* internal: `calls` is more than 1 */
#define HC_REQUEST_DERIVED 16 /* the compiled program of this call has derivatives of it */
/* Internal, without the engine: all ranks give equally many rows to each rank, and have memory for their results. */
#define HC_REQUEST_EQUAL_ROWS 32

/* ---- a process set, as the engine of one member sees it ------------------------------------------- */

/* A set has one tree of its members. `rank` below is a World rank, used as an address; the position of a member in the
 * set is its set rank. hc_tree_place() computes the tree. */
typedef struct hc_child {
    int32_t rank;
    int32_t subtree; /* members in this child's subtree, itself included */
} hc_child;

#define HC_MAX_SETS 128 /* sets of one rank at a time */

typedef struct hc_set_config {
    uint32_t set; /* number of the set; 0 is the World itself; agreed by all members */
    /* Distinguishes sets of one number; agreed, and higher than any earlier one on each member. Messages carry it,
     * because a message for an earlier set of this number may still arrive. */
    uint32_t generation;
    int32_t set_rank, set_size;
    int32_t parent; /* rank of the World, -1 at the set's root */
    int32_t nchildren;
    const hc_child *children;
} hc_set_config;

/* The number of a set in messages: its number and its generation, which may have 25 bits. */
static inline uint32_t hc_set_wire(uint32_t set, uint32_t generation) {
    return set + generation * HC_MAX_SETS;
}

/* The tree: leaders (lowest member of each node) form a k-ary tree across nodes, a node's other members
 * a k-ary tree below their leader. Nodes are numbered by first appearance. The index is O(members) and
 * may be shared by many ranks; a placement is O(fan-out). `members[i]` is the World rank of set rank i,
 * `node_of[i]` its node (any integers). */
typedef struct hc_tree_index hc_tree_index;
hc_tree_index *hc_tree_index_new(const int32_t *members, const int32_t *node_of, int32_t n, int32_t fanout);
void hc_tree_index_free(hc_tree_index *);
/* Fills parent, set_rank, set_size, nchildren and at most `room` children; returns nchildren. */
int32_t hc_tree_place(const hc_tree_index *, int32_t set_rank, hc_set_config *out, hc_child *children, int32_t room);

/* ---- the processes of the ranks ------------------------------------------------------------------ */

/* The host and process of each World rank, for texts. It is borrowed, and must outlive its users. */
typedef struct hc_processes {
    const char *const *hosts;      /* each name once */
    const int32_t *host_of, *pids; /* of each rank: index in hosts, process id */
} hc_processes;
#define HC_WHO 160
/* "rank 3 (host n2, pid 4711)"; "rank 3" without processes. Returns `text`. [any thread] */
const char *hc_who(const hc_processes *, int32_t rank, char text[HC_WHO]);
/* The same with the rank's number in a process set. */
const char *hc_who_in_set(const hc_processes *, int32_t set_rank, int32_t rank, char text[HC_WHO]);

/* ---- the engine ---------------------------------------------------------------------------------- */

/* A knob that C reads is one row in the table of its struct: the field's type and name, the default, the minimum and
 * maximum, the unit, whether all ranks must agree, and its description. Python generates the fields of config.Config
 * and the page of knobs from these tables. A knob in "s" is nanoseconds here; one of uint8_t is a flag. */
enum { HC_RANKS_MAY_DIFFER, HC_RANKS_AGREE };
#define HC_KNOB_FIELD(type, name, ...) type name;

/* clang-format off */
#define HC_ENGINE_KNOBS(X)                                                                                             \
    X(uint32_t, cache_capacity, 2048, 0, 1 << 20, "requests", HC_RANKS_AGREE,                                          \
      "requests that a process set remembers; 0: every request is agreed as if for the first time")                   \
    X(uint32_t, signatures_per_name, 0, 0, 1 << 20, "signatures", HC_RANKS_AGREE,                                      \
      "requests of one name that a process set remembers, where its shape or type alternates; 0: chosen (16)")         \
    X(uint64_t, fusion_threshold, 16 << 20, 0, 1ull << 40, "bytes", HC_RANKS_AGREE,                                    \
      "largest batch that small requests are fused into")                                                              \
    X(uint64_t, raise_bytes, 4 << 20, 0, 1ull << 40, "bytes", HC_RANKS_MAY_DIFFER, /* rule R2 */                       \
      "pending bytes that a rank announces at once, without waiting for more")                                         \
    X(uint64_t, raise_window, 0.002, 0, 10, "s", HC_RANKS_MAY_DIFFER, /* rule R3 */                                    \
      "longest time that an asynchronous request is held back for others to join it")                                  \
    X(uint64_t, stall_warning, 10, 0, 86400 * 365, "s", HC_RANKS_MAY_DIFFER,                                           \
      "a wait reports itself after this long; 0: never")                                                               \
    X(uint64_t, stall_limit, 600, 0, 86400 * 365, "s", HC_RANKS_MAY_DIFFER,                                            \
      "a wait of this long breaks the World (StallError); 0: never")
/* clang-format on */

/* The knobs of a set that may change at run time, on all members after the same entry of its log (HC_EV_TUNE). A set
 * starts with the engine's values. */
#define HC_TUNING_MOST_BYTES (1ull << 40)
#define HC_TUNING_MOST_NS 10000000000ull
typedef struct hc_tuning {
    uint64_t fusion_threshold, raise_bytes; /* bytes, at most HC_TUNING_MOST_BYTES */
    uint64_t raise_window;                  /* ns, at most HC_TUNING_MOST_NS */
} hc_tuning;

typedef struct hc_engine_config {
    int32_t rank, size;            /* in the World */
    const hc_processes *processes; /* NULL: texts name ranks only by their numbers */
    HC_ENGINE_KNOBS(HC_KNOB_FIELD)
} hc_engine_config;

typedef struct hc_engine hc_engine;
hc_engine *hc_engine_new(const hc_engine_config *); /* NULL: out of memory */
void hc_engine_free(hc_engine *);

enum hc_event_kind {
    HC_EV_ADD_SET,    /* set_config (set 0 first) */
    HC_EV_REMOVE_SET, /* set: stopped and drained; its state is freed */
    HC_EV_ENQUEUE,    /* set, request. Refusals are immediate COMPLETE actions */
    HC_EV_REFUSE,     /* set, request: name, operation, why. This rank has refused the call; other ranks get an error */
    HC_EV_FLUSH,      /* a caller waits (R1): everything pending, in all sets, is raised */
    HC_EV_JOIN,       /* set, ticket */
    HC_EV_STOP,       /* set; text: the exception that ends this rank; NULL: a regular end */
    HC_EV_PREEMPT,    /* set */
    HC_EV_TUNE,       /* set, tuning; only at the set's root. The next entry that commits a request carries it */
    HC_EV_MESSAGE,    /* peer, bytes: a control message arrived */
    HC_EV_SENT,       /* peer: the last message to peer has left (see T4) */
    HC_EV_TICK,       /* time only: timers */
    HC_EV_BATCH_DONE, /* set, batch, status (text optional) */
    HC_EV_SILENT,     /* text: the ranks without a sign of life, from the driver; NULL: none */
    HC_EV_FAIL        /* status PEER_LOST, STALLED or TRANSPORT; peer: the rank concerned, or -1; text */
};

typedef struct hc_event {
    uint8_t kind;
    uint32_t set;
    uint64_t now; /* ns, monotonic */
    int32_t peer; /* rank of the World */
    int32_t status;
    uint64_t ticket;
    uint64_t batch;
    const hc_request *request;   /* copied before step returns */
    const hc_set_config *config; /* copied */
    const hc_tuning *tuning;     /* copied */
    const uint8_t *bytes;
    size_t nbytes;
    const char *text;
} hc_event;

enum hc_action_kind {
    HC_AC_SEND,      /* peer, bytes: one message; FIFO per peer; answer with SENT when it has left */
    HC_AC_RUN,       /* set, batch, items: start in this order within the set */
    HC_AC_COMPLETE,  /* ticket, status, text, position, value */
    HC_AC_WAKE_AT,   /* time: call step with TICK no later than this (the newest wins; UINT64_MAX: none) */
    HC_AC_STALLED,   /* a report: text, ranks awaited; not fatal */
    HC_AC_PREEMPTED, /* set, position of PREEMPT in the log */
    HC_AC_TUNED,     /* set, position, tuning: valid from the next entry on */
    HC_AC_STOPPED,   /* set, text: its log has ended; the text names the first rank to leave */
    HC_AC_FAILED     /* the World is broken: status, peer, text; abandon all batches, start none. Comes once */
};

/* One request's share of a batch: tensors [first, first + count) of the agreed request. */
typedef struct hc_item {
    uint64_t ticket;          /* 0: this rank has joined and contributes neutral elements */
    const hc_request *agreed; /* the agreed signature (its ticket is 0); with HC_OP_ROWS_DIFFER, dims[0] of each
                                  tensor is this rank's with a ticket, 0 if it has joined */
    uint32_t first, count;
} hc_item;

typedef struct hc_action {
    uint8_t kind;
    uint8_t cached;   /* RUN: 1 when every item came from a slot (no first announcement) */
    uint8_t reporter; /* STALLED: 1 on the one rank that should print it */
    uint32_t set;
    int32_t peer;
    int32_t status;
    uint64_t ticket;
    uint64_t batch;    /* RUN: number of the batch in its set, from 0, equal on all members */
    uint64_t position; /* COMPLETE, PREEMPTED, TUNED: position in the log */
    int64_t value;     /* COMPLETE of a JOIN: set rank of the last rank to join */
    uint64_t time;
    const uint8_t *bytes;
    size_t nbytes;
    const char *text; /* ends in 0 */
    const hc_tuning *tuning;
    const hc_item *items;
    uint32_t nitems;
    const int32_t *ranks; /* STALLED: set ranks awaited (a bounded list) */
    uint32_t nranks;
    uint32_t nawaited; /* STALLED: number of all ranks awaited */
} hc_action;

/* Handles one event. The actions and all they point to live until the next call. Returns 0, or a negative status if the
 * event itself is wrong (a bad message, an unknown set): then nothing has changed. */
int hc_step(hc_engine *, const hc_event *, const hc_action **actions, size_t *nactions);

/* Queries; they change nothing. */
int hc_engine_quiet(const hc_engine *);            /* 1: nothing pending, raised, joined or running */
uint64_t hc_engine_memory(const hc_engine *);      /* bytes held */
const char *hc_engine_validate(const hc_engine *); /* NULL, or a text with the violated invariant */

/* ---- figures ------------------------------------------------------------------------------------- */

/* A counter has one writer and any number of readers, at any time; both are plain moves for the processor. A reader
 * that has seen the end of a handle sees all earlier counts. */
typedef _Atomic uint64_t hc_counter;
static inline void hc_count(hc_counter *counter, uint64_t n) {
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + n, memory_order_relaxed);
}
static inline uint64_t hc_counted(const hc_counter *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

typedef struct hc_counters {
    uint64_t messages_up, messages_down, bytes_up, bytes_down;
    uint64_t entries, batches, cached_commits, first_commits, mismatches, evictions, conflicts;
} hc_counters;
void hc_engine_counters(const hc_engine *, hc_counters *); /* [any thread] */
