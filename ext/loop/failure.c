/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c - turns a failure on this rank into an event for the engine, which tells the other ranks.
 */
#include "loop/failure.h"
#include "loop/state.h"

#include <stdio.h>

/* Steps are not nested: a failure inside a step becomes the next event of the iteration. Only the first failure
 * counts. */
void hc__loop_fail(hc_loop *loop, int status, int32_t peer, const char *text) {
    const hc_net *net = loop->parts.net;
    if (loop->failure.is_next || atomic_load(&loop->failure.broken))
        return;
    if (status == HC_PEER_LOST && peer < 0 && net && net->lost) {
        hc__loop_lose(loop, (int32_t)net->lost - 1, text);
        return;
    }
    snprintf(loop->failure.text, sizeof loop->failure.text, "%s", text ? text : hc_status_text(status));
    int known = status == HC_PEER_LOST || status == HC_STALLED || status == HC_NO_MEMORY;
    loop->failure.event = (hc_event){
        .kind = HC_EV_FAIL, .status = known ? status : HC_TRANSPORT, .peer = peer, .text = loop->failure.text};
    loop->failure.is_next = 1;
}

/* The text names this rank, as all ranks will show it. */
void hc__loop_fail_of_memory(hc_loop *loop, const hc_action *run, const hc__run *b, const char *what) {
    char text[sizeof loop->failure.text], who[HC_WHO];
    const hc_handle *handle = b ? b->first : (const hc_handle *)(uintptr_t)run->items[0].ticket;
    int operation = b ? b->batch.operation : run->items[0].agreed->operation;
    int shown = !handle ? 0 : handle->request.name_len < 64 ? (int)handle->request.name_len : 64;
    hc_who(&loop->ranks.processes, loop->config.engine.rank, who);
    snprintf(text, sizeof text, "%s '%.*s'%s: no memory on %s %s", hc_operation_name(operation), shown,
             handle ? handle->request.name : "", handle ? "" : " of other ranks, while this one has joined", who, what);
    hc__loop_fail(loop, HC_NO_MEMORY, -1, text);
}

void hc__loop_fail_to_move(hc_loop *loop, int status, int32_t peer, const char *what) {
    char text[sizeof loop->failure.text];
    const char *reason = loop->parts.net ? loop->parts.net->text : NULL;
    if (status == HC_PEER_LOST && peer >= 0) {
        hc__loop_lose(loop, peer, reason ? reason : what);
        return;
    }
    const char *words = status == HC_TRANSPORT || status == HC_PEER_LOST ? reason : NULL;
    snprintf(text, sizeof text, "%s%s%s", what, words ? ": " : "", words ? words : "");
    hc__loop_fail(loop, status, peer, text);
}

void hc__loop_lose(hc_loop *loop, int32_t rank, const char *why) {
    char who[HC_WHO], text[sizeof loop->failure.text];
    snprintf(text, sizeof text, "%s was lost: %s", hc_who(&loop->ranks.processes, rank, who), why);
    hc__loop_fail(loop, HC_PEER_LOST, rank, text);
}

void hc__loop_lose_in_time(hc_loop *loop, int32_t rank, const char *what) {
    char why[64];
    snprintf(why, sizeof why, "%s for %llu s", what, (unsigned long long)(loop->config.peer_timeout / 1000000000ull));
    hc__loop_lose(loop, rank, why);
}
