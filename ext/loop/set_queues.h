/* SPDX-License-Identifier: Apache-2.0
 *
 * set_queues.h - the process sets of this rank: their data planes, and their batches in the order of their logs.
 */
#pragma once

#include "loop/batch.h"

struct hc__set_queue {
    uint8_t used;
    uint32_t number, wire; /* wire: its number in messages */
    int32_t size;
    hc_data *data[HC_MEMORY_KINDS]; /* by the memory of the batch; NULL: not made yet */
    hc_data *running;               /* the data plane that runs `head`; NULL: not started */
    hc_plane_maker *maker;
    hc_votes *votes; /* NULL: none */
    const hc_node *node;
    uint64_t packed, reduced, spread; /* the part of the node's figures that is counted */
    hc__run *head, **tail, *spare;
    hc_handle *stops;          /* handles that wait for STOPPED */
    hc_handle *kept;           /* handles that follow a request which the ranks count (counted.c) */
    _Atomic uint8_t stopped;   /* [any] reads the first set's */
    char shutdown_reason[320]; /* names the rank that stopped it */
};

typedef struct hc__sets {
    atomic_ullong preempted[HC_MAX_SETS]; /* [any] position of PREEMPT in the set's log; 0: none */
    atomic_ullong compiled[HC_MAX_SETS];  /* [any] largest position of a compiled program's request that has ended */
    hc__set_queue queues[HC_MAX_SETS];
    atomic_uchar counting[HC_MAX_SETS]; /* [any] 1: this rank counts a request of the set (counted.c) */
    uint32_t nqueues;                   /* 1 + the highest number in use */
    uint32_t ncounted;                  /* batches of counted requests, queued or running */
    uint8_t keeps;                      /* a set keeps handles back */
    uint32_t nrunning;                  /* batches and plans that run */
    uint64_t running_since;
} hc__sets;

int hc__set_queue_add(hc_loop *, hc_handle *);
void hc__set_queue_remove(hc_loop *, hc__set_queue *);
hc__set_queue *hc__set_queue_find(hc_loop *, uint32_t set);
/* The data plane for a kind of memory: OK, or a status with text (HC_PLANE_TEXT bytes). */
int hc__set_queue_data(hc__set_queue *, int memory, hc_data **, char *text);
void hc__set_queue_push(hc__set_queue *, hc__run *);
void hc__set_queue_stopped(hc__set_queue *, const char *text); /* its log has ended */
/* Finishes the handles that wait for the end of the set's log. */
void hc__set_queue_finish_stops(hc_loop *, hc__set_queue *, int status, const char *text);
int hc__set_queues_test(hc_loop *); /* tests running batches, starts others; 1: something moved */
void hc__set_queues_abandon(hc_loop *);
int hc__set_queues_need_polling(const hc_loop *); /* 1: a batch waits for an event that wakes no driver */
void hc__set_queues_watch(hc_loop *);             /* checks the launched work of ended batches */
