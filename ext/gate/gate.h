/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.h - the gate: operations for the compiled programs of a framework, without Python.
 *
 * A framework calls our kernel in its thread, and its program may outlive Worlds. So the kernel has only the number of
 * a process set. The gate finds the set, checks the arguments as ext/cython does for Python, and starts the
 * operation. The kernel passes a callback and returns; the gate calls it once, when the operation is done.
 *
 * A kernel's library is not linked with our libraries: it takes this table of functions from the capsule
 * HC_GATE_CAPSULE, and includes this header and core/hc.h for their types.
 */
#pragma once

#include "core/hc.h"

#define HC_GATE_VERSION 1 /* of the table and the structs; a kernel refuses another version */
#define HC_GATE_CAPSULE "hpccoll._core.gate"
#define HC_GATE_WORLD 0 /* the process set of all ranks of init()'s current World */
#define HC_GATE_TEXT 512

/* Sends and receives, beside the operations of enum hc_operation. */
enum { HC_GATE_SEND = 254, HC_GATE_RECEIVE = 255 };

/* Contiguous host memory. */
typedef struct hc_gate_tensor {
    uint8_t dtype, ndim;
    const int64_t *dims; /* of the input; without an input, or for a receive, of a matching array */
    const void *in;
    /* Memory of the result's size. NULL: no result on this rank; or, for allgather, alltoall, gather and scatter, the
     * library allocates it. */
    void *out;
    int64_t out_rows; /* allgather, alltoall, gather, scatter with an out: its first dimension */
} hc_gate_tensor;

/* The outcome of an operation. The library owns all of it; it lives until `done` returns. */
typedef struct hc_gate_result {
    int status;          /* HC_OK, or an error */
    const char *text;    /* of the error; else "" */
    int64_t value;       /* JOIN: the last rank to join; RECEIVE: the sender */
    uint64_t number;     /* entry of the set's log that agreed on it; of a message its serial number */
    const int64_t *rows; /* allgather, alltoall, gather: rows from each rank; else NULL */
    void *out;           /* the result that the library has allocated */
    int64_t out_rows;    /* its rows */
    uint8_t keep;        /* `done` sets it to 1 to keep `out`; then the kernel calls free_result() */
} hc_gate_result;

/* A process set at the time when a program was compiled, as its numbers are in the program. */
typedef struct hc_gate_facts {
    int32_t rank, size; /* size 0: the program has neither number */
} hc_gate_facts;

typedef struct hc_gate_call {
    size_t size;      /* sizeof(hc_gate_call) */
    uint64_t set;     /* HC_GATE_WORLD, or a number from the core's open_gate() */
    const char *name; /* UTF-8, 1 to HC_MAX_NAME bytes; not for sends and receives */
    size_t name_len;
    uint8_t operation; /* enum hc_operation, HC_GATE_SEND or HC_GATE_RECEIVE */
    uint8_t reduction; /* enum hc_reduction */
    uint8_t wire;      /* HC_WIRE_SAME, HC_FLOAT16 or HC_BFLOAT16 */
    uint8_t group;     /* 1: the tensors are agreed, fused and completed together; also with 1 tensor */
    int32_t root;      /* rank in the set; of a message the other rank, -1: any rank */
    uint8_t any_tag;   /* 1: a receive takes a message with any tag */
    uint32_t tag;      /* of a message */
    uint32_t follows;  /* of a message that follows from an earlier one: the n of HC_P2P_FOLLOWS; 0: it follows none */
    double prescale, postscale;
    uint32_t ntensors;
    const hc_gate_tensor *tensors;
    const int64_t *splits; /* alltoall, scatter: rows to each rank; NULL: even, or as even as possible */
    uint32_t nsplits;
    uint32_t calls;  /* calls with this name in the program; 0: unknown */
    uint8_t derived; /* 1: the program has derivatives of this call */
    hc_gate_facts compiled;
    void (*done)(void *context, hc_gate_result *);
    void *context;
} hc_gate_call;

typedef struct hc_gate {
    int version;
    size_t size; /* of this struct */
    /* Starts an operation. HC_OK: the library calls `done` once, maybe before this returns, in a thread that may block;
     * it uses the tensors' memory until then, and copies all other arguments. Another status: the call was refused,
     * nothing was sent, `done` is not called, and `text` has the reason. [any thread] */
    int (*begin)(const hc_gate_call *, char text[HC_GATE_TEXT]);
    void (*free_result)(void *);
    /* Facts of a set: its size and this rank in it. HC_OK, or a status with a text. [any thread] */
    int (*facts)(uint64_t set, int32_t *rank, int32_t *size, char text[HC_GATE_TEXT]);
    const char *(*status_exception)(int status); /* the class in hpccoll.errors */
} hc_gate;

extern const hc_gate hc_the_gate;

/* A status as a code of absl::Status, in which XLA and TensorFlow report errors. */
static inline int hc_gate_code(int status) {
    switch (status) {
    case HC_INVALID:
    case HC_UNSUPPORTED:
    case HC_RESULT_SIZE:
    case HC_DUPLICATE_NAME:
        return 3; /* invalid argument */
    case HC_MISMATCH:
    case HC_ROOT_JOINED:
    case HC_SHUT_DOWN:
    case HC_FORKED:
        return 9; /* failed precondition */
    case HC_PEER_LOST:
    case HC_STALLED:
    case HC_TRANSPORT:
    case HC_BROKEN:
        return 14; /* unavailable */
    case HC_NO_MEMORY:
        return 8; /* resource exhausted */
    default:
        return 13; /* internal */
    }
}

/* ---- for ext/cython: opens and closes sets ---------------------------------------------------------------- */

struct hc_loop;
typedef struct hc_gate_place {
    struct hc_loop *loop;
    uint32_t set, generation;
    int32_t rank, size;
    const int32_t *members; /* World ranks; copied */
} hc_gate_place;

/* Opens the set to callers under `*number`: HC_GATE_WORLD if `is_world`, which replaces another World; else a number
 * that no set had before. A second call returns the same number. OK, or NO_MEMORY. [any thread] */
int hc_gate_open(const hc_gate_place *, int is_world, uint64_t *number);
/* Closes the sets of this loop with this number in it, -1: all sets of the loop, and waits for callers that are inside.
 * [any thread] */
void hc_gate_close(struct hc_loop *, int64_t set);
