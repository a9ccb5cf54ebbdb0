/* SPDX-License-Identifier: Apache-2.0
 *
 * loop_stubs.c - in place of the parts of the loop that move data: an engine of two lists. A flush raises the requests
 * that it has, and what was raised is done in the next turn.
 */
#include "loop/failure.h"
#include "loop/others.h"
#include "loop/plan.h"
#include "loop/progress.h"
#include "loop/votes.h"
#include "loop/waiting.h"
#include "memory_model/loops.h"

static hc_handle *raised;
static int raises_at_once;

void mm_begin_engine(int at_once) {
    raised = NULL;
    raises_at_once = at_once;
}

/* ---- the engine ------------------------------------------------------------------------------------------- */

static void raise_all(hc_loop *loop) {
    while (loop->handles.requests) {
        hc_handle *handle = loop->handles.requests;
        hc__handle_unlink(handle);
        hc__handle_link(&raised, handle);
    }
}

int hc__loop_step(hc_loop *loop, hc_event *event) {
    if (event->kind == HC_EV_ENQUEUE)
        mm_check(!atomic_load_explicit(mm_counting, memory_order_relaxed), "no request while the rank counts one");
    if (event->kind == HC_EV_FLUSH || raises_at_once)
        raise_all(loop);
    return HC_OK;
}

/* One process set; all other ranks have come to its count. */
hc__set_queue *hc__set_queue_find(hc_loop *loop, uint32_t set) {
    return &loop->sets.queues[set];
}

int hc_loop_shortcut(hc_loop *loop, uint32_t set, hc_shortcut *shortcut, const hc_shortcut_call *call) {
    (void)loop, (void)set, (void)shortcut, (void)call;
    return HC_SHORTCUT_TAKEN;
}

int hc__set_queues_test(hc_loop *loop) {
    int moved = raised != NULL;
    while (raised) {
        hc_handle *handle = raised;
        hc__handle_unlink(handle);
        hc__handle_finish(loop, handle, HC_OK, NULL);
    }
    return moved;
}

int hc_engine_quiet(const hc_engine *engine) {
    (void)engine;
    return !raised && !mm_loop->handles.requests;
}

/* ---- time -------------------------------------------------------------------------------------------------- */

uint64_t hc__loop_now(void) {
    return 1;
}

uint64_t hc__looks_for(hc_loop *loop, uint64_t ns) {
    (void)loop, (void)ns;
    return 0; /* sleep at once */
}

int hc__looks_to_a_turn(hc_loop *loop) {
    (void)loop;
    return 0;
}

int hc__has_a_core(hc_loop *loop) {
    (void)loop;
    return 0;
}

void hc__wait_a_moment(hc_loop *loop) {
    (void)loop;
    mm_wait();
}

/* ---- nothing ----------------------------------------------------------------------------------------------- */

int hc_p2p_is_moving(const hc_p2p *p2p) {
    (void)p2p;
    return 0;
}

int hc__others_drive(const hc_loop *loop, uint64_t idle_ns) {
    (void)loop;
    (void)idle_ns;
    return 0;
}

int hc__others_exist(const hc_loop *loop) {
    (void)loop;
    return 0;
}

int hc__set_queues_need_polling(const hc_loop *loop) {
    (void)loop;
    return 0;
}

void hc__heartbeat(hc_loop *loop, uint64_t now) {
    (void)loop, (void)now;
}

void hc__heartbeat_idle(hc_loop *loop) {
    (void)loop;
}

int hc__heartbeat_message(hc_loop *loop, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    (void)loop, (void)peer, (void)bytes, (void)nbytes;
    return 0;
}

void hc__trace_watch_signal(hc_loop *loop) {
    (void)loop;
}

void hc__trace_prepare(hc_loop *loop) {
    (void)loop;
}

int hc__p2p_progress(hc_loop *loop) {
    (void)loop;
    return 0;
}

int hc__plans_test(hc_loop *loop) {
    (void)loop;
    return 0;
}

int hc__votes_progress(hc_loop *loop) {
    (void)loop;
    return 0;
}

void hc__equal_settle(hc_handle *handle, int32_t rank, const int64_t *all) {
    (void)handle, (void)rank, (void)all;
}

int hc__votes_are_open(hc_loop *loop, uint32_t set) {
    (void)loop, (void)set;
    return 0;
}
