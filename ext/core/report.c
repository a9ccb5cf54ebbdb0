/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c - sends the answer to a stall query, as text, from the root to all ranks that asked.
 *
 * The root's text names the awaited ranks. Each asker adds its own request and the time of its wait: the query may have
 * been delayed by a rank that did not poll, and the name may belong to a later request meanwhile.
 */
#include "core/report.h"

#include "core/actions.h"
#include "core/describe.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/query.h"
#include "core/state.h"
#include "core/text.h"
#include "core/who.h"
#include "core/wire.h"

/* ---- the text (at the root) ---------------------------------------------------------------------- */

#define LOCATED 4 /* ranks of a list that are named with host and pid */

static void put_ranks(const hc__set *s, hc__text *text, const int32_t *ranks, const int32_t *world_ranks, uint32_t n,
                      uint32_t of) {
    for (uint32_t i = 0; i < n; i++) {
        hc__put(text, i ? ", " : "");
        hc__put_who(text, s->engine->config.processes, ranks[i], world_ranks && i < LOCATED ? world_ranks[i] : -1);
    }
    if (n < of)
        hc__put(text, n ? ", ..." : "...");
}

/* Adds the ranks that wait: all others, if all awaited ranks are known by number. */
static void put_waiting(const hc__set *s, hc__text *text, const hc__query *q) {
    int32_t waiting[HC__LISTED];
    uint32_t n = 0, all = (uint32_t)s->set_size - q->lacking;
    int joins = !hc__query_is_join(q->key) && s->joins.out_firm + s->joins.out_loose;
    if (q->silent || q->nranks < q->lacking || joins)
        return;
    for (int32_t rank = 0; rank < s->set_size && n < HC__LISTED; rank++) {
        uint32_t i = 0;
        while (i < q->nranks && q->ranks[i] != rank)
            i++;
        if (i == q->nranks)
            waiting[n++] = rank;
    }
    hc__put(text, all == 1 ? "; waiting is rank " : "; waiting are ranks ");
    put_ranks(s, text, waiting, NULL, n, all);
}

static void put_world_rank(const hc__set *s, hc__text *text, int32_t rank) {
    hc__put(text, "rank ");
    hc__put_who(text, s->engine->config.processes, rank, rank);
    hc__put(text, s->id ? " of the World" : "");
}

static void put_report(const hc__set *s, hc__text *text, const hc__query *q) {
    hc__put(text, " for ");
    hc__put_int(text, (int64_t)q->lacking + q->silent);
    hc__put(text, " of ");
    hc__put_int(text, s->set_size);
    hc__put(text, s->id ? " ranks of its process set" : " ranks"); /* whose numbers follow, not the World's */
    if (q->lacking) {
        hc__put(text, q->lacking == 1 ? ": rank " : ": ranks ");
        put_ranks(s, text, q->ranks, q->world_ranks, q->nranks, q->lacking);
        hc__put(text, q->lacking == 1 ? " has not " : " have not ");
        hc__put(text, hc__query_is_join(q->key) ? "joined" : "asked for it");
    }
    if (q->silent) {
        hc__put(text, q->lacking ? "; not heard: " : ": not heard: ");
        put_world_rank(s, text, q->silent_rank);
        if (q->silent > 1) {
            hc__put(text, " or what is behind it, ");
            hc__put_int(text, q->silent);
            hc__put(text, " ranks");
        }
    }
    put_waiting(s, text, q);
}

void hc__report_write(const hc__set *s, const hc__query *q, char text[HC__TEXT], hc__report *r) {
    hc__text on = hc__text_on(text, HC__TEXT);
    put_report(s, &on, q);
    *r = (hc__report){.reporter = 1, .awaited = q->lacking + q->silent, .nranks = q->nranks, .text = text};
    r->text_len = (uint32_t)on.len;
    memcpy(r->ranks, q->ranks, sizeof r->ranks);
}

/* ---- down ---------------------------------------------------------------------------------------- */

/* Adds this rank's request and the time of its wait. 0: it does not wait for this item any more. */
static int put_wait(const hc__set *s, hc__text *text, const uint64_t key[2]) {
    uint32_t name = hc__name_find(s, key);
    const hc__name *record = name == HC__NONE ? NULL : &s->names.at[name];
    int joins = hc__query_is_join(key);
    if (joins ? !s->joins.ticket : !record || record->phase == HC__ABSENT || record->phase == HC__RUNNING)
        return 0;
    if (joins)
        hc__put(text, "join");
    else
        hc__describe(text, &record->mine->request);
    hc__put(text, " has waited ");
    hc__put_seconds(text, s->engine->now - (joins ? s->joins.since : record->since));
    return 1;
}

static void put_silent(const hc__set *s, hc__text *text) {
    hc__put(text, s->engine->silent ? "; " : "");
    hc__put(text, s->engine->silent ? s->engine->silent : "");
}

static void tell_own_waiter(hc__set *s, const uint64_t key[2], const hc__report *r) {
    char buffer[HC__TEXT];
    hc__text words = hc__text_on(buffer, sizeof buffer);
    if (!put_wait(s, &words, key))
        return;
    hc__put_some(&words, r->text, r->text_len);
    put_silent(s, &words);
    const char *text = hc__scratch_text(s->engine, buffer);
    int32_t *ranks = hc__scratch(s->engine, sizeof r->ranks);
    if (!s->stall.last_report)
        s->stall.last_report = hc__alloc(s->engine, HC__TEXT);
    if (!text || !ranks || !s->stall.last_report)
        return;
    memcpy(ranks, r->ranks, sizeof r->ranks);
    memcpy(s->stall.last_report, text, words.len + 1);
    hc_action *action = hc__act(s->engine, HC_AC_STALLED);
    action->set = s->id;
    action->reporter = s->engine->silent ? !s->stall.named_silent : r->reporter;
    s->stall.named_silent = s->engine->silent != NULL;
    action->text = text;
    action->ranks = ranks;
    action->nranks = r->nranks;
    action->nawaited = r->awaited;
}

static void send_report(hc__set *s, const hc__query *q, uint32_t source, const hc__report *r) {
    uint8_t *p, *bytes = hc__query_message(s, HC__M_STALL_REPORT, q->key, 16 + 4 * HC__LISTED + r->text_len, &p);
    if (!bytes)
        return;
    p = hc__write8(p, r->reporter);
    p = hc__write32(p, r->awaited);
    p = hc__write_ranks(p, r->ranks, r->nranks);
    p = hc__write32(p, r->text_len);
    p = hc__write_bytes(p, r->text, r->text_len);
    hc__send_down(s->engine, s->children[source - 1].rank, bytes, (size_t)(p - bytes));
}

void hc__report_down(hc__set *s, const hc__query *q, const hc__report *r) {
    hc__report copy = *r;
    for (uint32_t source = 0; source < hc__sources(s); source++) {
        if (!hc__query_asks(q, source))
            continue;
        copy.reporter = r->reporter && source == q->first_asker;
        if (source == 0)
            tell_own_waiter(s, q->key, &copy);
        else
            send_report(s, q, source, &copy);
    }
}

void hc__report_late(hc__set *s, const uint64_t key[2], const hc__report *r) {
    uint32_t name = hc__name_find(s, key);
    uint64_t ticket = hc__query_is_join(key) ? s->joins.ticket : name == HC__NONE ? 0 : s->names.at[name].ticket;
    if (ticket && ticket == s->stall.asked_ticket)
        tell_own_waiter(s, key, r);
}

void hc__report_unanswered(hc__set *s, const uint64_t key[2]) {
    char buffer[HC__TEXT];
    hc__text words = hc__text_on(buffer, sizeof buffer);
    if (s->stall.named_silent || !put_wait(s, &words, key))
        return;
    hc__put(&words, "; which ranks it waits for is not known: no answer came through ");
    put_world_rank(s, &words, s->parent);
    put_silent(s, &words);
    hc_action *action = hc__act(s->engine, HC_AC_STALLED);
    action->set = s->id;
    action->text = hc__scratch_text(s->engine, buffer);
    action->reporter = 1;
}
