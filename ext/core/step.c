/* SPDX-License-Identifier: Apache-2.0
 *
 * step.c - the engine's function: takes an event, gives actions.
 */
#include "core/actions.h"
#include "core/commit.h"
#include "core/complete.h"
#include "core/enqueue.h"
#include "core/fail.h"
#include "core/join.h"
#include "core/memory.h"
#include "core/message.h"
#include "core/raise.h"
#include "core/refuse.h"
#include "core/renumber.h"
#include "core/request.h"
#include "core/set.h"
#include "core/stall.h"
#include "core/state.h"
#include "core/stop.h"
#include "core/text.h"
#include "core/tree.h"
#include "core/tune.h"
#include "core/up.h"
#include "core/wire.h"

/* ---- time ---------------------------------------------------------------------------------------- */

static uint64_t raise_deadline(const hc__set *s) {
    if (s->pending.unraised == HC__NONE || s->joins.joined || s->end.stopped)
        return HC__NEVER;
    return hc__later(s->names.at[s->pending.unraised].since, s->tune.now.raise_window);
}

static void run_timers(hc_engine *e) {
    for (uint32_t i = 0; i < e->nsets; i++) {
        hc__set *s = e->sets[i];
        if (s && raise_deadline(s) <= e->now) /* R3 */
            hc__raise_all(s);
        if (s && !e->failure.failed && hc__stall_deadline(s) <= e->now)
            hc__stall_tick(s);
        if (s && !e->failure.failed && s->pending.unnamed.due <= e->now)
            hc__renumber_tick(s);
    }
    e->retime = 1;
}

static void tell_deadline(hc_engine *e) {
    uint64_t due = HC__NEVER;
    for (uint32_t i = 0; i < e->nsets && !e->failure.failed; i++) {
        const hc__set *s = e->sets[i];
        uint64_t mine = s ? raise_deadline(s) : HC__NEVER;
        uint64_t stall = s ? hc__stall_deadline(s) : HC__NEVER;
        due = mine < due ? mine : due;
        due = stall < due ? stall : due;
        due = s && s->pending.unnamed.due < due ? s->pending.unnamed.due : due;
    }
    e->retime = 0;
    if (due == e->due)
        return;
    e->due = due;
    hc__act(e, HC_AC_WAKE_AT)->time = due;
}

/* ---- events -------------------------------------------------------------------------------------- */

static const char *broken_text(const hc_engine *e) {
    return e->failure.text ? e->failure.text : hc_status_text(HC_BROKEN);
}

static int on_enqueue(hc_engine *e, hc__set *s, const hc_event *ev) {
    if (!ev->request || ev->request->ticket == 0)
        return HC_INVALID;
    if (e->failure.failed)
        hc__complete(e, ev->request->ticket, HC_BROKEN, broken_text(e), s->position);
    else
        hc__enqueue(s, ev->request);
    return 0;
}

static int on_refuse(hc_engine *e, hc__set *s, const hc_event *ev) {
    if (!ev->request)
        return HC_INVALID;
    if (!e->failure.failed)
        hc__refuse(s, ev->request);
    return 0;
}

static int on_join(hc_engine *e, hc__set *s, const hc_event *ev) {
    if (ev->ticket == 0)
        return HC_INVALID;
    if (e->failure.failed)
        hc__complete(e, ev->ticket, HC_BROKEN, broken_text(e), s->position);
    else
        hc__join(s, ev->ticket);
    return 0;
}

static void on_sent(hc_engine *e, int32_t peer) {
    for (uint32_t i = 0; i < e->nsets; i++) {
        hc__set *s = e->sets[i];
        if (!s || s->parent != peer || !s->tree.is_sending)
            continue;
        s->tree.is_sending = 0;
        hc__touch(s);
    }
}

static int on_add_set(hc_engine *e, const hc_set_config *config) {
    int status = hc__set_add(e, config);
    if (status == 0)
        hc__early_replay(e, config->set);
    return status;
}

static int on_set_event(hc_engine *e, const hc_event *ev) {
    hc__set *s = hc__set_find(e, ev->set);
    if (!s)
        return HC_INVALID;
    switch (ev->kind) {
    case HC_EV_ENQUEUE:
        return on_enqueue(e, s, ev);
    case HC_EV_REFUSE:
        return on_refuse(e, s, ev);
    case HC_EV_JOIN:
        return on_join(e, s, ev);
    case HC_EV_STOP:
        if (!e->failure.failed)
            hc__stop(s, ev->text);
        return 0;
    case HC_EV_PREEMPT:
        if (!e->failure.failed && !s->end.stopped)
            hc__tree_flag(s, HC__F_PREEMPT);
        return 0;
    case HC_EV_TUNE:
        return hc__tune_propose(s, ev->tuning);
    default:
        return e->failure.failed ? 0 : hc__batch_done(s, ev->batch, ev->status, ev->text);
    }
}

static int on_fail(hc_engine *e, const hc_event *ev) {
    if (ev->status >= 0 || ev->peer < -1 || ev->peer >= e->config.size)
        return HC_INVALID;
    hc__fail(e, ev->status, ev->peer, ev->text, -1);
    return 0;
}

static int dispatch(hc_engine *e, const hc_event *ev) {
    switch (ev->kind) {
    case HC_EV_ADD_SET:
        return e->failure.failed ? HC_BROKEN : on_add_set(e, ev->config);
    case HC_EV_REMOVE_SET:
        return hc__set_remove(e, ev->set);
    case HC_EV_FLUSH:
        hc__flush(e, ev->ticket);
        return 0;
    case HC_EV_MESSAGE:
        return hc__message(e, ev->peer, ev->bytes, ev->nbytes);
    case HC_EV_SENT:
        on_sent(e, ev->peer);
        return 0;
    case HC_EV_TICK:
        return 0;
    case HC_EV_SILENT:
        hc__stall_silent(e, ev->text);
        return 0;
    case HC_EV_FAIL:
        return on_fail(e, ev);
    case HC_EV_ENQUEUE:
    case HC_EV_REFUSE:
    case HC_EV_JOIN:
    case HC_EV_STOP:
    case HC_EV_PREEMPT:
    case HC_EV_TUNE:
    case HC_EV_BATCH_DONE:
        return on_set_event(e, ev);
    default:
        return HC_INVALID;
    }
}

/* Sends all that this step has raised, in one message per edge; at a root, makes entries of the ready items. */
static void settle(hc_engine *e) {
    while (e->dirty) {
        hc__set *s = e->dirty;
        e->dirty = s->next_dirty;
        s->dirty = 0;
        if (e->failure.failed)
            continue;
        if (s->parent >= 0)
            hc__up_send(s);
        else
            while (hc__commit(s))
                ;
    }
}

/* Memory is gone in the middle of an entry: incomplete batches must not start, and messages of a half-applied entry
 * must not be sent. The failure replaces them. */
static void withdraw(hc_engine *e) {
    hc__act_withdraw(e, HC_AC_RUN);
    hc__act_withdraw(e, HC_AC_SEND);
    hc__act_withdraw(e, HC_AC_WAKE_AT);
}

static void run_dry(hc_engine *e) {
    if (!e->failure.failed)
        withdraw(e);
    char words[64];
    hc__text text = hc__text_on(words, sizeof words);
    hc__put(&text, "no memory on rank ");
    hc__put_int(&text, e->config.rank);
    hc__put(&text, " for the control plane");
    hc__fail(e, HC_NO_MEMORY, -1, words, -1);
    e->due = 0; /* the last WAKE_AT may have been withdrawn */
    tell_deadline(e);
    e->starved = 0;
}

int hc_step(hc_engine *e, const hc_event *ev, const hc_action **actions, size_t *nactions) {
    hc__scratch_reset(e);
    hc__actions_reset(e);
    hc__sig_free_dead(e);
    if (ev->now > e->now)
        e->now = ev->now;
    int status = dispatch(e, ev);
    if (status == 0 && e->now >= e->due && !e->failure.failed)
        run_timers(e);
    settle(e);
    if (e->retime)
        tell_deadline(e);
    if (e->starved) {
        run_dry(e);
        status = 0; /* the failure is the result */
    }
    *actions = e->actions.at;
    *nactions = e->actions.count;
    return status;
}
