/* SPDX-License-Identifier: Apache-2.0
 *
 * tuning.c - knobs of the World that change at run time, and the laps of the program that the tuner measures. Laps come
 * from the trace, which is written anyway, so measuring costs the program nothing.
 */
#include "loop/clock.h"
#include "loop/state.h"
#include "loop/tuning.h"

#include <string.h>

static void set(atomic_ullong *to, uint64_t value) {
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static uint64_t get(atomic_ullong *from) {
    return atomic_load_explicit(from, memory_order_relaxed);
}

void hc__tuning_begin(hc_loop *loop) {
    set(&loop->tuned.fusion_threshold, loop->config.engine.fusion_threshold);
    set(&loop->tuned.raise_bytes, loop->config.engine.raise_bytes);
    set(&loop->tuned.raise_window, loop->config.engine.raise_window);
}

/* A reader that finds `changes` odd, or changed, reads again. The fence orders the odd number before the knobs, so that
 * a reader that sees a new knob sees the number, too. (An increment that acquires and releases does not: on ARM and
 * POWER a later store may be seen before it.) The loop uses only the knobs of the World, not of other sets. */
void hc__tuning_perform(hc_loop *loop, const hc_action *action) {
    hc__tuned *tuned = &loop->tuned;
    if (action->set != 0)
        return;
    atomic_fetch_add_explicit(&tuned->changes, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    set(&tuned->fusion_threshold, action->tuning->fusion_threshold);
    set(&tuned->raise_bytes, action->tuning->raise_bytes);
    set(&tuned->raise_window, action->tuning->raise_window);
    set(&tuned->at, hc__loop_now());
    atomic_fetch_add_explicit(&tuned->changes, 1, memory_order_release);
}

void hc_loop_get_tuning(hc_loop *loop, hc_loop_tuning *out) {
    hc__tuned *tuned = &loop->tuned;
    uint64_t before;
    do {
        before = atomic_load_explicit(&tuned->changes, memory_order_acquire);
        out->now.fusion_threshold = get(&tuned->fusion_threshold);
        out->now.raise_bytes = get(&tuned->raise_bytes);
        out->now.raise_window = get(&tuned->raise_window);
        out->at = get(&tuned->at);
        atomic_thread_fence(memory_order_acquire);
    } while (before & 1 || get(&tuned->changes) != before);
    out->changes = before / 2;
}

/* 1: a lap has ended. */
static int look_at(hc_laps *laps, const hc_trace_record *record, hc_lap *lap) {
    if (record->kind != HC_TRACE_ENQUEUE || record->set != 0 || record->plan)
        return 0;
    int ends = strcmp(record->name, laps->name) == 0;
    *lap = (hc_lap){.begun = laps->begun, .ended = record->time, .bytes = laps->bytes};
    if (ends) {
        laps->begun = record->time;
        laps->bytes = 0;
    }
    laps->bytes += record->bytes;
    return ends && lap->begun;
}

size_t hc_loop_read_laps(hc_loop *loop, hc_laps *laps, hc_lap *out, size_t room) {
    hc_trace_record record;
    size_t n = 0;
    while (n < room) {
        uint64_t expected = laps->next;
        if (!hc_loop_trace_read(loop, &laps->next, &record, 1))
            break;
        if (laps->next != expected + 1)
            laps->begun = 0;
        n += (size_t)look_at(laps, &record, &out[n]);
    }
    return n;
}
