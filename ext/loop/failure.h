/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.h - failures of this rank, and ranks that are lost.
 */
#pragma once

#include "loop/batch.h"

typedef struct hc__failure {
    atomic_int broken; /* [any] the status that broke the World */
    atomic_int ended;  /* [any] 1 + a rank whose process has ended, by its launcher; 0: none */
    hc_event event;
    uint8_t is_next; /* it is the next event of the engine */
    char text[1024], broken_text[1088];
    uint32_t lost; /* once it is broken: 1 + the rank that was lost first; 0: none, or unknown */
} hc__failure;

/* A failure becomes the next event of this iteration. */
void hc__loop_fail(hc_loop *, int status, int32_t peer, const char *text);
/* The same for a batch without memory for `what`. Pass the action or the built batch; the other may be NULL. */
void hc__loop_fail_of_memory(hc_loop *, const hc_action *run, const hc__run *, const char *what);
/* The same for data that could not be moved: the text is `what`, and the net's text if the net has failed. */
void hc__loop_fail_to_move(hc_loop *, int status, int32_t peer, const char *what);

/* `rank` is lost, because of `why`. */
void hc__loop_lose(hc_loop *, int32_t rank, const char *why);
void hc__loop_lose_in_time(hc_loop *, int32_t rank, const char *what); /* `what` has outlasted peer_timeout */
