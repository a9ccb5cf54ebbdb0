/* SPDX-License-Identifier: Apache-2.0
 *
 * in_flight.h - which memory belongs to requests that are in flight, so that another request for it can be refused.
 *
 * A caller that waits has nothing else in flight, so only asynchronous calls are noted. It belongs to the boundary,
 * whose calls come one at a time; nobody tells it that a request has ended: it looks when it must.
 */
#ifndef HC_IN_FLIGHT_H
#define HC_IN_FLIGHT_H

#include "loop/loop.h"

#define HC_IN_FLIGHT_WORDS 128

typedef struct hc__span {
    const char *begin, *end;
    const char *reach; /* the largest end of this span and those before it */
    hc_handle *handle; /* a reference of ours */
} hc__span;

/* Sorted by where they begin. */
typedef struct hc__spans {
    hc__span *at;
    size_t many, room;
} hc__spans;

typedef struct hc_in_flight {
    hc__spans inputs, outs; /* an array that is both is an out */
} hc_in_flight;

/* NULL, or the request in flight that this memory is an out of, or (`writes`) an input of. Two broadcasts of exactly
 * one memory, such as that of tied weights, write the same values there: `operation` is of the new request, or -1 for a
 * message. */
const hc_handle *hc_in_flight_other(hc_in_flight *, const void *data, size_t bytes, int writes, int operation);
/* Before the handle is submitted. OK, or NO_MEMORY. */
int hc_in_flight_add(hc_in_flight *, const void *data, size_t bytes, int writes, hc_handle *);
/* What the handle is, for an error. Returns text. */
const char *hc_in_flight_words(const hc_handle *, char text[HC_IN_FLIGHT_WORDS]);
/* Where an array of a group lies. */
typedef struct hc_extent {
    const char *begin, *end;
    int writes, array;
} hc_extent;

/* An `array` that lies over one that another extent writes, or -1. Sorts the extents. */
int hc_extents_conflict(hc_extent *, size_t n);
void hc_in_flight_clear(hc_in_flight *); /* nothing is in flight */
void hc_in_flight_free(hc_in_flight *);

static inline int hc_in_flight_any(const hc_in_flight *f) {
    return f->inputs.many || f->outs.many;
}

#endif
