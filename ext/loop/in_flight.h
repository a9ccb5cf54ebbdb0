/* SPDX-License-Identifier: Apache-2.0
 *
 * in_flight.h - the memory of requests in flight, so that a second request for it can be refused.
 *
 * Only asynchronous calls are recorded: a waiting caller has nothing else in flight. The language's boundary owns the
 * table and calls one function at a time. The end of a request is not reported; the table checks it when needed.
 */
#ifndef HC_IN_FLIGHT_H
#define HC_IN_FLIGHT_H

#include "loop/loop.h"

#define HC_IN_FLIGHT_WORDS 128

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
    hc__spans inputs, outs; /* an array that is input and output is in outs */
} hc_in_flight;

/* NULL, or the request in flight that writes this memory or, if `writes`, reads it. Two broadcasts of exactly the
 * same memory (tied weights) do not conflict, as they write equal values. `operation`: of the new request, -1 for a
 * message. */
const hc_handle *hc_in_flight_other(hc_in_flight *, const void *data, size_t bytes, int writes, int operation);
/* Call it before the handle is submitted. OK, or NO_MEMORY. */
int hc_in_flight_add(hc_in_flight *, const void *data, size_t bytes, int writes, hc_handle *);
/* Describes the handle for an error text. Returns text. */
const char *hc_in_flight_words(const hc_handle *, char text[HC_IN_FLIGHT_WORDS]);
/* The memory of an array of a group. */
typedef struct hc_extent {
    const char *begin, *end;
    int writes, array;
} hc_extent;

/* The `array` of an extent that overlaps one that another extent writes, or -1. Sorts the extents. */
int hc_extents_conflict(hc_extent *, size_t n);
void hc_in_flight_clear(hc_in_flight *); /* nothing is in flight */
void hc_in_flight_free(hc_in_flight *);

static inline int hc_in_flight_any(const hc_in_flight *f) {
    return f->inputs.many || f->outs.many;
}

#endif
