/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.c - ends a log, and records the rank that caused it.
 *
 * STOP ends a log exactly: requests committed before it run on all ranks, all others end with the same error on all
 * ranks. LEAVE comes before it if a rank has made its last request and can wait for the others. A rank with a further
 * request would wait for ever, so it stops the set. Both flags carry the first rank to leave.
 */
#include "core/stop.h"

#include "core/actions.h"
#include "core/complete.h"
#include "core/memory.h"
#include "core/pending.h"
#include "core/query.h"
#include "core/raise.h"
#include "core/refuse.h"
#include "core/state.h"
#include "core/text.h"
#include "core/tree.h"
#include "core/wire.h"

/* The text is the same on all ranks once LEAVE or STOP is in the log. */
const char *hc__shut_down_text(hc__set *s) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    hc__put(&text, hc_status_text(HC_SHUT_DOWN));
    if (s->end.left || s->end.stopped) {
        hc__put(&text, ": rank ");
        hc__put_int(&text, s->end.first_to_leave < 0 ? HC__OF_WORLD(s->end.first_to_leave) : s->end.first_to_leave);
        hc__put(&text, s->end.first_to_leave < 0 ? " of the World that it was made from" : "");
        hc__put(&text, s->end.nwhy ? " has " : " has called shutdown() or ended");
        hc__put_some(&text, (const char *)s->end.why, s->end.nwhy);
    }
    return hc__scratch_text(s->engine, buffer);
}

/* This rank, which says what it has done: `verb`, then `n` bytes of `why`; NULL: it ends in order. A set names it by
 * its rank in the World, by which users know ranks. */
static hc__leaver this_rank(const hc__set *s, char said[HC__WHY + 1], const char *verb, const char *why, size_t n) {
    hc__text text = hc__text_on(said, HC__WHY + 1);
    if (why) {
        hc__put(&text, verb);
        hc__put_some(&text, why, n);
    }
    const int32_t rank = s->id ? HC__OF_WORLD(s->engine->config.rank) : s->set_rank;
    return (hc__leaver){.rank = rank, .nwhy = (uint8_t)text.len, .why = (const uint8_t *)said};
}

/* Keeps the first leaver that is known here, until the log has the agreed one. */
static void tell(hc__set *s, uint8_t flag, const hc__leaver *leaver) {
    if (s->end.first_to_leave == HC__NO_RANK)
        hc__keep_leaver(s, leaver);
    hc__tree_flag(s, flag);
}

hc__leaver hc__first_to_leave(const hc__set *s) {
    return (hc__leaver){.rank = s->end.first_to_leave, .nwhy = s->end.nwhy, .why = s->end.why};
}

void hc__keep_leaver(hc__set *s, const hc__leaver *leaver) {
    s->end.first_to_leave = leaver->rank;
    s->end.nwhy = leaver->nwhy;
    if (leaver->nwhy)
        memmove(s->end.why, leaver->why, leaver->nwhy);
}

void hc__child_flags(hc__set *s, uint8_t flags, const hc__leaver *leaver) {
    if (flags & HC__F_LEAVE)
        tell(s, HC__F_LEAVE, leaver);
    if (flags & HC__F_STOP)
        tell(s, HC__F_STOP, leaver);
    if (flags & HC__F_PREEMPT)
        hc__tree_flag(s, HC__F_PREEMPT);
}

/* ---- STOP ---------------------------------------------------------------------------------------- */

static void stop(hc__set *s, const hc__leaver *leaver) {
    if (s->end.stopping || s->end.stopped)
        return;
    hc__raise_everywhere(s->engine); /* R1 */
    s->end.stopping = 1;
    tell(s, HC__F_STOP, leaver);
}

void hc__stop(hc__set *s, const char *why) {
    char said[HC__WHY + 1];
    const hc__leaver leaver = this_rank(s, said, "raised ", why, why ? strlen(why) : 0);
    stop(s, &leaver);
}

static void shut_down_pending(hc__set *s) {
    const char *text = hc__shut_down_text(s);
    while (s->pending.oldest != HC__NONE) {
        uint32_t name = s->pending.oldest;
        hc__pending_unlink(s, name);
        hc__finish(s, name, HC_SHUT_DOWN, text, s->position);
    }
    if (s->joins.ticket)
        hc__complete(s->engine, s->joins.ticket, HC_SHUT_DOWN, text, s->position);
    s->joins.ticket = 0;
    s->joins.joined = s->joins.is_loose = 0;
}

/* The World's STOP stops the other sets, each by its own log. */
static void stop_others(hc__set *world) {
    const hc_engine *e = world->engine;
    hc__leaver leaver = hc__first_to_leave(world);
    leaver.rank = HC__OF_WORLD(leaver.rank);
    for (uint32_t i = 1; i < e->nsets; i++)
        if (e->sets[i])
            stop(e->sets[i], &leaver);
}

void hc__log_end(hc__set *s) {
    s->end.stopped = s->end.stopping = 1;
    shut_down_pending(s);
    hc__refusals_free(s);
    hc__tree_clear(s);
    hc__queries_free(s);
    hc_action *action = hc__act(s->engine, HC_AC_STOPPED);
    action->set = s->id;
    action->text = hc__shut_down_text(s);
    if (s->id == 0)
        stop_others(s);
}

/* ---- LEAVE --------------------------------------------------------------------------------------- */

static int is_last(const hc__set *s, uint32_t name) {
    return s->names.at[name].mine->request.flags & HC_REQUEST_LAST;
}

/* The other ranks may not have made the call that this one refused last. If they make it now, they learn why this rank
 * has left. */
static void leave_when_done(hc__set *s) {
    if (s->joins.joined || (s->pending.oldest != HC__NONE && !is_last(s, s->pending.oldest)))
        return;
    char said[HC__WHY + 1];
    const hc_request *refused = s->end.first_to_leave == HC__NO_RANK ? hc__refusal(s) : NULL;
    const hc__leaver leaver = this_rank(s, said, "ended after it refused a call: ", refused ? refused->why : NULL,
                                        refused ? refused->why_len : 0);
    tell(s, HC__F_LEAVE, &leaver);
}

/* A rank that has left had nothing pending in this set, so a request that is pending now would wait for it for ever. */
void hc__leave_check(hc__set *s) {
    if (s->end.stopped)
        return;
    if (s->end.leaving)
        leave_when_done(s);
    else if (s->end.left && (s->pending.oldest != HC__NONE || s->joins.ticket))
        stop(s, &(hc__leaver){.rank = s->end.first_to_leave}); /* already kept, with its text */
}

void hc__leave(hc__set *s) {
    const hc_engine *e = s->engine;
    for (uint32_t i = 0; i < e->nsets; i++)
        if (e->sets[i] && (s->id == 0 || e->sets[i] == s)) {
            e->sets[i]->end.leaving = 1;
            hc__leave_check(e->sets[i]);
        }
}
