/* SPDX-License-Identifier: Apache-2.0
 *
 * handle.h - handles in flight: their lists, their end, and threads that sleep until then.
 */
#pragma once

#include "loop/loop.h"

typedef struct hc__handles {
    atomic_int pending;  /* [any] handles that are not done */
    hc_handle *requests; /* requests that the engine holds; if it runs out of memory, the loop ends them */
    hc_handle *votes;    /* small calls that wait for other nodes */
    hc_handle *plans;    /* starts of plans that the driver runs */
    hc_handle *removals; /* REMOVE_SET: sets whose messages still use memory of their data planes */
} hc__handles;

void hc__handle_finish(hc_loop *, hc_handle *, int status, const char *text);
void hc__handle_link(hc_handle **list, hc_handle *);
void hc__handle_unlink(hc_handle *);
hc_handle *hc__handles_in_order(hc_handle *newest); /* reverses the list, and returns its new first */
void hc__wake_waiters(hc_loop *);                   /* [any thread] */
void hc__futex_wait(_Atomic uint32_t *, uint32_t seen, uint64_t ns);
void hc__futex_wake(_Atomic uint32_t *);
void hc__checksum(hc_handle *); /* debug: at submit */
void hc__checksum_verify(hc_handle *);
