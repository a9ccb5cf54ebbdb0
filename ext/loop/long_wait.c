/* SPDX-License-Identifier: Apache-2.0
 *
 * long_wait.c - reports long waits for things without agreement: a message, a start of a plan.
 */
#include "loop/failure.h"
#include "loop/state.h"
#include "loop/watch.h"

#include <stdio.h>

/* Like the engine for agreed requests: prints a report at the warning time and whenever it has doubled, and breaks
 * the World at the limit. The clock starts when a caller begins to wait: a receive without a waiter may stay open
 * for ever. */
void hc__watch_wait(hc_loop *loop, hc_handle *handle, uint64_t ns,
                    void (*describe)(hc_loop *, const hc_handle *, char *text, size_t room)) {
    char what[sizeof loop->failure.text / 2 - 64], text[sizeof loop->failure.text];
    uint64_t warning = loop->config.engine.stall_warning, limit = loop->config.engine.stall_limit;
    int warns = warning && ns >= warning << handle->warnings, ends = limit && ns >= limit;
    int learns = handle->warnings && !handle->named_silent && loop->watch.silent.text[0];
    if (!warns && !ends && !learns)
        return;
    handle->named_silent = loop->watch.silent.text[0] != 0;
    describe(loop, handle, what, sizeof what);
    snprintf(text, sizeof text, "%s has waited %.3g s%s%s", what, (double)ns / 1e9,
             loop->watch.silent.text[0] ? "; " : "", loop->watch.silent.text);
    if (ends) {
        hc__loop_fail(loop, HC_STALLED, -1, text);
        return;
    }
    if (warns && handle->warnings < 20)
        handle->warnings++;
    fprintf(stderr, "hpccoll: rank %d: %s\n", loop->config.engine.rank, text);
}
