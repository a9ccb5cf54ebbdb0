/* SPDX-License-Identifier: Apache-2.0
 *
 * fleet.h - very many virtual ranks of the real engine in one process, and what they cost.
 */
#ifndef FLEET_H
#define FLEET_H

#include "core/hc.h"
#include "resnet50.h"

typedef struct fleet_message {
    int32_t from, to, depth; /* depth: messages that had to come before it, itself included */
    uint32_t n;
    size_t at; /* in the pool of bytes */
} fleet_message;

typedef struct fleet_rank {
    hc_engine *engine;
    int32_t depth;           /* the longest chain of messages that reached this rank */
    uint32_t sent, received; /* messages of this step */
    uint64_t bytes, cpu;     /* sent bytes and ns of engine time of this step */
    uint32_t batches, ended; /* of this step */
    uint64_t first_batch;
} fleet_rank;

typedef struct fleet {
    int ranks, nodes, per_node, fanout;
    fleet_rank *rank;
    gradient gradients[GRADIENTS];
    fleet_message *queue;
    size_t head, tail, room;
    uint8_t *pool;
    size_t used, pool_room;
    uint64_t now, entries; /* entries: applied before this step */
} fleet;

typedef struct fleet_cost { /* of one step */
    uint64_t messages, bytes, memory_mean, memory_max;
    uint32_t chain, messages_max; /* longest chain of dependent messages; the busiest rank's sent + received */
    uint64_t bytes_max;           /* sent by one rank */
    double cpu_mean, cpu_max;     /* microseconds of engine time a rank */
    uint32_t batches, entries;    /* of the log */
} fleet_cost;

/* `per_node` ranks on each of `nodes` nodes; ends the process when memory runs out. */
void fleet_open(fleet *, int nodes, int per_node, int fanout);
void fleet_close(fleet *);

/* A step is: begin; ranks raise gradients; drain; finish. */
void fleet_begin(fleet *);
void fleet_raise(fleet *, int rank, const int *order, int from, int to); /* order[from..to) and a flush */
void fleet_drain(fleet *);
void fleet_chain_restarts(fleet *); /* the chain is counted from here on */
fleet_cost fleet_finish(fleet *);   /* all batches done; every request must have ended well */

#endif
