/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.h - the background thread, which drives when no caller waits.
 */
#pragma once

#include "loop/loop.h"

#include <pthread.h>

typedef struct hc__background {
    pthread_t thread, maker;
    uint8_t has_thread;
    atomic_int stopping;   /* [any] */
    atomic_int coalescing; /* [any] it checks in a moment: no need to ring */
    _Atomic uint32_t call; /* [any] its futex */
} hc__background;

int hc__thread_start(hc_loop *);
void hc__thread_stop(hc_loop *);
void hc__thread_call(hc_loop *); /* [any thread] */
