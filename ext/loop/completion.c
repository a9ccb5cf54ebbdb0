/* SPDX-License-Identifier: Apache-2.0
 *
 * completion.c - calls a framework's functions when their handles are done, and has the thread for that.
 *
 * Such a function may run the framework's next work or request the next operation. So neither a driver in its turn nor
 * the background thread, which other ranks may need, calls it. A caller that has driven for its own handle calls the
 * functions itself, without waking a thread.
 *
 * The thread also acts for the waiting caller (rule R1). A framework always waits for its operations, but does not call
 * wait. So the thread raises all pending requests when the framework has started no operation for a short time.
 */
#include "loop/thread.h"
#include "loop/clock.h"
#include "loop/completion.h"
#include "loop/handle.h"
#include "loop/place.h"
#include "loop/state.h"

#include <signal.h>

#define MOST_QUIET_NS 200000ull /* a tenth of the raise window's default */
#define A_DAY (86400000 * HC__MS)

void hc__completion_call(hc_loop *loop) {
    hc_handle *newest = atomic_exchange_explicit(&loop->completion.done, NULL, memory_order_acquire);
    for (hc_handle *handle = hc__handles_in_order(newest), *next; handle; handle = next) {
        next = handle->next;
        handle->on_done(handle, handle->context);
        hc_handle_release(handle);
    }
}

static void ring(hc_loop *loop) {
    atomic_fetch_add_explicit(&loop->completion.call, 1, memory_order_seq_cst);
    hc__futex_wake(&loop->completion.call);
}

/* Pairs with listen(): this adds to `begun`, then reads `listening`; listen() sets `listening`, then reads `begun`. So
 * one of the two sees the other. */
void hc__completion_begun(hc_loop *loop) {
    atomic_fetch_add_explicit(&loop->completion.begun, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&loop->completion.listening, memory_order_seq_cst))
        ring(loop);
}

static void flush(hc_loop *loop) {
    hc__ask_flush(loop);
    atomic_store_explicit(&loop->place.call_me, 0, memory_order_seq_cst);
    hc_doorbell_ring(loop->parts.node_control, loop->config.local_rank);
    hc__thread_call(loop);
}

/* Sleeps until a handle is done. While a program starts handles one after another, it sleeps until a quiet moment, and
 * then raises them. */
static void listen(hc_loop *loop, uint32_t call, uint32_t *raised) {
    hc__completion *completion = &loop->completion;
    uint64_t window = atomic_load_explicit(&loop->tuned.raise_window, memory_order_relaxed);
    uint64_t quiet = window < MOST_QUIET_NS ? window : MOST_QUIET_NS;
    atomic_store_explicit(&completion->listening, 1, memory_order_seq_cst);
    uint32_t begun = atomic_load_explicit(&completion->begun, memory_order_seq_cst);
    if (begun == *raised) {
        atomic_store_explicit(&completion->listening, 0, memory_order_seq_cst);
        if (atomic_load_explicit(&completion->begun, memory_order_seq_cst) == begun)
            hc__futex_wait(&completion->call, call, A_DAY);
        return;
    }
    hc__futex_wait(&completion->call, call, quiet ? quiet : 1);
    if (atomic_load_explicit(&completion->begun, memory_order_seq_cst) != begun)
        return;
    *raised = begun;
    flush(loop);
}

static void *run(void *argument) {
    hc_loop *loop = argument;
    uint32_t raised = 0;
    for (;;) {
        uint32_t call = atomic_load_explicit(&loop->completion.call, memory_order_seq_cst);
        hc__completion_call(loop);
        if (atomic_load_explicit(&loop->completion.stopping, memory_order_seq_cst))
            break;
        listen(loop, call, &raised);
    }
    hc__completion_call(loop); /* handles that finished between the call and the check of `stopping` */
    return NULL;
}

/* The thread blocks all signals: the program's handlers must run in the program's threads. */
int hc_loop_start_completions(hc_loop *loop) {
    if (atomic_load(&loop->forked))
        return HC_FORKED;
    if (!loop->config.background)
        return HC_UNSUPPORTED;
    if (loop->completion.has_thread)
        return HC_OK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    loop->completion.has_thread = pthread_create(&loop->completion.thread, NULL, run, loop) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return loop->completion.has_thread ? HC_OK : HC_NO_MEMORY;
}

void hc__completion_stop(hc_loop *loop) {
    if (!loop->completion.has_thread)
        return;
    atomic_store_explicit(&loop->completion.stopping, 1, memory_order_seq_cst);
    ring(loop);
    pthread_join(loop->completion.thread, NULL);
    loop->completion.has_thread = 0;
}
