/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.h - sends and receives in flight.
 */
#pragma once

#include "loop/loop.h"

typedef struct hc__messages {
    hc_handle *ops;      /* sends and receives, newest first */
    uint32_t nlistening; /* number of ops that need a listener; for the others their callers poll */
    hc_p2p_op *unposted; /* sends that wait for their copy from a device, and sends ordered after them; oldest first */
} hc__messages;

/* p2p.c */
void hc__p2p_take(hc_loop *, hc_handle *);
int hc__p2p_progress(hc_loop *); /* 1: something moved */
void hc__p2p_stop(hc_loop *, uint32_t set);
int hc__p2p_borrow(const hc_loop *, uint32_t set); /* 1: a message uses memory of the set's data plane */
void hc__p2p_break(hc_loop *, int status, const char *text);
void hc__p2p_watch(hc_loop *, uint64_t now, void (*watch)(hc_loop *, int32_t peer, uint64_t now));

/* drive.c */
/* Posts a message from the caller's thread, after all earlier submissions, if the driver's place is free. `waits`: the
 * caller will wait for it. 1: posted; 0: submit it. [any thread] */
int hc__drive_message(hc_loop *, hc_handle *, int waits);
/* Drives for a moment if the message is inside the node. 1: it is done; 0: wait for it. [any thread] */
int hc__drive_briefly(hc_loop *, hc_handle *);
