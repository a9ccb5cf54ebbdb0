/* SPDX-License-Identifier: Apache-2.0
 *
 * stall_query.c - finds the awaited ranks. A waiting rank sends a query up the tree, the root sends probes down, the
 * nodes add up the answers on the way to the root, and the root reports to all ranks that asked.
 *
 *     STALL_QUERY   child -> parent ... root     key: a rank has waited long for this item
 *     STALL_PROBE   parent -> child              key, time to answer; to children that lack the item
 *     STALL_ANSWER  child -> parent              key, how many lack it, how many are silent, a bounded list
 *     STALL_REPORT  parent -> child that asked   key, reporter, how many, the list, text
 *
 * Nothing is kept or sent before a rank asks. A child that does not answer in time is reported as silent, with its
 * whole subtree.
 */
#include "core/stall_query.h"

#include "core/actions.h"
#include "core/names.h"
#include "core/query.h"
#include "core/raise.h"
#include "core/report.h"
#include "core/state.h"
#include "core/text.h"
#include "core/tree.h"
#include "core/wire.h"

/* ---- sending ------------------------------------------------------------------------------------- */

static void send_query(hc__set *s, const hc__query *q) {
    uint8_t *p, *bytes = hc__query_message(s, HC__M_STALL_QUERY, q->key, 0, &p);
    if (bytes)
        hc__send_up(s->engine, s->parent, bytes, (size_t)(p - bytes));
}

static void send_probe(hc__set *s, const hc__query *q, uint32_t source, uint64_t budget) {
    uint8_t *p, *bytes = hc__query_message(s, HC__M_STALL_PROBE, q->key, 8, &p);
    if (!bytes)
        return;
    p = hc__write64(p, budget);
    hc__send_down(s->engine, s->children[source - 1].rank, bytes, (size_t)(p - bytes));
}

static void send_answer(hc__set *s, const hc__query *q) {
    uint8_t *p, *bytes = hc__query_message(s, HC__M_STALL_ANSWER, q->key, 16 + 8 * HC__LISTED, &p);
    if (!bytes)
        return;
    p = hc__write32(p, q->lacking);
    p = hc__write32(p, q->silent);
    p = hc__write32(p, (uint32_t)q->silent_rank);
    p = hc__write_ranks(p, q->ranks, q->nranks);
    for (uint32_t i = 0; i < q->nranks; i++)
        p = hc__write32(p, (uint32_t)q->world_ranks[i]);
    hc__send_up(s->engine, s->parent, bytes, (size_t)(p - bytes));
}

/* ---- collecting ---------------------------------------------------------------------------------- */

static void list_rank(hc__query *q, int32_t rank, int32_t world_rank) { /* keeps the lowest ranks, in ascending order */
    uint32_t at = q->nranks;
    while (at > 0 && q->ranks[at - 1] > rank)
        at--;
    if (at == HC__LISTED)
        return;
    uint32_t last = q->nranks < HC__LISTED ? q->nranks++ : HC__LISTED - 1;
    for (; last > at; last--) {
        q->ranks[last] = q->ranks[last - 1];
        q->world_ranks[last] = q->world_ranks[last - 1];
    }
    q->ranks[at] = rank;
    q->world_ranks[at] = world_rank;
}

/* 1: a report of this stall was printed recently. The clocks of the waiters end at slightly different times and each
 * waiter asks, but only one answer should be printed. A waiter asks again after twice the warning time, so a lasting
 * stall is printed again. */
static int is_printed(hc__set *s, const uint64_t key[2]) {
    uint64_t now = s->engine->now, warning = s->engine->config.stall_warning;
    hc__printed *oldest = s->stall.printed;
    for (hc__printed *p = s->stall.printed; p < s->stall.printed + HC__PRINTED; p++) {
        if (p->at && p->key[0] == key[0] && p->key[1] == key[1] && now < hc__later(p->at, warning))
            return 1;
        oldest = p->at < oldest->at ? p : oldest;
    }
    *oldest = (hc__printed){.key = {key[0], key[1]}, .at = now};
    return 0;
}

static void conclude(hc__set *s, hc__query *q) {
    char buffer[HC__TEXT];
    for (uint32_t source = 1; source < hc__sources(s); source++)
        if (hc__query_has(hc__query_unanswered(s, q), source)) {
            if (!q->silent)
                q->silent_rank = s->children[source - 1].rank;
            q->silent += (uint32_t)s->children[source - 1].subtree;
        }
    q->collecting = 0;
    hc__query_clear_unanswered(s, q);
    q->deadline = hc__later(s->engine->now, 4 * hc__query_patience(s));
    s->engine->retime = 1;
    if (s->parent >= 0) {
        send_answer(s, q);
        if (q->first_asker == HC__NONE)
            hc__query_drop(s, q);
    } else if (q->lacking || q->silent) {
        hc__report r;
        hc__report_write(s, q, buffer, &r);
        r.reporter = !is_printed(s, q->key);
        hc__report_down(s, q, &r);
        hc__query_drop(s, q);
    } else {
        hc__query_drop(s, q);
    }
}

static int lacks(const hc__set *s, const uint64_t key[2], uint32_t source) {
    if (hc__tree_all_joined(s, source) || (source == 0 && s->joins.is_owed && hc__query_is_join(key)))
        return 0;
    uint32_t name = hc__query_is_join(key) ? HC__NONE : hc__name_find(s, key);
    return name == HC__NONE || !hc__tree_has(s, name, source);
}

static void collect(hc__set *s, hc__query *q, uint64_t budget) {
    q->collecting = 1;
    q->lacking = q->silent = q->nranks = q->unanswered = 0;
    q->deadline = hc__later(s->engine->now, budget);
    s->engine->retime = 1;
    hc__raise_all(s); /* the item may be pending here */
    if (lacks(s, q->key, 0)) {
        q->lacking = 1;
        list_rank(q, s->set_rank, s->engine->config.rank);
    }
    for (uint32_t source = 1; source < hc__sources(s); source++)
        if (lacks(s, q->key, source)) {
            hc__query_unanswered(s, q)[source / 64] |= 1ull << (source % 64);
            q->unanswered++;
            send_probe(s, q, source, budget / 4 * 3);
        }
    if (!q->unanswered)
        conclude(s, q);
}

void hc__stall_query(hc__set *s, uint32_t source, const uint64_t key[2]) {
    int known = hc__query_find(s, key) != NULL;
    hc__query *q = hc__query_find_or_make(s, key);
    if (!q)
        return;
    hc__query_add_asker(q, source);
    if (q->first_asker != HC__NONE)
        return;
    q->first_asker = source;
    if (s->parent >= 0)
        send_query(s, q);
    else if (!known)
        collect(s, q, hc__query_patience(s));
}

/* ---- receiving ----------------------------------------------------------------------------------- */

static int receive_query(hc__set *s, uint32_t source, const uint64_t key[2], hc__reader *r) {
    if (r->at != r->end)
        return HC_BAD_MESSAGE;
    hc__stall_query(s, source, key);
    return 0;
}

static int receive_probe(hc__set *s, const uint64_t key[2], hc__reader *r) {
    uint64_t budget = hc__read64(r);
    if (r->bad || r->at != r->end)
        return HC_BAD_MESSAGE;
    hc__query *q = hc__query_find_or_make(s, key);
    if (q && !q->collecting)
        collect(s, q, budget);
    return 0;
}

static void read_some_ranks(hc__reader *r, int32_t size, int32_t *ranks, uint32_t n) {
    if (n > HC__LISTED)
        r->bad = 1;
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        ranks[i] = (int32_t)hc__read32(r);
        if (ranks[i] < 0 || ranks[i] >= size)
            r->bad = 1;
    }
}

static uint32_t read_ranks(hc__reader *r, int32_t set_size, int32_t *ranks) {
    uint32_t n = hc__read32(r);
    read_some_ranks(r, set_size, ranks, n);
    return n;
}

static int receive_answer(hc__set *s, uint32_t source, const uint64_t key[2], hc__reader *r) {
    int32_t ranks[HC__LISTED], world_ranks[HC__LISTED];
    uint32_t subtree = (uint32_t)s->children[source - 1].subtree;
    uint32_t lacking = hc__read32(r), silent = hc__read32(r);
    int32_t silent_rank = (int32_t)hc__read32(r);
    uint32_t n = read_ranks(r, s->set_size, ranks);
    read_some_ranks(r, s->engine->config.size, world_ranks, n);
    if (r->bad || r->at != r->end || lacking > subtree || silent > subtree || n > lacking)
        return HC_BAD_MESSAGE;
    hc__query *q = hc__query_find(s, key);
    if (!q || !hc__query_has(hc__query_unanswered(s, q), source))
        return 0;
    hc__query_unanswered(s, q)[source / 64] &= ~(1ull << (source % 64));
    if (silent && !q->silent)
        q->silent_rank = silent_rank;
    q->lacking += lacking;
    q->silent += silent;
    for (uint32_t i = 0; i < n; i++)
        list_rank(q, ranks[i], world_ranks[i]);
    if (--q->unanswered == 0)
        conclude(s, q);
    return 0;
}

static int receive_report(hc__set *s, const uint64_t key[2], hc__reader *r) {
    hc__report report;
    report.reporter = hc__read8(r);
    report.awaited = hc__read32(r);
    report.nranks = read_ranks(r, s->set_size, report.ranks);
    report.text_len = hc__read32(r);
    report.text = (const char *)hc__read_bytes(r, report.text_len);
    if (!report.text || report.reporter > 1 || report.text_len >= HC__TEXT || r->at != r->end)
        return HC_BAD_MESSAGE;
    hc__query *q = hc__query_find(s, key);
    if (q && q->first_asker != HC__NONE) {
        hc__report_down(s, q, &report);
        hc__query_drop(s, q);
    } else {
        hc__report_late(s, key, &report);
    }
    return 0;
}

int hc__stall_query_receive(hc__set *s, int message, uint32_t source, const uint8_t *bytes, size_t nbytes) {
    hc__reader r = {.at = bytes, .end = bytes + nbytes};
    uint64_t key[2] = {hc__read64(&r)};
    key[1] = hc__read64(&r);
    if (r.bad)
        return HC_BAD_MESSAGE;
    if (s->end.stopped)
        return 0;
    switch (message) {
    case HC__M_STALL_QUERY:
        return receive_query(s, source, key, &r);
    case HC__M_STALL_PROBE:
        return receive_probe(s, key, &r);
    case HC__M_STALL_ANSWER:
        return receive_answer(s, source, key, &r);
    default:
        return receive_report(s, key, &r);
    }
}

/* ---- time, and the end --------------------------------------------------------------------------- */

void hc__stall_query_tick(hc__set *s) {
    hc__query *next;
    for (hc__query *q = s->stall.queries; q; q = next) {
        next = q->next;
        if (q->deadline > s->engine->now)
            continue;
        if (q->collecting) {
            conclude(s, q);
        } else {
            if (s->parent >= 0 && hc__query_asks(q, 0))
                hc__report_unanswered(s, q->key);
            hc__query_drop(s, q);
        }
    }
}
