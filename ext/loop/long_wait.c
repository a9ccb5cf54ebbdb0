/* SPDX-License-Identifier: Apache-2.0
 *
 * long_wait.c - a caller waits long for what ranks do not agree about: a message, a start of a plan.
 */
#include "loop/driver.h"

#include <stdio.h>

/* As for agreed requests: a report at the warning time and each time it has doubled, the World's end at the limit. The
 * clock runs from when a caller began to wait: a receive that nobody waits for may be open for ever. */
void hc__watch_wait(hc_loop *loop, hc_handle *handle, uint64_t ns,
                    void (*describe)(hc_loop *, const hc_handle *, char *text, size_t room)) {
    char what[sizeof loop->failure_text / 2 - 64], text[sizeof loop->failure_text];
    uint64_t warning = loop->config.engine.stall_warning, limit = loop->config.engine.stall_limit;
    int warns = warning && ns >= warning << handle->warnings, ends = limit && ns >= limit;
    int learns = handle->warnings && !handle->told_silent && loop->silent_text[0];
    if (!warns && !ends && !learns)
        return;
    handle->told_silent = loop->silent_text[0] != 0;
    describe(loop, handle, what, sizeof what);
    snprintf(text, sizeof text, "%s has waited %.3g s%s%s", what, (double)ns / 1e9, loop->silent_text[0] ? "; " : "",
             loop->silent_text);
    if (ends) {
        hc__loop_fail(loop, HC_STALLED, -1, text);
        return;
    }
    if (warns && handle->warnings < 20)
        handle->warnings++;
    fprintf(stderr, "hpccoll: rank %d: %s\n", loop->config.engine.rank, text);
}
