/* SPDX-License-Identifier: Apache-2.0
 *
 * actions.c - the list of a step's actions.
 */
#include "core/actions.h"

#include <stdlib.h>

#include "core/memory.h"
#include "core/reserve.h"
#include "core/state.h"

#define KEEP_ACTIONS 256u /* kept between steps */

static int grow_actions(hc_engine *e, uint32_t wanted) {
    uint32_t room = 4;
    while (room < wanted)
        room *= 2;
    hc_action *more = hc__resize(e, e->actions.at, e->actions.room * sizeof *more, room * sizeof *more);
    if (!more)
        return 0;
    e->actions.at = more;
    e->actions.room = room;
    return 1;
}

int hc__act_reserve(hc_engine *e, uint32_t actions) {
    if (e->actions.room < actions && !grow_actions(e, actions))
        return 0;
    if (e->actions.reserved < actions)
        e->actions.reserved = actions;
    return 1;
}

static hc_action *begin(hc_action *action, int kind) {
    memset(action, 0, sizeof *action);
    action->kind = (uint8_t)kind;
    action->peer = -1;
    return action;
}

hc_action *hc__act(hc_engine *e, int kind) {
    hc_action *action = &e->actions.spare;
    if (e->actions.count == e->actions.room)
        grow_actions(e, e->actions.room + 1);
    if (e->actions.count < e->actions.room)
        action = &e->actions.at[e->actions.count++];
    return begin(action, kind);
}

void hc__act_withdraw(hc_engine *e, int kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->actions.count; i++)
        if (e->actions.at[i].kind != kind)
            e->actions.at[n++] = e->actions.at[i];
    e->actions.count = n;
}

hc_action *hc__act_surely(hc_engine *e, int kind) {
    hc_action *action = hc__act(e, kind);
    return action == &e->actions.spare ? begin(&e->actions.at[e->actions.count - 1], kind) : action;
}

void hc__actions_reset(hc_engine *e) {
    e->actions.count = 0;
    uint32_t keep = e->actions.reserved;
    int is_large = e->actions.room > KEEP_ACTIONS && e->actions.room > keep;
    hc_action *fewer = is_large ? hc_realloc(e->actions.at, keep * sizeof *fewer, keep * sizeof *fewer) : NULL;
    if (fewer) {
        e->bytes -= (e->actions.room - keep) * sizeof *fewer;
        e->actions.at = fewer;
        e->actions.room = keep;
    }
}

void hc__actions_free(hc_engine *e) {
    hc__free(e, e->actions.at, e->actions.room * sizeof *e->actions.at);
}

/* ---- actions that many add ----------------------------------------------------------------------- */

static void send(hc_engine *e, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    hc_action *action = hc__act(e, HC_AC_SEND);
    action->peer = peer;
    action->bytes = bytes;
    action->nbytes = nbytes;
}

void hc__send_up(hc_engine *e, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    send(e, peer, bytes, nbytes);
    hc_count(&e->counters.messages_up, 1);
    hc_count(&e->counters.bytes_up, nbytes);
}

void hc__send_down(hc_engine *e, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    send(e, peer, bytes, nbytes);
    hc_count(&e->counters.messages_down, 1);
    hc_count(&e->counters.bytes_down, nbytes);
}

hc_action *hc__complete(hc_engine *e, uint64_t ticket, int status, const char *text, uint64_t position) {
    hc_action *action = hc__act(e, HC_AC_COMPLETE);
    action->ticket = ticket;
    action->status = status;
    action->text = text;
    action->position = position;
    return action;
}
