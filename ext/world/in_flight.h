/* SPDX-License-Identifier: Apache-2.0
 *
 * in_flight.h - the memory of a job's requests in flight, so that a second request for it can be refused.
 *
 * All languages of a process share the table. Only asynchronous calls are recorded: a waiting caller has nothing else
 * in flight. The end of a request is not reported; the table checks it when needed.
 */
#pragma once

#include "loop/loop.h"

#include <pthread.h>
#include <stdatomic.h>

/* The memory of an array of a call. */
typedef struct hc_extent {
    const char *begin, *end;
    int writes, array;
} hc_extent;

typedef struct hc__span {
    const char *begin, *end;
    const char *reach; /* the largest end of this span and those before it */
    hc_handle *handle; /* the table holds a reference */
} hc__span;

/* Sorted by `begin`. */
typedef struct hc__spans {
    hc__span *at;
    size_t many, room;
} hc__spans;

typedef struct hc_in_flight {
    pthread_mutex_t lock;
    hc__spans inputs, outs; /* an array that is input and output is in outs */
    atomic_size_t many;     /* spans in both */
} hc_in_flight;

#define HC_IN_FLIGHT_WORDS 128

/* A call that begins. */
typedef struct hc_claim {
    const hc_extent *extents;
    size_t n;
    int operation;                /* -1: a message */
    hc_handle *handle;            /* not yet submitted; NULL: the caller waits, so nothing is recorded */
    size_t at;                    /* after INVALID: the extent that a request in flight uses, */
    char its[HC_IN_FLIGHT_WORDS]; /* and that request */
} hc_claim;

void hc_in_flight_init(hc_in_flight *);
/* Refuses memory that a request in flight writes and, if the call writes it, memory that a request reads. Otherwise
 * records the call's memory. OK; INVALID; NO_MEMORY: nothing was recorded. Two broadcasts of exactly the same memory
 * (tied weights) do not conflict, as they write equal values. [any thread] */
int hc_in_flight_claim(hc_in_flight *, hc_claim *);
void hc_in_flight_clear(hc_in_flight *); /* nothing is in flight [any thread] */
void hc_in_flight_free(hc_in_flight *);  /* a second call does nothing */

static inline int hc_in_flight_any(hc_in_flight *f) {
    return atomic_load_explicit(&f->many, memory_order_relaxed) != 0;
}

/* 1: no request is in flight, so no memory can be: for a caller that waits. `loop` NULL: its World has ended.
 * `pending`: hc_loop_pending() of the library that has made the loop. [any thread] */
static inline int hc_in_flight_none(hc_in_flight *f, hc_loop *loop, int (*pending)(hc_loop *)) {
    if (hc_in_flight_any(f) && loop && !pending(loop))
        hc_in_flight_clear(f); /* the next blocking call finds it empty */
    return !hc_in_flight_any(f);
}

/* The `array` of an extent that overlaps one that another extent writes, or -1. Sorts the extents. */
int hc_extents_conflict(hc_extent *, size_t n);
