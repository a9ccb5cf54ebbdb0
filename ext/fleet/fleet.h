/* SPDX-License-Identifier: Apache-2.0
 *
 * fleet.h - many virtual ranks of the real engine in one process, and their cost of a step of agreement.
 */
#pragma once

#include "core/hc.h"

/* A request of each rank in a step: an allreduce of a tensor or of a group. */
typedef struct fleet_request {
    const char *name;
    uint32_t ntensors;
    const hc_tensor *tensors;
} fleet_request;

typedef struct fleet_message {
    int32_t from, to, depth; /* depth: length of the chain of messages that ends with it */
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
    int ranks, nodes, per_node, fanout, count; /* count: requests */
    const fleet_request *requests;
    fleet_rank *rank;
    int *orders; /* the order of each rank's requests, rank by rank */
    fleet_message *queue;
    size_t head, tail, room;
    uint8_t *pool;
    size_t used, pool_room;
    uint64_t now, entries, random; /* entries: applied before this step */
    const char *problem;           /* the error after which the fleet is unusable, or NULL */
} fleet;

enum fleet_arrival { FLEET_IN_ORDER, FLEET_DIFFERING, FLEET_ONE_LATE };

typedef struct fleet_cost { /* of one step */
    uint64_t messages, bytes, memory_mean, memory_max;
    uint32_t chain, messages_max; /* longest chain of dependent messages; the busiest rank's sent + received */
    uint64_t bytes_max;           /* sent by one rank */
    double cpu_mean, cpu_max;     /* seconds of engine time per rank */
    uint32_t batches, entries;    /* of the log */
} fleet_cost;

/* Opens `per_node` ranks on each of `nodes` nodes, with `count` requests, which the caller keeps until the fleet is
 * closed. 0, or -1 and `problem`; the caller closes the fleet in both cases. */
int fleet_open(fleet *, int nodes, int per_node, int fanout, const fleet_request *requests, int count);
void fleet_close(fleet *);

/* Runs a step in which all ranks raise all requests: in the same order; each rank in a different order, in four parts
 * with messages in between; or one rank long after all others (the chain starts at its arrival). 0, or -1 and
 * `problem`. */
int fleet_step(fleet *, enum fleet_arrival, fleet_cost *);
