/* SPDX-License-Identifier: Apache-2.0
 *
 * traces.c - scenarios of what one thread writes and others read without a lock: the ring of the trace, tuned knobs.
 */
#include "memory_model/loops.h"
#include "memory_model/scenarios.h"

enum { RECORDS = 3, CHANGES = 2 };

/* The ring is full: each record replaces one. Those have zeros. */
static void full_trace(void) {
    mm_make_loop();
    atomic_store(&mm_loop->trace.header->head, HC_TRACE_ROOM);
    mm_may_race(mm_loop->trace.records, HC_TRACE_ROOM * sizeof *mm_loop->trace.records);
}

/* Half a record is none of the old and none of the new ones. */
static void run_trace(int thread) {
    hc_trace_record records[RECORDS];
    uint64_t next = 0;
    for (int m = 1; thread == 0 && m <= RECORDS; m++)
        hc__trace_message(mm_loop, HC_TRACE_SEND, m, (uint64_t)m);
    if (thread == 0)
        return;
    size_t n = hc_loop_trace_read(mm_loop, &next, records, 2);
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = records[i].bytes;
        mm_check(records[i].peer == (int32_t)bytes, "half a record");
        mm_check(bytes > 0 ? records[i].kind == HC_TRACE_SEND : records[i].time == 0, "half a record");
    }
}

static void run_tuning(int thread) {
    for (uint64_t n = 1; thread == 0 && n <= CHANGES; n++) {
        hc_tuning tuning = {n, n, n};
        hc__tuning_perform(mm_loop, &(hc_action){.kind = HC_AC_TUNED, .tuning = &tuning});
    }
    if (thread == 0)
        return;
    hc_loop_tuning seen;
    hc_loop_get_tuning(mm_loop, &seen);
    mm_check(seen.now.fusion_threshold == seen.changes, "the first knob of a change");
    mm_check(seen.now.raise_bytes == seen.changes, "the second knob of a change");
    mm_check(seen.now.raise_window == seen.changes, "the third knob of a change");
}

const mm_scenario mm_trace_ring = {"trace", 2, full_trace, run_trace, mm_free_loop, 2, 2};
const mm_scenario mm_tuning = {"tuning", 2, mm_make_loop, run_tuning, mm_free_loop, 2, 2};
