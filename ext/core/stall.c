/* SPDX-License-Identifier: Apache-2.0
 *
 * stall.c - reports long waits, and breaks the World when a wait exceeds the limit.
 *
 * The clock of a request starts when a caller begins to wait. If the request is not agreed yet, this rank asks over the
 * tree which ranks are awaited (stall_query.c). If it is agreed and does not end, the data transport is at fault.
 *
 * A stopped or unreachable rank cannot answer. So each rank also reports the ranks without a sign of life, as soon as
 * its driver knows them (HC_EV_SILENT).
 */
#include "core/stall.h"

#include "core/actions.h"
#include "core/complete.h"
#include "core/describe.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/query.h"
#include "core/stall_query.h"
#include "core/state.h"
#include "core/text.h"

#define MOST_DOUBLINGS 6 /* of the time from one report to the next */

/* The target of a wait: the oldest raised request with a waiter, else the join. */
typedef struct target {
    uint64_t ticket, since; /* ticket 0: nothing */
    const hc__name *record; /* NULL: the join */
} target;

static target find_target(const hc__set *s) {
    uint32_t end = s->pending.nwaited ? s->pending.unraised : s->pending.oldest;
    for (uint32_t name = s->pending.oldest; name != HC__NONE && name != end; name = s->names.at[name].newer) {
        const hc__name *record = &s->names.at[name];
        if (record->waited)
            return (target){.ticket = record->ticket, .since = record->since, .record = record};
    }
    return (target){.ticket = s->joins.ticket, .since = s->joins.since};
}

static void describe_target(hc__text *text, const target *t) {
    if (t->record)
        hc__describe(text, &t->record->mine->request);
    else
        hc__put(text, "join");
}

static uint64_t ask_time(const hc__set *s, const target *t) {
    uint64_t warning = s->engine->config.stall_warning;
    if (!warning)
        return HC__NEVER;
    return s->stall.asked_ticket == t->ticket ? s->stall.next_ask : hc__later(t->since, warning);
}

static uint64_t limit_time(const hc__set *s, uint64_t since) {
    uint64_t limit = s->engine->config.stall_limit;
    return limit ? hc__later(since, limit) : HC__NEVER;
}

static uint64_t warn_time(const hc__set *s, const hc__running *running) {
    uint64_t warning = s->engine->config.stall_warning;
    return warning ? hc__later(running->started, warning << running->warnings) : HC__NEVER;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t hc__stall_deadline(const hc__set *s) {
    uint64_t due = hc__query_deadline(s);
    target t = find_target(s);
    if (t.ticket)
        due = earlier(due, earlier(ask_time(s, &t), limit_time(s, t.since)));
    if (s->batches.running)
        due = earlier(due, earlier(warn_time(s, s->batches.running), limit_time(s, s->batches.running->started)));
    return due;
}

static void give_up(hc__set *s, const char *subject, uint64_t since, const char *why) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    hc__put(&text, subject);
    hc__put(&text, why);
    hc__put_seconds(&text, s->engine->now - since);
    hc__put(&text, ", beyond the stall limit");
    if (s->engine->silent) {
        hc__put(&text, "; ");
        hc__put(&text, s->engine->silent);
    } else if (s->stall.last_report) {
        hc__put(&text, "; last report: ");
        hc__put(&text, s->stall.last_report);
    }
    hc__fail(s->engine, HC_STALLED, -1, buffer, -1);
}

static void describe_running(const hc__set *s, hc__text *text) {
    if (!s->batches.running->nnames) {
        hc__put(text, "a batch without a request of this rank");
        return;
    }
    hc__describe(text, &s->names.at[s->batches.running->names[0]].mine->request);
    if (s->batches.running->nnames > 1) {
        hc__put(text, " and ");
        hc__put_int(text, s->batches.running->nnames - 1);
        hc__put(text, " more of its batch");
    }
}

/* Reports `text`. If there are silent ranks, adds them, every rank prints, and the result is 1; else a rank prints if
 * `prints`. */
static uint8_t report(hc__set *s, hc__text *text, int prints) {
    const char *silent = s->engine->silent;
    if (silent) {
        hc__put(text, "; ");
        hc__put(text, silent);
    }
    hc_action *action = hc__act(s->engine, HC_AC_STALLED);
    action->set = s->id;
    action->text = hc__scratch_text(s->engine, text->at);
    action->reporter = silent || prints;
    return silent != NULL;
}

static void report_running(hc__set *s) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    describe_running(s, &text);
    hc__put(&text, " was agreed by all ranks but its data has been moving for ");
    hc__put_seconds(&text, s->engine->now - s->batches.running->started);
    s->batches.running->named_silent = report(s, &text, s->set_rank == 0);
}

static void warn_running(hc__set *s) {
    if (s->batches.running->warnings < MOST_DOUBLINGS)
        s->batches.running->warnings++;
    report_running(s);
}

static void report_target(hc__set *s, const target *t) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    describe_target(&text, t);
    hc__put(&text, " has waited ");
    hc__put_seconds(&text, s->engine->now - t->since);
    s->stall.named_silent = report(s, &text, 0);
}

static void ask(hc__set *s, const target *t) {
    s->stall.asked_times = s->stall.asked_ticket == t->ticket ? s->stall.asked_times + 1 : 0;
    s->stall.asked_ticket = t->ticket;
    uint32_t doublings = s->stall.asked_times < MOST_DOUBLINGS ? s->stall.asked_times + 1 : MOST_DOUBLINGS;
    s->stall.next_ask = hc__later(s->engine->now, s->engine->config.stall_warning << doublings);
    s->stall.named_silent = 0;
    if (s->engine->silent)
        report_target(s, t);
    hc__stall_query(s, 0, t->record ? t->record->key : hc__join_key);
}

void hc__stall_tick(hc__set *s) {
    char buffer[HC__TEXT];
    hc__text subject = hc__text_on(buffer, sizeof buffer);
    uint64_t now = s->engine->now;
    target t = find_target(s);
    if (t.ticket && limit_time(s, t.since) <= now) {
        describe_target(&subject, &t);
        give_up(s, buffer, t.since, " has waited ");
        return;
    }
    if (s->batches.running && limit_time(s, s->batches.running->started) <= now) {
        describe_running(s, &subject);
        give_up(s, buffer, s->batches.running->started, " was agreed, but its data has been moving for ");
        return;
    }
    if (s->batches.running && warn_time(s, s->batches.running) <= now)
        warn_running(s);
    if (t.ticket && ask_time(s, &t) <= now)
        ask(s, &t);
    hc__stall_query_tick(s);
}

/* Repeats the reports that did not name the silent ranks, which are known only now. */
static void report_late(hc__set *s) {
    target t = find_target(s);
    if (t.ticket && t.ticket == s->stall.asked_ticket && !s->stall.named_silent)
        report_target(s, &t);
    if (s->batches.running && s->batches.running->warnings && !s->batches.running->named_silent)
        report_running(s);
}

void hc__stall_silent(hc_engine *e, const char *silent) {
    if (!silent || e->failure.failed) {
        hc__free(e, e->silent, HC__TEXT);
        e->silent = NULL;
        return;
    }
    if (!e->silent && !(e->silent = hc__alloc(e, HC__TEXT)))
        return;
    hc__text text = hc__text_on(e->silent, HC__TEXT / 2);
    hc__put(&text, silent);
    for (uint32_t i = 0; i < e->nsets; i++)
        if (e->sets[i])
            report_late(e->sets[i]);
}
