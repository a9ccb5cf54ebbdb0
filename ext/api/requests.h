/* SPDX-License-Identifier: Apache-2.0
 *
 * requests.h - waits, and outcomes of requests.
 */
#pragma once

#include "api/base.h"

/* What to do after an operation, in the thread that waits for it. */
typedef struct hc__after {
    int (*finish)(struct hc__after *, const hc_handle *); /* the handle is done: OK, or a status (error set) */
    void (*free)(struct hc__after *);
} hc__after;

/* Checks an array of `n` requests or plans, which `function` is given: OK, or INVALID (error set). */
int hc__many_check(const char *function, int n, const void *array);
/* Blocks for at most `ns`; 1: done. */
int hc__await(hpccoll_world *, hc_handle *, uint64_t ns);
/* The status of a handle that is done (error set if it is an error). */
int hc__status(const hc_handle *);
/* The same; also releases the handle. */
int hc__outcome(hpccoll_world *, hc_handle *, int64_t *counts);
/* After a receive: writes the sender and the number of elements; either pointer may be NULL. */
void hc__note_message(const hpccoll_world *, const hc_handle *, size_t element, int *from, int64_t *received);
/* Makes a request, for the handle that hc__request_hold() sets. NULL: no memory. */
hpccoll_request *hc__request_new(hpccoll_world *);
void hc__request_hold(hpccoll_request *, hc_handle *, int64_t *counts, int *from);
void hc__request_after(hpccoll_request *, hc__after *);    /* the request owns it */
void hc__request_element(hpccoll_request *, size_t bytes); /* of a message: `counts` gets the number of elements */
void hc__request_drop(hpccoll_request *);
