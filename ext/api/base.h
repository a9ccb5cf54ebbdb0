/* SPDX-License-Identifier: Apache-2.0
 *
 * base.h - a World, and the state that it shares with all Worlds made from it. The files of the C interface:
 *
 *     hpccoll.h     the public interface
 *     codes.c       texts of statuses, the last error of a thread; the public numbers equal those of core/hc.h
 *     settings.c    knobs from options and environment
 *     launcher.c    what has started this process
 *     start.c       reports of the ranks, nodes
 *     start_steps.c exchanges of the start, and their errors
 *     nets.c        the net between the nodes
 *     devices.c     arrays in device memory
 *     parts.c       segments, the loop, process sets
 *     list.c        the Worlds of this process
 *     worlds.c      creates and ends Worlds
 *     sets.c        subset, split and cart_create
 *     grids.c       ranks and coordinates of grids
 *     halos.c       halo exchanges, blocking and as plans
 *     queries.c     ranks, counters, addresses
 *     elastic.c     lost ranks, changes of an elastic job's ranks
 *     requests.c    waits, and outcomes of requests
 *     calls.c       turns arguments into a request
 *     shortcuts.c   calls of few bytes, without a request
 *     operations.c  the public functions of the collectives
 *     ops.c         table of user-defined reductions
 *     user_reductions.c  operations with user-defined reductions
 *     refusals.c    calls that bindings refuse
 *     messages.c    send and receive
 *     agree.c       agreement of the ranks on a plan
 *     plan_memory.c memory and lists of plans
 *     plans.c       persistent operations: init, start, wait, free
 */
#pragma once

#include "api/hpccoll.h"
#include "api/python_world.h"
#include "api/settings.h"
#include "cuda/accelerator.h"
#include "transport/net/mpi_net.h"
#include "world/grid.h"

#include <pthread.h>
#include <stdatomic.h>

/* Parts of the line at the start. */
typedef struct hc__nodes_text {
    char order[128]; /* what orders the nodes */
    char net[256];   /* what carries data between them */
} hc__nodes_text;

/* Device memory. */
typedef struct hc__devices {
    hc_driver driver;       /* if `on`; else its text may say why it cannot be used */
    hc_accelerator *c;      /* of this rank's device; NULL: in a World of Python */
    hc_plane_source source; /* of the sets' data planes for it */
    uint64_t said[8];       /* hashes of the lines on stderr */
    uint8_t on;             /* calls ask the driver about their addresses */
} hc__devices;

/* The World as a generation of an elastic job. */
typedef struct hc__elastic {
    uint32_t generation;  /* 0: the job is none */
    atomic_int asked;     /* this rank has asked all to stop, because the ranks change */
    atomic_ullong waited; /* largest position in the World's log of calls that the program has waited for */
} hc__elastic;

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
    hc__nodes_text nodes;
    hc__elastic elastic;
    int32_t machine_rank;    /* this rank, among those of its machine */
    hpccoll_plan *plans;     /* plans that are not freed */
    hc__devices devices;     /* its last member stands beside what small calls read */
    hc_python_world *python; /* NULL: the loop belongs to this library */
    pthread_mutex_t lock;    /* of `plans` */
} hc__base;

enum hc__maker { HC__SUBSET, HC__SPLIT, HC__CART, HC__MAKERS };

#define HC__WORLD_ALIVE 0x6870636f6c6cull

/* The memory stays after the World has ended, so that a call with a freed World is an error, not a crash. */
struct hpccoll_world {
    uint64_t state; /* HC__WORLD_ALIVE, or 0 */
    const char *ended_by;
    hc__base *base;
    uint32_t number;
    int32_t rank, size;
    uint32_t halos;             /* plans of halo exchanges that it has made */
    int32_t *members;           /* World rank of each member */
    pthread_mutex_t *turns;     /* HC__MAKERS, for the threads that make Worlds of this one */
    struct hpccoll_world *next; /* list of all Worlds */
    hc_grid *grid;              /* of its ranks; NULL: they have none, or the World has ended */
};
