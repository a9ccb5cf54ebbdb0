/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.c - scenarios of the driver's place, the inbox, and threads that sleep, wake and hand over work. The engine is
 * that of loop_stubs.c.
 */
#include "memory_model/loops.h"

#include "loop/counted.h"

#include "memory_model/nodes.h"
#include "memory_model/scenarios.h"
#include "transport/shm/shortcut_state.h"

hc_loop *mm_loop;
_Atomic uint32_t *mm_counting;
static hc_control control;
static _Atomic uint32_t *counted;

static int no_message(hc_control *base, int32_t *peer, const uint8_t **bytes, size_t *nbytes) {
    (void)base, (void)peer, (void)bytes, (void)nbytes;
    return HC_IDLE;
}

static int nothing_to_send(hc_control *base, int32_t *peer) {
    (void)base;
    *peer = -1;
    return HC_IDLE;
}

static const struct hc_control_ops no_messages = {.receive = no_message, .progress = nothing_to_send};

static void make_loop(int raises_at_once) {
    mm_make_controls(1);
    control = (hc_control){.ops = &no_messages};
    mm_begin_engine(raises_at_once);
    mm_loop = mm_shared(sizeof *mm_loop);
    mm_loop->parts.node_control = mm_controls[0];
    mm_loop->parts.control = &control;
    mm_loop->trace.header = mm_shared(sizeof *mm_loop->trace.header);
    mm_loop->trace.records = mm_shared(HC_TRACE_ROOM * sizeof *mm_loop->trace.records);
    mm_loop->watch.turns = hc_node_control_turns(mm_controls[0]);
    mm_loop->wake_at = UINT64_MAX;
    mm_loop->sets.nqueues = 1;
    counted = mm_shared(sizeof *counted);
    mm_counting = mm_shared(sizeof *mm_counting);
}

void mm_make_loop(void) {
    make_loop(0);
}

void mm_free_loop(void) {
    mm_free_controls();
}

static void loop_with_thread(void) {
    make_loop(0);
    hc__thread_start(mm_loop);
}

static void eager_loop_with_thread(void) {
    make_loop(1);
    hc__thread_start(mm_loop);
}

/* ---- scenarios ---------------------------------------------------------------------------------------------- */

static hc_handle *request(void) {
    return hc_handle_new(HC_EV_ENQUEUE, 0, 0, 0, "", 0, 0);
}

static void submit_and_wait(void) {
    hc_handle *handle = request();
    hc_loop_submit(mm_loop, handle, 1);
    mm_check(hc_loop_wait(mm_loop, &handle, 1, UINT64_MAX), "waited until it was done");
    mm_check(handle->status == HC_OK, "the status of a request");
    hc_handle_release(handle);
}

/* All threads wait, and one of them drives for all. */
static void run_callers(int thread) {
    (void)thread;
    for (int i = 0; i < 2; i++)
        submit_and_wait();
}

/* Thread 0 counts a request, and then makes another one; so does each call that the ranks count, or do not. */
static void run_counting(int thread) {
    if (thread == 1) {
        submit_and_wait();
        return;
    }
    struct hc_shortcut shortcut = {.words = mm_shared(2 * sizeof *shortcut.words), .number = 1, .group = {.n = 2}};
    hc_handle *handle = hc_handle_new(HC_EV_ENQUEUE, 0, 1, 0, "", 0, 0);
    const hc_counting by = {.shortcut = &shortcut, .size = 2};
    if (hc_loop_count(mm_loop, &by, handle, 0) == HC_SHORTCUT_TAKEN) {
        atomic_store_explicit(mm_counting, 1, memory_order_relaxed);
        atomic_store_explicit(mm_counting, 0, memory_order_relaxed);
        hc__counted_off(mm_loop, 0);
    }
    hc_handle_release(handle);
    submit_and_wait();
}

static void await_done(hc_handle *handle) {
    while (!hc_handle_done(handle))
        mm_wait();
    mm_check(handle->status == HC_OK, "the status of a request");
    hc_handle_release(handle);
}

/* Thread 0 is the background thread. The other one submits, and never waits in the library. */
static void run_background(int thread) {
    if (thread == 0) {
        mm_run_started(0);
        return;
    }
    for (int i = 0; i < 3; i++) {
        hc_handle *handle = request();
        hc_loop_submit(mm_loop, handle, 0);
        await_done(handle);
    }
    hc__thread_stop(mm_loop);
}

/* The others wait, and drive meanwhile. */
static void run_callers_and_thread(int thread) {
    if (thread == 0) {
        mm_run_started(0);
        return;
    }
    hc_handle *handle = request();
    hc_loop_submit(mm_loop, handle, 0);
    mm_check(hc_loop_wait(mm_loop, &handle, 1, UINT64_MAX), "waited until it was done");
    await_done(handle);
    atomic_fetch_add_explicit(counted, 1, memory_order_release);
    while (thread == 1 && atomic_load_explicit(counted, memory_order_acquire) < 2)
        mm_wait();
    if (thread == 1)
        hc__thread_stop(mm_loop);
}

/* A caller looks once now and then, and leaves the rest to the background thread. */
static void run_polls(int thread) {
    if (thread == 0) {
        mm_run_started(0);
        return;
    }
    for (int i = 0; i < 2; i++) {
        hc_handle *handle = request();
        hc_loop_submit(mm_loop, handle, 0);
        hc_loop_progress(mm_loop);
        await_done(handle);
    }
    hc__thread_stop(mm_loop);
}

static void loop_with_completions(void) {
    make_loop(0);
    mm_loop->config.background = 1;
    hc__thread_start(mm_loop);
    hc_loop_start_completions(mm_loop);
}

static void note_done(hc_handle *handle, void *called) {
    mm_check(handle->status == HC_OK, "the status of a request");
    atomic_fetch_add_explicit((_Atomic uint32_t *)called, 1, memory_order_release);
}

/* Thread 1 calls functions for handles that are done. The program, thread 2, only starts requests. */
static void run_completions(int thread) {
    if (thread < 2) {
        mm_run_started(thread);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        hc_handle *handle = request();
        handle->on_done = note_done;
        handle->context = (void *)counted;
        hc_loop_begin(mm_loop, handle, 0);
        while (atomic_load_explicit(counted, memory_order_acquire) <= i)
            mm_wait();
        hc_handle_release(handle);
    }
    hc__thread_stop(mm_loop);
    hc__completion_stop(mm_loop);
}

const mm_scenario mm_callers_of_two = {"callers-2", 2, mm_make_loop, run_callers, mm_free_loop, 2, 1};
const mm_scenario mm_callers_of_three = {"callers-3", 3, mm_make_loop, run_callers, mm_free_loop, 1, 1};
const mm_scenario mm_counting_beside = {"counting-2", 2, mm_make_loop, run_counting, mm_free_loop, 2, 1};
const mm_scenario mm_background = {"background-2", 2, eager_loop_with_thread, run_background, mm_free_loop, 2, 1};
const mm_scenario mm_polls = {"polls-2", 2, eager_loop_with_thread, run_polls, mm_free_loop, 2, 1};
const mm_scenario mm_callers_and_thread = {
    "background-3", 3, loop_with_thread, run_callers_and_thread, mm_free_loop, 1, 1};
const mm_scenario mm_completions = {"completions", 3, loop_with_completions, run_completions, mm_free_loop, 1, 1};
