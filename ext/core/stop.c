/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.c - the end of a log, and who brought it about.
 *
 * STOP ends a log exactly: what was committed before it runs everywhere, all else ends with one error everywhere.
 * LEAVE comes before it where a rank asks for nothing more and can wait for the others: one that still asks for
 * something would be waiting for ever, and stops the set instead. Both carry who left first.
 */
#include "core/core.h"

/* ---- who -------------------------------------------------------------------------------------------------- */

uint8_t *hc__write_leaver(const hc__set *s, uint8_t flags, uint8_t *p) {
    return flags & HC__F_LEAVER ? hc__write32(p, (uint32_t)s->leaver) : p;
}

int32_t hc__read_leaver(const hc_engine *e, hc__reader *r, uint8_t flags, int32_t set_size) {
    if (!(flags & HC__F_LEAVER))
        return HC__NOBODY;
    int32_t leaver = (int32_t)hc__read32(r);
    if (leaver == HC__NOBODY || leaver >= set_size || leaver < HC__OF_WORLD(e->config.size - 1))
        r->bad = 1;
    return leaver;
}

/* The same on all ranks, once the log has spoken. */
const char *hc__shut_down_text(hc__set *s) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    hc__put(&text, hc_status_text(HC_SHUT_DOWN));
    if (s->left || s->stopped) {
        hc__put(&text, ": rank ");
        hc__put_int(&text, s->leaver < 0 ? HC__OF_WORLD(s->leaver) : s->leaver);
        hc__put(&text, s->leaver < 0 ? " of the World that it was made from" : "");
        hc__put(&text, " has called shutdown() or ended");
    }
    const char *lent = hc__lend_text(s->engine, buffer);
    return lent ? lent : hc_status_text(HC_SHUT_DOWN);
}

/* The first that is heard of counts, until the log says who it was. */
static void tell(hc__set *s, uint8_t flag, int32_t leaver) {
    if (s->leaver == HC__NOBODY)
        s->leaver = leaver;
    hc__tree_flag(s, flag);
}

void hc__heard(hc__set *s, uint8_t flags, int32_t leaver) {
    if (flags & HC__F_LEAVE)
        tell(s, HC__F_LEAVE, leaver);
    if (flags & HC__F_STOP)
        tell(s, HC__F_STOP, leaver);
    if (flags & HC__F_PREEMPT)
        hc__tree_flag(s, HC__F_PREEMPT);
}

/* ---- STOP ------------------------------------------------------------------------------------------------- */

static void stop(hc__set *s, int32_t leaver) {
    hc_engine *e = s->engine;
    if (s->stopping || s->stopped)
        return;
    for (uint32_t i = 0; i < e->nsets; i++) /* R1 */
        if (e->sets[i])
            hc__raise_all(e->sets[i]);
    s->stopping = 1;
    tell(s, HC__F_STOP, leaver);
}

void hc__stop(hc__set *s) {
    stop(s, s->set_rank);
}

static void shut_down_pending(hc__set *s) {
    const char *text = hc__shut_down_text(s);
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

/* The World's STOP stops the other sets, each by its own log. */
static void stop_others(hc__set *world) {
    const hc_engine *e = world->engine;
    for (uint32_t i = 1; i < e->nsets; i++)
        if (e->sets[i])
            stop(e->sets[i], HC__OF_WORLD(world->leaver));
}

void hc__log_end(hc__set *s) {
    s->stopped = s->stopping = 1;
    shut_down_pending(s);
    hc__tree_clear(s);
    hc__stall_free(s);
    hc_action *action = hc__act(s->engine, HC_AC_STOPPED);
    action->set = s->id;
    action->text = hc__shut_down_text(s);
    if (s->id == 0)
        stop_others(s);
}

/* ---- LEAVE ------------------------------------------------------------------------------------------------ */

static int is_last(const hc__set *s, uint32_t name) {
    return s->names.at[name].mine->request.flags & HC_REQUEST_LAST;
}

static void leave_when_done(hc__set *s) {
    if (!s->joined && (s->oldest == HC__NONE || is_last(s, s->oldest)))
        tell(s, HC__F_LEAVE, s->set_rank);
}

/* Who has left had nothing pending in this set: what is pending now lacks that rank for ever. */
void hc__leave_look(hc__set *s) {
    if (s->stopped)
        return;
    if (s->leaving)
        leave_when_done(s);
    else if (s->left && (s->oldest != HC__NONE || s->join_ticket))
        stop(s, s->leaver);
}

void hc__leave(hc__set *s) {
    const hc_engine *e = s->engine;
    for (uint32_t i = 0; i < e->nsets; i++)
        if (e->sets[i] && (s->id == 0 || e->sets[i] == s)) {
            e->sets[i]->leaving = 1;
            hc__leave_look(e->sets[i]);
        }
}
