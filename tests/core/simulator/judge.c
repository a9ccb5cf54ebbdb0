/* SPDX-License-Identifier: Apache-2.0
 *
 * judge.c - the verdict on a finished run: outcomes like the oracle's, everything agreed equal on all ranks,
 * errors that say what they must, and silence.
 */
#include "judge.h"

#include "oracle.h"

#include <stdio.h>
#include <string.h>

/* ---- the same everywhere ------------------------------------------------------------------------- */

/* Handles that were in flight together: the same set, name and use of it (joins: the same phase). */
static int companions(const sim_handle *a, const sim_handle *b) {
    return a->set == b->set && a->is_join == b->is_join && a->name == b->name && a->occurrence == b->occurrence;
}

static int decided_by_log(int status) {
    return status == HC_OK || status == HC_MISMATCH || status == HC_ROOT_JOINED;
}

static void compare(sim_machine *m, int x, int y) {
    const sim_handle *h = &m->program->handles[x];
    const sim_result *a = &m->result[x], *b = &m->result[y];
    const char *name = h->is_join ? "join" : m->program->set[h->set].name[h->name];
    if (a->state != SIM_ENDED || b->state != SIM_ENDED || a->spoiled || b->spoiled)
        return;
    int other = m->program->handles[y].rank;
    int last = h->signature.flags & HC_REQUEST_LAST && (a->status == HC_SHUT_DOWN || b->status == HC_SHUT_DOWN);
    if (last) /* a joined rank need not ask for it, and stops the set because the other one leaves */
        return;
    if (a->status != b->status && !m->failing)
        sim_break(m, "%s of set %d ends as %s on rank %d and as %s on rank %d", name, h->set, hc_status_name(a->status),
                  h->rank, hc_status_name(b->status), other);
    if (a->status != b->status || !decided_by_log(a->status))
        return;
    if (a->position != b->position)
        sim_break(m, "%s of set %d: position %llu on rank %d, %llu on rank %d", name, h->set,
                  (unsigned long long)a->position, h->rank, (unsigned long long)b->position, other);
    if (a->value != b->value)
        sim_break(m, "%s of set %d: last rank %lld on rank %d, %lld on rank %d", name, h->set, (long long)a->value,
                  h->rank, (long long)b->value, other);
    int wordless = m->failing && (!a->text[0] || !b->text[0]); /* a rank without memory, say */
    if (a->status != HC_OK && strcmp(a->text, b->text) && !wordless)
        sim_break(m, "%s of set %d: error texts differ:\n  rank %d: %s\n  rank %d: %s", name, h->set, h->rank, a->text,
                  other, b->text);
}

static void same_everywhere(sim_machine *m) {
    const sim_program *p = m->program;
    for (int s = 0; s < p->nsets; s++) { /* compare each handle with the first of its companions */
        int first[2][SIM_NAMES][64];
        memset(first, 0, sizeof first);
        for (int x = 0; x < p->nhandles && !m->broken; x++) {
            const sim_handle *h = &p->handles[x];
            if (h->set != s)
                continue;
            int *slot = &first[h->is_join][h->name][(h->occurrence / 1000 * 32 + h->occurrence % 1000) % 64];
            if (m->result[x].state != SIM_ENDED)
                continue;
            if (*slot && companions(h, &p->handles[*slot - 1]))
                compare(m, *slot - 1, x);
            else
                *slot = x + 1;
        }
    }
}

/* ---- error texts --------------------------------------------------------------------------------- */

/* Does `number` stand in `text` by itself, not as a part of a longer number? */
static int has_number(const char *text, long long number) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", number);
    for (const char *at = strstr(text, digits); at; at = strstr(at + 1, digits)) {
        int before = at > text && at[-1] >= '0' && at[-1] <= '9';
        if (!before && !(at[n] >= '0' && at[n] <= '9'))
            return 1;
    }
    return 0;
}

/* Does the text name one field in which the two differ, with both values? */
static int names_both(const char *text, const sim_signature *a, const sim_signature *b) {
    if (a->operation != b->operation)
        return strstr(text, hc_operation_name(a->operation)) && strstr(text, hc_operation_name(b->operation));
    if (a->reduction != b->reduction)
        return strstr(text, hc_reduction_name(a->reduction)) && strstr(text, hc_reduction_name(b->reduction));
    if (a->root != b->root)
        return has_number(text, a->root) && has_number(text, b->root);
    if (a->flags != b->flags || a->ntensors != b->ntensors)
        return strstr(text, "group") && (a->ntensors == 1 || has_number(text, a->ntensors)) &&
               (b->ntensors == 1 || has_number(text, b->ntensors));
    for (int i = 0; i < a->ntensors; i++) {
        if (a->tensor[i].dtype != b->tensor[i].dtype)
            return strstr(text, hc_dtype_name(a->tensor[i].dtype)) && strstr(text, hc_dtype_name(b->tensor[i].dtype));
        if (a->tensor[i].ndim != b->tensor[i].ndim)
            return strstr(text, "shape") != NULL;
        for (int d = sim_own_rows(a->operation); d < a->tensor[i].ndim && d < b->tensor[i].ndim; d++)
            if (a->tensor[i].dims[d] != b->tensor[i].dims[d])
                return has_number(text, a->tensor[i].dims[d]) && has_number(text, b->tensor[i].dims[d]);
    }
    return 1; /* rank, flags or scale factors: any wording */
}

/* Does the text say that the rank of this handle has refused it, and why? */
static int names_refusal(const sim_machine *m, int handle, const char *text) {
    const sim_handle *h = &m->program->handles[handle];
    return h->signature.flags & HC_REQUEST_REFUSED && strstr(text, " has refused this call: this rank is unwilling") &&
           has_number(text, m->program->set[h->set].set_rank[h->rank]);
}

/* A mismatch names the tensor, the lowest rank, one that deviates from it, and both values. */
static void check_mismatch(sim_machine *m, int x) {
    const sim_program *p = m->program;
    const sim_handle *h = &p->handles[x];
    const sim_result *r = &m->result[x];
    int lowest = -1, good = 0;
    if (!strstr(r->text, p->set[h->set].name[h->name])) {
        sim_break(m, "MISMATCH text without the name: %s", r->text);
        return;
    }
    for (int y = 0; y < p->nhandles; y++) {
        if (!companions(h, &p->handles[y]) || m->result[y].state == SIM_UNBORN)
            continue;
        int rank = p->set[h->set].set_rank[p->handles[y].rank];
        if (lowest < 0 || rank < p->set[h->set].set_rank[p->handles[lowest].rank])
            lowest = y;
    }
    const sim_signature *a = &p->handles[lowest].signature;
    good = names_refusal(m, lowest, r->text);
    for (int y = 0; y < p->nhandles && !good; y++) {
        const sim_signature *b = &p->handles[y].signature;
        if (!companions(h, &p->handles[y]) || m->result[y].state == SIM_UNBORN || sim_signature_agrees(a, b))
            continue;
        good = names_refusal(m, y, r->text) ||
               (has_number(r->text, p->set[h->set].set_rank[p->handles[lowest].rank]) &&
                has_number(r->text, p->set[h->set].set_rank[p->handles[y].rank]) && names_both(r->text, a, b));
    }
    if (!good)
        sim_break(m, "MISMATCH text without the lowest rank, one that deviates and both values: %s", r->text);
}

/* All ranks name the first rank to leave in the same words. A request refused before the log spoke names none. */
static void one_leaver(sim_machine *m, int x, const char *said[SIM_SETS]) {
    int set = m->program->handles[x].set;
    const char *text = m->result[x].text;
    if (!strstr(text, "rank"))
        return;
    if (said[set] && strcmp(said[set], text))
        sim_break(m, "set %d was left in two ways:\n  %s\n  %s", set, said[set], text);
    said[set] = text;
}

static void error_texts(sim_machine *m) {
    const sim_program *p = m->program;
    const char *said[SIM_SETS] = {NULL};
    for (int x = 0; x < p->nhandles && !m->broken; x++) {
        if (m->result[x].state != SIM_ENDED || m->result[x].status == HC_OK)
            continue;
        if (m->failing && !m->result[x].text[0])
            continue;
        if (m->result[x].status == HC_MISMATCH)
            check_mismatch(m, x);
        else if (m->result[x].status == HC_SHUT_DOWN)
            one_leaver(m, x, said);
        else if (!m->result[x].text[0])
            sim_break(m, "%s without a text", hc_status_name(m->result[x].status));
    }
}

/* ---- like the oracle ----------------------------------------------------------------------------- */

static void like_the_oracle(sim_machine *m) {
    const sim_program *p = m->program;
    sim_ideal ideal;
    sim_ideal_run(p, m->arena, &ideal);
    for (int r = 0; r < p->ranks; r++)
        for (int t = 0; t < p->threads[r]; t++)
            if (ideal.pc[r][t] != m->rank[r].pc[t])
                sim_break(m, "rank %d thread %d ends at operation %d, on an ideal machine at %d", r, t,
                          m->rank[r].pc[t], ideal.pc[r][t]);
    for (int x = 0; x < p->nhandles && !m->broken; x++) {
        int got = m->result[x].state == SIM_ENDED ? m->result[x].status : SIM_UNKNOWN, want = ideal.outcome[x];
        if (got == want || (m->result[x].spoiled && want == HC_OK))
            continue;
        sim_break(m, "rank %d: %s of set %d is %s, on an ideal machine %s", p->handles[x].rank,
                  p->handles[x].is_join ? "join" : p->set[p->handles[x].set].name[p->handles[x].name],
                  p->handles[x].set, got == SIM_UNKNOWN ? "not ended" : hc_status_name(got),
                  want == SIM_UNKNOWN ? "not ended" : hc_status_name(want));
    }
}

static void all_threads_ended(sim_machine *m, const char *after) {
    for (int r = 0; r < m->program->ranks && !m->broken; r++)
        for (int t = 0; t < m->program->threads[r]; t++)
            if (!m->rank[r].dead && m->rank[r].pc[t] != m->program->thread[r][t].n)
                sim_break(m, "rank %d thread %d hangs at operation %d after %s", r, t, m->rank[r].pc[t], after);
    for (int x = 0; x < m->program->nhandles && !m->broken; x++)
        if (!m->rank[m->program->handles[x].rank].dead && m->result[x].state != SIM_ENDED)
            sim_break(m, "rank %d: ticket %d has no end after %s", m->program->handles[x].rank, x + 1, after);
}

static void all_stopped(sim_machine *m) {
    for (int s = 0; s < m->program->nsets && !m->broken; s++)
        for (int i = 0; i < m->program->set[s].n; i++)
            if (!m->rank[m->program->set[s].members[i]].stopped[s])
                sim_break(m, "rank %d: set %d is not STOPPED", m->program->set[s].members[i], s);
}

static void all_failed(sim_machine *m) {
    for (int r = 0; r < m->program->ranks; r++)
        if (!m->rank[r].dead && !m->rank[r].failed)
            sim_break(m, "rank %d does not know that the World is broken", r);
}

/* T11: a set names its calls anew only if two ranks have named one of them differently. */
static int names_differ(const sim_machine *m, int set) {
    const sim_program *p = m->program;
    for (int x = 0; x < p->nhandles; x++)
        for (int y = x + 1; y < p->nhandles && p->handles[x].is_unnamed && p->handles[x].set == set; y++)
            if (companions(&p->handles[x], &p->handles[y]) && m->result[x].order && m->result[y].order &&
                strcmp(m->result[x].name, m->result[y].name))
                return 1;
    return 0;
}

static void named_anew(sim_machine *m) {
    for (int s = 0; s < m->program->nsets && !m->broken; s++)
        for (int i = 0; i < m->program->set[s].n; i++)
            if (m->rank[m->program->set[s].members[i]].renamed[s] && !names_differ(m, s)) {
                sim_break(m, "set %d has named its calls anew, although the ranks name them alike", s);
                return;
            }
}

/* ---- batches, status and silence ----------------------------------------------------------------- */

static void batches_done(sim_machine *m) {
    for (int s = 0; s < m->program->nsets; s++)
        for (int i = 0; i < m->program->set[s].n && !m->broken; i++) {
            sim_rank *k = &m->rank[m->program->set[s].members[i]];
            if (k->started[s] != m->log[s].n || k->done[s].head != m->log[s].n)
                sim_break(m, "set %d has %d batches; rank %d has started %d and finished %d", s, m->log[s].n,
                          m->program->set[s].members[i], k->started[s], k->done[s].head);
        }
}

/* PREEMPT has one position on all members, if somebody asked for it, and else none. */
static void preempted_alike(sim_machine *m) {
    for (int s = 0; s < m->program->nsets; s++)
        for (int i = 0; i < m->program->set[s].n && !m->broken; i++) {
            uint64_t here = m->rank[m->program->set[s].members[i]].preempted[s];
            if (here && !m->preempts[s])
                sim_break(m, "set %d is PREEMPTED, and nobody has asked for it", s);
            else if (!m->program->stop && m->preempts[s] && !here)
                sim_break(m, "rank %d does not know of PREEMPT in set %d", m->program->set[s].members[i], s);
            else if (!m->program->stop && here != m->rank[m->program->set[s].members[0]].preempted[s])
                sim_break(m, "PREEMPT of set %d has not one position", s);
        }
}

/* The knobs of a set have changed at the same positions on all members, to the same values. */
static void tuned_alike(sim_machine *m) {
    for (int s = 0; s < m->program->nsets; s++)
        for (int i = 0; i < m->program->set[s].n && !m->broken; i++) {
            int rank = m->program->set[s].members[i], first = m->program->set[s].members[0];
            if (m->rank[rank].tuned[s] != m->rank[first].tuned[s])
                sim_break(m, "ranks %d and %d of set %d were not TUNED alike", first, rank, s);
        }
}

/* The uses of a name stand in the log in their order. */
static void positions_rise(sim_machine *m) {
    static uint64_t before[SIM_RANKS][SIM_SETS][SIM_NAMES];
    memset(before, 0, sizeof before);
    for (int x = 0; x < m->program->nhandles && !m->broken; x++) {
        const sim_handle *h = &m->program->handles[x];
        const sim_result *r = &m->result[x];
        if (r->state != SIM_ENDED || h->is_join || !decided_by_log(r->status))
            continue;
        uint64_t *last = &before[h->rank][h->set][h->name];
        if (r->position <= *last)
            sim_break(m, "rank %d: %s of set %d ends at position %llu behind one at %llu", h->rank,
                      m->program->set[h->set].name[h->name], h->set, (unsigned long long)r->position,
                      (unsigned long long)*last);
        *last = r->position;
    }
}

/* Time alone makes no messages; and no more were sent than entries to pass down, raises to pass up. */
static void silent(sim_machine *m) {
    const sim_program *p = m->program;
    uint64_t bound = 0, counted = 0, bytes = 0;
    for (int r = 0; r < p->ranks; r++) {
        hc_counters c;
        hc_engine_counters(m->rank[r].engine, &c);
        counted += c.messages_up + c.messages_down;
        bytes += c.bytes_up + c.bytes_down;
        bound += c.entries;
        for (int s = 0; s < p->nsets; s++) { /* a join may have to be raised again after any entry (L5) */
            uint64_t again = m->rank[r].joins[s] ? c.entries : 0;
            again += p->leave ? 2 : 0; /* LEAVE, and a STOP because of it */
            bound += (m->rank[r].raises[s] + again) * (uint64_t)m->rank[r].depth[s];
        }
    }
    if (m->messages > bound && !m->failing)
        sim_break(m, "%llu messages, at most %llu have a cause", (unsigned long long)m->messages,
                  (unsigned long long)bound);
    if (!m->failing && (counted != m->messages || bytes != m->bytes))
        sim_break(m, "the engines count %llu messages of %llu bytes, the edges %llu of %llu",
                  (unsigned long long)counted, (unsigned long long)bytes, (unsigned long long)m->messages,
                  (unsigned long long)m->bytes);
    uint64_t before = m->messages;
    for (int r = 0; r < p->ranks && !m->broken; r++) {
        if (m->rank[r].dead)
            continue;
        hc_event e = {.kind = HC_EV_TICK, .peer = -1};
        m->rank[r].now += (uint64_t)1 << 40;
        sim_feed(m, r, &e);
    }
    if (m->messages != before)
        sim_break(m, "messages although nothing can happen");
}

/* A rank whose program is over and whose sets wait for nobody holds nothing. */
static void quiet(sim_machine *m) {
    const sim_program *p = m->program;
    for (int r = 0; r < p->ranks; r++)
        for (int t = 0; t < p->threads[r]; t++)
            if (m->rank[r].pc[t] != p->thread[r][t].n)
                return;
    for (int x = 0; x < p->nhandles; x++)
        if (m->result[x].state != SIM_ENDED)
            return;
    for (int r = 0; r < p->ranks && !m->broken; r++)
        if (!hc_engine_quiet(m->rank[r].engine))
            sim_break(m, "rank %d is not quiet although all is done", r);
}

/* A rank that asks for something that another rank has left stops the set. */
static void count_stops(sim_machine *m) {
    for (int r = 0; r < m->program->ranks; r++)
        for (int s = 0; s < m->program->nsets; s++)
            m->stops[s != 0] += m->rank[r].stopped[s];
}

void sim_judge(sim_machine *m) {
    if (m->broken)
        return;
    count_stops(m);
    for (int r = 0; r < m->program->ranks; r++) {
        const char *wrong = hc_engine_validate(m->rank[r].engine);
        if (wrong)
            sim_break(m, "rank %d: %s", r, wrong);
    }
    same_everywhere(m);
    error_texts(m);
    if (m->failing && m->program->stop)
        all_threads_ended(m, "a failure"); /* it does not break a rank that had stopped before */
    else if (m->failing)
        all_failed(m), all_threads_ended(m, "a failure");
    else {
        batches_done(m);
        preempted_alike(m);
        tuned_alike(m);
        positions_rise(m);
        named_anew(m);
        if (m->stops[0])
            all_threads_ended(m, "stop"), all_stopped(m);
        else if (!m->stops[1])
            like_the_oracle(m); /* perhaps the program hung by itself before its stop */
        quiet(m);
    }
    if (!m->broken)
        silent(m);
}
