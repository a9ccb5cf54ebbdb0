/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.c - the background thread: drives when there is work and no caller waits.
 *
 * It sleeps in one of two places. If it is idle, or while a caller drives, it sleeps on `call`, a futex of this
 * process, so that messages for a waiting caller wake no other thread. With work in flight it sleeps on the rank's
 * doorbell, without the driver's place, so that a caller can take the place at once.
 *
 * When called, it does not take the driver's place at once: a thread that has just submitted, or has left the place
 * with work in flight, usually waits next and drives itself; it would find the place taken (30 us instead of 5 for an
 * asynchronous sum of 8 bytes). So the thread first coalesces for a short time, in which nobody has to call it.
 */
#include "loop/thread.h"
#include "loop/clock.h"
#include "loop/handle.h"
#include "loop/place.h"
#include "loop/progress.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/waiting.h"
#include "loop/watch.h"

#include <signal.h>

/* A tenth of the raise window: short beside the wait of an asynchronous request, and as long as a program needs to
 * enqueue the gradients of a large model. Without it the thread would take a core from another rank meanwhile: with 4
 * ranks on 2 cores 161 gradients took 22 ms instead of 17, in twice the batches. */
#define COALESCE_NS 200000ull
/* Half a raise window, used after calls that found no work, or callers that drive: a caller that starts plans and soon
 * waits for them needs no thread, and on a single core each wake costs it two context switches. */
#define COALESCE_MOST_NS 1000000ull

static int wanted(const hc_loop *loop) {
    return !atomic_load_explicit(&loop->trace.header->callers, memory_order_relaxed) &&
           !atomic_load_explicit(&loop->background.stopping, memory_order_relaxed);
}

/* Drives until it must sleep. 1: work is left; sleep with *seen and *ns; 0: no work is left here. */
static int drive_stretch(hc_loop *loop, int *useful, uint64_t *idle_since, uint32_t *seen, uint64_t *ns) {
    for (int listening = 0;;) {
        int moved = hc__progress_once(loop);
        *useful |= moved;
        if (!wanted(loop))
            return 0;
        if (!moved && hc__loop_left(loop) == HC__QUIET) {
            hc__heartbeat_idle(loop);
            return 0;
        }
        uint64_t now = hc__loop_now();
        if (moved || !*idle_since)
            *idle_since = now;
        if (moved)
            listening = 0;
        if (moved || (loop->sets.nrunning && now - *idle_since < HC__THREAD_NS))
            continue;
        hc__heartbeat(loop, now);
        *ns = hc__sleep_limit(loop, now, *idle_since, UINT64_MAX);
        if (listening && hc__about_to_sleep(loop, now))
            return 1;
        *seen = hc_doorbell_listen(loop->parts.node_control);
        listening = 1;
    }
}

/* Submitters and leaving callers publish their work, then read `coalescing`; this function clears `coalescing`, then
 * reads the work. */
static void coalesce(hc_loop *loop, uint32_t seen, uint64_t ns) {
    atomic_store_explicit(&loop->background.coalescing, 1, memory_order_seq_cst);
    hc__futex_wait(&loop->background.call, seen, ns);
    atomic_store_explicit(&loop->background.coalescing, 0, memory_order_seq_cst);
}

/* Waits for the driver's place. While a caller has it, that caller makes the progress; so the thread coalesces, and no
 * caller that leaves the place has to wake it. 0: the thread is not wanted any more. */
static int take_place(hc_loop *loop, uint64_t patience) {
    for (;;) {
        uint32_t seen = atomic_load(&loop->background.call); /* before `stopping`, as in run() */
        if (!wanted(loop))
            return 0;
        if (hc__driver_try(loop))
            return 1;
        coalesce(loop, seen, patience);
    }
}

/* 1: something moved. */
static int drive(hc_loop *loop, uint64_t patience) {
    uint64_t idle_since = 0, ns = 0;
    uint32_t seen = 0;
    int useful = 0;
    while (take_place(loop, patience)) {
        int more = drive_stretch(loop, &useful, &idle_since, &seen, &ns);
        hc__driver_vacate(loop);
        if (!more)
            break;
        hc_doorbell_sleep(loop->parts.node_control, seen, ns);
    }
    return useful;
}

static void *run(void *argument) {
    hc_loop *loop = argument;
    uint32_t seen = 0;
    uint64_t patience = COALESCE_NS;
    for (;;) {
        /* Read it before `stopping`: hc__thread_stop() sets that and then calls, so no sleep below misses the call. */
        uint32_t called = atomic_load(&loop->background.call);
        if (atomic_load(&loop->background.stopping))
            return NULL;
        int is_called = called != seen;
        uint64_t before = hc_counted(loop->watch.turns);
        if (is_called)
            coalesce(loop, called, patience);
        seen = called;
        int callers_drive = hc_counted(loop->watch.turns) != before;
        int useful = drive(loop, patience);
        if (useful && !callers_drive)
            patience = COALESCE_NS;
        else if (is_called && patience < COALESCE_MOST_NS)
            patience += COALESCE_NS;
        if (hc__look_away(loop) && wanted(loop))
            continue;
        hc__futex_wait(&loop->background.call, seen, HC__IDLE_TICK);
        hc__trace_watch_signal(loop);
    }
}

/* The thread blocks all signals: the program's handlers must run in the program's threads. */
int hc__thread_start(hc_loop *loop) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    loop->background.has_thread = pthread_create(&loop->background.thread, NULL, run, loop) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return loop->background.has_thread ? HC_OK : HC_NO_MEMORY;
}

void hc__thread_stop(hc_loop *loop) {
    if (!loop->background.has_thread)
        return;
    atomic_store(&loop->background.stopping, 1);
    hc__thread_call(loop);
    hc_doorbell_ring(loop->parts.node_control, loop->config.local_rank);
    pthread_join(loop->background.thread, NULL);
    loop->background.has_thread = 0;
}

void hc__thread_call(hc_loop *loop) {
    if (!loop->background.has_thread)
        return;
    atomic_fetch_add_explicit(&loop->calls.wakes, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&loop->background.call, 1, memory_order_seq_cst);
    hc__futex_wake(&loop->background.call);
}
