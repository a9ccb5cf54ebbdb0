/* SPDX-License-Identifier: Apache-2.0
 *
 * completion.h - functions that are called when a handle is done.
 */
#pragma once

#include "loop/loop.h"

#include <pthread.h>

typedef struct hc__completion {
    _Atomic(hc_handle *) done;      /* [any] handles whose function must be called, newest first; a reference each */
    _Atomic uint32_t call;          /* [any] futex of the thread */
    _Atomic uint32_t begun;         /* [any] number of handles whose callers did not wait */
    atomic_int listening, stopping; /* [any] listening: the thread will check soon, so do not wake it */
    uint8_t by_driver;              /* the driver calls the functions of its handles after it has left its place */
    uint8_t has_thread;
    pthread_t thread;
} hc__completion;

void hc__completion_call(hc_loop *);  /* calls the functions of done handles [any thread that does not drive] */
void hc__completion_begun(hc_loop *); /* a handle was submitted whose caller does not wait [any thread] */
void hc__completion_stop(hc_loop *);  /* call it when all handles have ended */
