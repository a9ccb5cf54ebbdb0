/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c - what fails here becomes an event for the engine, which tells the others.
 */
#include "loop/driver.h"

#include <stdio.h>

/* Steps are not nested: what fails inside one is the next event of the turn. The first failure counts. */
void hc__loop_fail(hc_loop *loop, int status, int32_t peer, const char *text) {
    if (loop->failing || atomic_load(&loop->broken))
        return;
    snprintf(loop->failure_text, sizeof loop->failure_text, "%s", text ? text : hc_status_text(status));
    int known = status == HC_PEER_LOST || status == HC_STALLED;
    loop->failure = (hc_event){
        .kind = HC_EV_FAIL, .status = known ? status : HC_TRANSPORT, .peer = peer, .text = loop->failure_text};
    loop->failing = 1;
}

void hc__loop_fail_to_move(hc_loop *loop, int status, int32_t peer, const char *what) {
    char text[sizeof loop->failure_text];
    const char *reason = status == HC_TRANSPORT && loop->parts.net ? loop->parts.net->text : NULL;
    snprintf(text, sizeof text, "%s%s%s", what, reason ? ": " : "", reason ? reason : "");
    hc__loop_fail(loop, status, peer, text);
}
