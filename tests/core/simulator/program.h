/* SPDX-License-Identifier: Apache-2.0
 *
 * program.h - what the virtual ranks of one run do: a random program and the world it runs in.
 */
#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H

#include "arena.h"
#include "core/hc.h"
#include "random.h"

enum {
    SIM_RANKS = 64,
    SIM_SETS = 5,
    SIM_THREADS = 3,
    SIM_NAMES = 96,
    SIM_TENSORS = 4,
    SIM_DIMS = 4,
    SIM_UNNAMED = 5 /* most calls without a name of a step */
};

/* What a rank asks for under a name; `hc_request` without pointers. */
typedef struct sim_signature {
    uint8_t operation, reduction, memory, wire, flags, ntensors;
    int32_t root;
    double prescale, postscale;
    struct {
        uint8_t dtype, ndim;
        int64_t dims[SIM_DIMS];
    } tensor[SIM_TENSORS];
} sim_signature;

enum sim_op_kind {
    SIM_ENQUEUE,
    SIM_ENQUEUE_TWICE,
    SIM_REFUSE,
    SIM_WAIT,
    SIM_JOIN,
    SIM_STOP,
    SIM_PREEMPT,
    SIM_FAIL,
    SIM_TUNE
};

typedef struct sim_op {
    uint8_t kind, set;
    int handle; /* ENQUEUE, REFUSE, WAIT, JOIN: which; else -1 */
} sim_op;

/* One request (or join) of one rank. Its number + 1 is the ticket. */
typedef struct sim_handle {
    uint8_t rank, set, name, is_join;
    uint8_t is_unnamed; /* `name` says only which call of a step it is; the ranks name it */
    int occurrence;     /* which use of the name this is; all ranks count alike */
    sim_signature signature;
} sim_handle;

typedef struct sim_thread {
    sim_op *ops;
    int n, room;
} sim_thread;

typedef struct sim_set {
    int n;
    int32_t members[SIM_RANKS];
    int8_t set_rank[SIM_RANKS]; /* of a rank of the World, or -1 */
    int names;
    char name[SIM_NAMES][80]; /* the same texts occur in several sets */
    int name_len[SIM_NAMES];
    int unnamed; /* the last so many names are calls without a name, one after the other in a step */
} sim_set;

typedef struct sim_options { /* from the command line; -1: by chance */
    int low, high;           /* ranks */
    int capacity, one_stream, lazy, stop, joins, stall, fail, unnamed;
} sim_options;

typedef struct sim_program {
    int ranks, nsets;
    sim_set set[SIM_SETS];
    int threads[SIM_RANKS];
    sim_thread thread[SIM_RANKS][SIM_THREADS];
    sim_handle *handles;
    int nhandles, room;
    /* the world */
    int32_t node_of[SIM_RANKS], fanout;
    uint32_t capacity;
    uint64_t threshold, raise_bytes, raise_window;
    int one_stream; /* all sets of a rank share one stream (or one buffer): unsound, to show that it is */
    int late_sets;  /* ranks add the sets other than the World at different times */
    int lazy;       /* a rank with nothing outstanding does not listen */
    int stop;       /* the program stops the World */
    int leave;      /* ... and before that some ranks ask for their last */
    int stall;      /* at the end the waiters ask which ranks are awaited */
    int fail;       /* one rank reports a failure somewhere on the way */
    int victim;     /* the rank that dies, -1: none */
    uint32_t weight[SIM_RANKS];
    uint32_t kind_weight[8];
} sim_program;

/* A program that is a function of `rng` and the options alone. */
void sim_program_make(sim_program *, sim_arena *, sim_random *, const sim_options *);
void sim_program_print(const sim_program *);

/* ---- signature.c --------------------------------------------------------------------------------- */

sim_signature sim_random_signature(sim_random *, int set_size);

/* Another signature that does not agree with the one given and is valid, too. */
sim_signature sim_deviation(sim_random *, sim_signature, int set_size);

/* What a rank has that refuses what it was to ask for. */
sim_signature sim_refusal(sim_signature);

/* 1 if dims[0] is each rank's own. */
int sim_own_rows(int operation);

/* What two ranks must agree on: everything but dims[0] where rows differ. */
int sim_signature_agrees(const sim_signature *, const sim_signature *);
uint64_t sim_tensor_bytes(const sim_signature *, int tensor);

#endif
