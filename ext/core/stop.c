/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.c - the exact end of a log: what was committed before STOP runs everywhere, all else ends with one
 * error everywhere.
 */
#include "core.h"

void hc__stop(hc__set *s) {
    hc_engine *e = s->engine;
    if (s->stopping || s->stopped)
        return;
    for (uint32_t i = 0; i < e->nsets; i++) /* R1 */
        if (e->sets[i])
            hc__raise_all(e->sets[i]);
    s->stopping = 1;
    hc__tree_flag(s, HC__F_STOP);
}

static void shut_down_pending(hc__set *s) {
    const char *text = hc_status_text(HC_SHUT_DOWN);
    while (s->oldest != HC__NONE) {
        uint32_t name = s->oldest;
        hc__pending_unlink(s, name);
        hc__finish(s, name, HC_SHUT_DOWN, text, s->q);
    }
    if (s->join_ticket)
        hc__complete(s->engine, s->join_ticket, HC_SHUT_DOWN, text, s->q);
    s->join_ticket = 0;
    s->joined = s->loose = 0;
}

/* The World's STOP stops the other sets: a sequenced one here and now, because the sequencer puts nothing in
 * order behind it and need not live on; another by its own log. */
static void stop_others(hc_engine *e) {
    for (uint32_t i = 1; i < e->nsets; i++) {
        hc__set *s = e->sets[i];
        if (s && s->sequenced && !s->stopped)
            hc__log_end(s);
        else if (s)
            hc__stop(s);
    }
}

void hc__log_end(hc__set *s) {
    s->stopped = s->stopping = 1;
    shut_down_pending(s);
    hc__tree_clear(s);
    hc__held_free(s);
    hc__stall_free(s);
    hc_action *action = hc__act(s->engine, HC_AC_STOPPED);
    action->set = s->id;
    if (s->id == 0)
        stop_others(s->engine);
}
