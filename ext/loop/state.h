/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h - the loop's state, whose parts are described beside their functions. It is private to ext/loop.
 *
 * Access: any thread may use fields marked [any]. The driver writes `counters`, and any thread reads them. All other
 * fields belong to the driver, the thread that holds `place.driving`.
 */
#pragma once

#include "loop/thread.h"
#include "loop/completion.h"
#include "loop/failure.h"
#include "loop/handle.h"
#include "loop/inbox.h"
#include "loop/p2p.h"
#include "loop/place.h"
#include "loop/set_queues.h"
#include "loop/trace_ring.h"
#include "loop/tuning.h"
#include "loop/watch.h"

/* The ranks of the World. */
typedef struct hc__ranks {
    hc_processes processes;
    int32_t *node_of; /* of each rank */
    int32_t *locals;  /* World rank of each rank of this node */
    uint8_t *unsent;  /* per rank: 1 while a message of the engine to it is unsent */
} hc__ranks;

/* Counters that callers increment. */
typedef struct hc__calls {
    atomic_ullong waited_ns, wakes; /* [any] */
    atomic_ullong plan_starts;      /* [any] */
    atomic_ullong alone, shortcuts; /* [any] number of calls of hc_loop_run_alone(), number of shortcuts taken */
} hc__calls;

typedef struct hc__counters_of_loop {
    hc_counter requests, counted, batches, cached_batches, fused_requests, payload_bytes, p2p_ops, p2p_bytes;
    hc_counter packed_bytes, reduced_bytes, spread_bytes, in_flight_ns, sleeps;
} hc__counters_of_loop;

struct hc_loop {
    hc_loop_config config;
    hc_loop_parts parts;
    hc_engine *engine;
    hc__ranks ranks;
    atomic_int forked; /* [any] */
    hc__place place;
    hc__inbox inbox;
    hc__handles handles;
    hc__sets sets;
    hc__messages messages;
    hc__failure failure;
    hc__tuned tuned;
    hc__watch watch;
    hc__background background;
    hc__completion completion;
    hc__trace trace;
    hc__calls calls;
    hc__counters_of_loop counters;
    uint64_t wake_at; /* when the engine wants its next timer event */
};
