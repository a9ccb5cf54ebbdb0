/* SPDX-License-Identifier: Apache-2.0
 *
 * drive.c - lets waiting callers drive; the background thread drives when no caller waits.
 *
 * Waiting for another thread to drive would cost two context switches per operation: 10 to 50 us for an operation of 2
 * us. So a waiter takes the driver's place if it is free. `driving` is a try-lock and never blocks. A waiter that finds
 * it taken sleeps on `epoch`, and wakes when its handle is done or the place is free.
 */
#include "loop/thread.h"
#include "loop/clock.h"
#include "loop/completion.h"
#include "loop/handle.h"
#include "loop/inbox.h"
#include "loop/others.h"
#include "loop/p2p.h"
#include "loop/place.h"
#include "loop/progress.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/votes.h"
#include "loop/waiting.h"
#include "loop/watch.h"

#include <stdio.h>
#include <string.h>

#define OTHERS_NS (2 * HC__MS) /* between two looks at what does not ring: 2 % of a core for a rank that waits */

/* Sleeps on the doorbell, as nothing has moved since idle_since; returns at once if something moves or arrives now. The
 * other Worlds and the MPI that this caller drives do not ring. */
static void sleep_a_little(hc_loop *loop, uint64_t now, uint64_t idle_since, uint64_t limit) {
    uint32_t seen = hc_doorbell_listen(loop->parts.node_control);
    if (hc__progress_once(loop) || !hc__about_to_sleep(loop, now))
        return;
    hc_count(&loop->counters.sleeps, 1);
    uint64_t ns = hc__sleep_limit(loop, now, idle_since, limit);
    hc_doorbell_sleep(loop->parts.node_control, seen, ns > OTHERS_NS && hc__others_exist(loop) ? OTHERS_NS : ns);
}

/* The handles that a caller waits for: from `next` on; the ones before it are done. */
typedef struct awaited {
    hc_handle *const *next, *const *end;
} awaited;

static int all_done(awaited *all) {
    while (all->next < all->end && hc_handle_done(*all->next))
        all->next++;
    return all->next == all->end;
}

/* 1: a caller that does not drive may return: its handles are done, and nothing for other ranks is left without a
 * driver. */
static int is_over(hc_loop *loop, awaited *all) {
    return all_done(all) && (!hc__loop_owes(loop) || atomic_load_explicit(&loop->place.driving, memory_order_relaxed));
}

/* Hands the remaining work to the background thread. While it coalesces it checks by itself. Otherwise it sleeps on
 * `call`, or on the doorbell, where it waits only for the work of which it knows. */
static void drive_on(hc_loop *loop, enum hc__left left) {
    if (left == HC__QUIET || atomic_load_explicit(&loop->background.coalescing, memory_order_seq_cst))
        return;
    if (left == HC__MOVES)
        hc_doorbell_ring(loop->parts.node_control, loop->config.local_rank);
    hc__thread_call(loop);
}

/* Traces a wait only if it sleeps, and once per handle, because a caller may wait many times. */
static void trace_wait(hc_loop *loop, const awaited *all) {
    if (all->next == all->end || (*all->next)->traced_wait)
        return;
    (*all->next)->traced_wait = 1;
    hc__trace_handle(loop, HC_TRACE_WAIT, *all->next, 0);
}

static void drive_until(hc_loop *loop, awaited *all, uint64_t limit) {
    uint64_t idle_since = 0, patience = hc__looks_for(loop, HC__DRIVER_NS);
    while (!all_done(all) || hc__loop_owes(loop)) {
        if (hc__progress_once(loop)) {
            idle_since = 0;
            continue;
        }
        uint64_t now = hc__loop_now();
        hc__heartbeat(loop, now);
        if (now >= limit)
            return;
        if (!idle_since)
            idle_since = now;
        if (now - idle_since < patience) {
            hc__wait_a_moment(loop);
            continue;
        }
        if (hc__others_drive(loop, now - idle_since))
            continue;
        trace_wait(loop, all);
        sleep_a_little(loop, now, idle_since, limit);
    }
}

/* Sleeps while another thread drives, or must drive. Wakes a sleeping driver, so that it sees the flush. */
static void sleep_for_news(hc_loop *loop, awaited *all, int can_drive, uint64_t ns) {
    for (int looks = hc__looks_to_a_turn(loop); looks > 0; looks--) {
        if (is_over(loop, all) || (can_drive && !atomic_load_explicit(&loop->place.driving, memory_order_relaxed)))
            return;
        hc__wait_a_moment(loop);
    }
    hc_doorbell_ring(loop->parts.node_control, loop->config.local_rank);
    uint32_t seen = atomic_load_explicit(&loop->place.epoch, memory_order_seq_cst);
    atomic_fetch_add_explicit(&loop->place.sleepers, 1, memory_order_seq_cst);
    int vacant = can_drive && !atomic_load_explicit(&loop->place.driving, memory_order_seq_cst);
    int done = all->next == all->end || atomic_load_explicit(&(*all->next)->done, memory_order_seq_cst);
    if (!vacant && !done)
        hc__futex_wait(&loop->place.epoch, seen, ns < HC__HEARTBEAT_NS ? ns : HC__HEARTBEAT_NS);
    atomic_fetch_sub_explicit(&loop->place.sleepers, 1, memory_order_relaxed);
}

#define WAIT_ENDS_NS (1000 * HC__MS) /* without a look: it was another wait */

/* The wait of a thread that must not drive. It may be many short waits, as those of Python, which looks for signals. */
static _Thread_local struct {
    const hc_loop *loop;
    uint64_t turns, since, seen; /* progress iterations, since when they are so many, and the newest look */
    uint64_t patience;           /* ns; 0: no report */
} idle_wait;

/* Reports the wait if the thread that may drive has not done so for long: nothing else would. */
static void report_long_wait(const hc_loop *loop, uint64_t now) {
    uint64_t turns = hc_counted(loop->watch.turns);
    if (idle_wait.loop != loop || idle_wait.turns != turns || now - idle_wait.seen > WAIT_ENDS_NS) {
        idle_wait.loop = loop;
        idle_wait.turns = turns;
        idle_wait.since = now;
        idle_wait.patience = loop->config.engine.stall_warning;
    }
    idle_wait.seen = now;
    if (!idle_wait.patience || now - idle_wait.since < idle_wait.patience)
        return;
    idle_wait.patience *= 2;
    fprintf(stderr,
            "hpccoll: rank %d: a thread has waited %.3g s, and the thread that made the World has made no call: with "
            "MPI_THREAD_SINGLE or FUNNELED that one alone may move data between nodes. Let it wait for the operation, "
            "or begin MPI with MPI_THREAD_MULTIPLE\n",
            (int)loop->config.engine.rank, (double)(now - idle_wait.since) / 1e9);
}

/* Runs at least one progress iteration, so that a caller that only polls (with a past limit) makes progress, too. */
static enum hc__left wait_until(hc_loop *loop, awaited *all, uint64_t limit) {
    int can_drive = hc__may_drive(loop);
    enum hc__left left = HC__QUIET;
    uint64_t now;
    do {
        if (can_drive && hc__driver_try(loop)) {
            drive_until(loop, all, limit);
            left = hc__driver_leave(loop);
        } else {
            now = hc__loop_now();
            sleep_for_news(loop, all, can_drive, limit > now ? limit - now : 0);
            left = HC__LISTENS; /* the background thread may have left its place to this caller */
        }
        now = hc__loop_now();
        if (!can_drive)
            report_long_wait(loop, now);
    } while (!is_over(loop, all) && now < limit);
    return left;
}

static void admit(hc_loop *loop, hc_handle *handle) {
    atomic_fetch_add_explicit(&handle->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&loop->handles.pending, 1, memory_order_seq_cst); /* see counted.c */
}

static void note_waiting(const awaited *all, uint64_t now) {
    for (hc_handle *const *at = all->next; at < all->end; at++)
        if (((*at)->op || (*at)->plan) && !atomic_load_explicit(&(*at)->waited_since, memory_order_relaxed))
            atomic_store_explicit(&(*at)->waited_since, now, memory_order_relaxed);
}

/* 1: some progress iterations are worth it: the message comes from this node, or no other rank needs this core. Only
 * the driver may call this: it changes the peer of a receive from any rank. */
static int comes_soon(hc_loop *loop, const hc_handle *handle) {
    const hc_p2p_op *op = handle->op;
    if (!op || handle->staging)
        return 0;
    int is_local = op->peer >= 0 ? loop->ranks.node_of[op->peer] == loop->ranks.node_of[loop->config.engine.rank]
                                 : !loop->parts.net;
    return is_local || hc__has_a_core(loop);
}

/* Drives for a moment, for messages: they need no flush, and a message that arrives at once needs no trace of a wait.
 * 1: all are done. */
static int drive_briefly(hc_loop *loop, awaited *all) {
    if (all->next == all->end || !(*all->next)->op || !hc__may_drive(loop) || !hc__driver_try(loop))
        return 0;
    int most = comes_soon(loop, *all->next) ? HC__LOOKS_OF_DRIVER : 0;
    for (int i = 0; i < most && !all_done(all) && (*all->next)->op; i++)
        hc__progress_once(loop);
    enum hc__left left = hc__driver_leave(loop);
    int over = is_over(loop, all);
    if (over)
        drive_on(loop, left);
    return over;
}

int hc__drive_briefly(hc_loop *loop, hc_handle *handle) {
    awaited one = {&handle, &handle + 1};
    return is_over(loop, &one) || drive_briefly(loop, &one);
}

static uint64_t end_of(uint64_t start, uint64_t ns) {
    return start + ns < start ? UINT64_MAX : start + ns;
}

int hc_loop_wait(hc_loop *loop, hc_handle *const *handles, size_t n, uint64_t ns) {
    awaited all = {handles, handles + n};
    if (is_over(loop, &all) || (ns && drive_briefly(loop, &all)))
        return 1;
    uint64_t start = hc__loop_now(), limit = end_of(start, ns);
    if (ns)
        note_waiting(&all, start);
    atomic_fetch_add_explicit(&loop->trace.header->callers, 1, memory_order_relaxed);
    hc__ask_flush(loop);
    enum hc__left left = wait_until(loop, &all, limit);
    atomic_fetch_sub_explicit(&loop->trace.header->callers, 1, memory_order_seq_cst);
    drive_on(loop, left);
    atomic_fetch_add_explicit(&loop->calls.waited_ns, hc__loop_now() - start, memory_order_relaxed);
    return is_over(loop, &all);
}

void hc__drive_vote(hc_loop *loop, hc_handle *handle, uint64_t ns) {
    awaited one = {&handle, &handle + 1};
    if (!hc__may_drive(loop) || !hc__driver_try(loop)) {
        hc_loop_submit(loop, handle, 1);
        hc_loop_wait(loop, &handle, 1, ns);
        return;
    }
    uint64_t start = hc__loop_now();
    atomic_fetch_add_explicit(&loop->trace.header->callers, 1, memory_order_relaxed);
    admit(loop, handle);
    hc__votes_take(loop, handle, start);
    drive_until(loop, &one, end_of(start, ns));
    enum hc__left left = hc__driver_leave(loop);
    atomic_fetch_sub_explicit(&loop->trace.header->callers, 1, memory_order_seq_cst);
    drive_on(loop, left);
    atomic_fetch_add_explicit(&loop->calls.waited_ns, hc__loop_now() - start, memory_order_relaxed);
}

static void ring(hc_loop *loop) {
    atomic_store_explicit(&loop->place.call_me, 0, memory_order_seq_cst);
    hc_doorbell_ring(loop->parts.node_control, loop->config.local_rank);
    hc__thread_call(loop);
}

#define REFUSAL_NS (1000 * HC__MS) /* a rank that takes no message for so long computes, and calls later */

/* The caller goes on, perhaps without another call. So without a background thread it waits until what it tells other
 * ranks has left: the refusal and its vote, which it cannot give when they ask. */
void hc_loop_refuse(hc_loop *loop, uint32_t set, const hc_request *request) {
    hc_handle *handle = hc_handle_new(HC_EV_REFUSE, set, 0, 0, request->name, request->name_len, 0);
    if (!handle || !(handle->text = hc_strdup(request->why))) {
        hc_handle_release(handle);
        return;
    }
    handle->request.operation = request->operation;
    handle->request.order = request->order;
    handle->request.why = handle->text;
    handle->request.why_len = (uint32_t)strlen(handle->text);
    if (request->order && !loop->config.background)
        handle->value = (int64_t)hc__votes_next(loop, set);
    handle->traced_wait = 1;
    hc_loop_submit(loop, handle, 0);
    ring(loop);
    if (loop->config.background || !hc__may_drive(loop))
        hc_loop_progress(loop);
    else
        hc_loop_wait(loop, &handle, 1, REFUSAL_NS);
    hc_handle_release(handle);
}

/* If no thread drives, the caller drives for one handle, although no caller waits for it. */
static enum hc__left drive_for(hc_loop *loop, hc_handle *handle, uint64_t ns) {
    awaited one = {&handle, &handle + 1};
    if (!hc__may_drive(loop) || !hc__driver_try(loop))
        return HC__MOVES;
    loop->completion.by_driver = 1;
    drive_until(loop, &one, hc__loop_now() + ns);
    loop->completion.by_driver = 0;
    return hc__driver_leave(loop);
}

/* Raises the request now, because its caller goes on and requests no flush later. */
static void begin_alone(hc_loop *loop, hc_handle *handle, uint64_t ns) {
    atomic_fetch_add_explicit(&handle->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&loop->trace.header->callers, 1, memory_order_relaxed);
    hc_loop_submit(loop, handle, 1);
    hc__ask_flush(loop);
    enum hc__left left = drive_for(loop, handle, ns);
    atomic_fetch_sub_explicit(&loop->trace.header->callers, 1, memory_order_seq_cst);
    if (left != HC__QUIET)
        ring(loop);
    hc__completion_call(loop);
    hc_handle_release(handle);
}

void hc_loop_begin(hc_loop *loop, hc_handle *handle, uint64_t ns) {
    if (ns && !atomic_load_explicit(&loop->handles.pending, memory_order_relaxed)) {
        begin_alone(loop, handle, ns);
        return;
    }
    hc_loop_submit(loop, handle, 0);
    hc__completion_begun(loop);
}

void hc_loop_progress(hc_loop *loop) {
    if (!hc__may_drive(loop) || !hc__driver_try(loop))
        return;
    enum hc__left before = hc__loop_left(loop);
    for (int i = 0; i < 16 && hc__progress_once(loop); i++) {}
    hc__heartbeat(loop, hc__loop_now());
    enum hc__left left = hc__driver_leave(loop);
    if (left > before)
        drive_on(loop, left);
}

int hc__drive_message(hc_loop *loop, hc_handle *handle, int waits) {
    if (handle->staging || loop->config.debug || atomic_load_explicit(&loop->forked, memory_order_relaxed) ||
        !hc__may_drive(loop) || !hc__driver_try(loop))
        return 0;
    enum hc__left before = hc__loop_left(loop);
    if (!loop->config.background && (handle->op->flags & HC_P2P_PROBE_NOW))
        hc__progress_once(loop); /* a program that only polls receives nothing else */
    else if (atomic_load_explicit(&loop->inbox.newest, memory_order_relaxed))
        hc__progress_in(loop);
    admit(loop, handle);
    handle->bytes = handle->op->bytes;
    hc__p2p_take(loop, handle);
    hc__progress_out(loop);
    if (hc__p2p_progress(loop))
        hc__progress_out(loop);
    int comes_back = waits && !hc_handle_done(handle);
    enum hc__left left = hc__driver_leave(loop);
    if (left > before && !comes_back)
        drive_on(loop, left);
    return 1;
}

void hc_loop_submit(hc_loop *loop, hc_handle *handle, int waits) {
    if (handle->op && hc__drive_message(loop, handle, waits))
        return;
    admit(loop, handle);
    if (atomic_load_explicit(&loop->forked, memory_order_relaxed)) {
        hc__handle_finish(loop, handle, HC_FORKED, hc_status_text(HC_FORKED));
        return;
    }
    if (loop->config.debug)
        hc__checksum(handle);
    handle->bytes = handle->op ? handle->op->bytes : 0;
    for (uint32_t i = 0; i < handle->request.ntensors; i++)
        handle->bytes += (uint64_t)handle->pieces[i].count * hc_dtype_size(handle->tensors[i].dtype);
    uint64_t bytes = handle->bytes; /* the driver may free the handle once it is pushed */
    hc__inbox_push(loop, handle);
    if (waits)
        return;
    uint64_t before = atomic_fetch_add_explicit(&loop->inbox.bytes, bytes, memory_order_relaxed);
    uint64_t enough = atomic_load_explicit(&loop->tuned.raise_bytes, memory_order_relaxed);
    int full = before < enough && before + bytes >= enough;
    if ((full || atomic_load_explicit(&loop->place.call_me, memory_order_seq_cst)) &&
        !atomic_load_explicit(&loop->background.coalescing, memory_order_seq_cst))
        ring(loop);
}
