/* SPDX-License-Identifier: Apache-2.0
 *
 * stall.c - a wait that lasts reports itself, and ends the World beyond a limit.
 *
 * The clock of a request runs from when a caller began to wait. What is not agreed yet is asked about over the
 * tree (who.c); what is agreed and does not end is a matter of the data transport.
 */
#include "core/core.h"

/* What a caller waits for: the oldest raised request, else its join. */
typedef struct target {
    uint64_t ticket, since; /* ticket 0: nothing */
    const hc__name *record; /* NULL: the join */
} target;

static target find_target(const hc__set *s) {
    uint32_t end = s->nwaited ? s->unraised : s->oldest;
    for (uint32_t name = s->oldest; name != HC__NONE && name != end; name = s->names.at[name].newer) {
        const hc__name *record = &s->names.at[name];
        if (record->waited)
            return (target){.ticket = record->ticket, .since = record->since, .record = record};
    }
    return (target){.ticket = s->join_ticket, .since = s->joined_at};
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
    return s->asked_ticket == t->ticket ? s->next_ask : hc__later(t->since, warning);
}

static uint64_t limit_time(const hc__set *s, uint64_t since) {
    uint64_t limit = s->engine->config.stall_limit;
    return limit ? hc__later(since, limit) : HC__NEVER;
}

static uint64_t warn_time(const hc__set *s, const hc__running *running) {
    uint64_t warning = s->engine->config.stall_warning;
    return warning && !running->warned ? hc__later(running->started, warning) : HC__NEVER;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t hc__stall_deadline(const hc__set *s) {
    uint64_t due = hc__who_deadline(s);
    target t = find_target(s);
    if (t.ticket)
        due = earlier(due, earlier(ask_time(s, &t), limit_time(s, t.since)));
    if (s->running)
        due = earlier(due, earlier(warn_time(s, s->running), limit_time(s, s->running->started)));
    return due;
}

static void give_up(hc__set *s, const char *subject, uint64_t since, const char *why) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    hc__put(&text, subject);
    hc__put(&text, why);
    hc__put_seconds(&text, s->engine->now - since);
    hc__put(&text, ", beyond the stall limit");
    if (s->last_report) {
        hc__put(&text, "; last report: ");
        hc__put(&text, s->last_report);
    }
    hc__fail(s->engine, HC_STALLED, -1, buffer, -1);
}

static void describe_running(const hc__set *s, hc__text *text) {
    if (!s->running->nnames) {
        hc__put(text, "a batch without a request of this rank");
        return;
    }
    hc__describe(text, &s->names.at[s->running->names[0]].mine->request);
    if (s->running->nnames > 1) {
        hc__put(text, " and ");
        hc__put_int(text, s->running->nnames - 1);
        hc__put(text, " more of its batch");
    }
}

static void warn_running(hc__set *s) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    describe_running(s, &text);
    hc__put(&text, " was agreed by all ranks but its data has been moving for ");
    hc__put_seconds(&text, s->engine->now - s->running->started);
    s->running->warned = 1;
    hc_action *action = hc__act(s->engine, HC_AC_STALLED);
    action->set = s->id;
    action->text = hc__lend_text(s->engine, buffer);
    action->reporter = s->set_rank == 0;
}

static void ask(hc__set *s, const target *t) {
    static const uint64_t join_key[2] = {0, 0};
    s->asked_times = s->asked_ticket == t->ticket ? s->asked_times + 1 : 0;
    s->asked_ticket = t->ticket;
    uint32_t doublings = s->asked_times < 6 ? s->asked_times + 1 : 6;
    s->next_ask = hc__later(s->engine->now, s->engine->config.stall_warning << doublings);
    hc__who(s, 0, t->record ? t->record->key : join_key);
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
    if (s->running && limit_time(s, s->running->started) <= now) {
        describe_running(s, &subject);
        give_up(s, buffer, s->running->started, " was agreed, but its data has been moving for ");
        return;
    }
    if (s->running && warn_time(s, s->running) <= now)
        warn_running(s);
    if (t.ticket && ask_time(s, &t) <= now)
        ask(s, &t);
    hc__who_tick(s);
}
