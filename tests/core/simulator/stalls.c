/* SPDX-License-Identifier: Apache-2.0
 *
 * stalls.c - does a stall report name exactly the ranks that are awaited?
 */
#include "stalls.h"

#include "oracle.h"

#include <stdio.h>
#include <string.h>

static sim_ideal truth;                                         /* of the run in hand */
static int reports[SIM_SETS], printed[SIM_SETS][SIM_NAMES + 1]; /* the last: joins */

/* The members without which request `name` (-1: a join) cannot go on. */
static uint32_t awaited(const sim_machine *m, int set, int name, uint8_t *lacks) {
    const sim_set *s = &m->program->set[set];
    uint32_t n = 0;
    for (int i = 0; i < s->n; i++) {
        int r = s->members[i];
        lacks[i] = !truth.joined[set][r] && (name < 0 || !truth.pending[set][name][r]);
        n += lacks[i];
    }
    return n;
}

static int fits(const sim_machine *m, const hc_action *a, int name) {
    uint8_t lacks[SIM_RANKS];
    if (awaited(m, (int)a->set, name, lacks) != a->nawaited || a->nranks > a->nawaited || !a->nranks)
        return 0;
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (a->ranks[i] < 0 || a->ranks[i] >= m->program->set[a->set].n || !lacks[a->ranks[i]])
            return 0;
        for (uint32_t j = 0; j < i; j++)
            if (a->ranks[i] == a->ranks[j])
                return 0;
    }
    return 1;
}

/* Which request a report is about: a name, SIM_NAMES for a join, -1 if it is not so. */
static int subject(const sim_machine *m, int rank, const hc_action *a) {
    const sim_set *s = &m->program->set[a->set];
    for (int k = 0; k < s->names; k++) {
        char quoted[96];
        snprintf(quoted, sizeof quoted, "'%s'", s->name[k]);
        if (truth.pending[a->set][k][rank] && strstr(a->text, quoted) && fits(m, a, k))
            return k;
    }
    return truth.joined[a->set][rank] && fits(m, a, -1) ? SIM_NAMES : -1;
}

static void stalled(sim_machine *m, int rank, const hc_action *a) {
    int about = subject(m, rank, a);
    reports[a->set]++;
    if (about < 0)
        sim_break(m, "rank %d: a stall report of set %u that is not so: %s", rank, a->set, a->text);
    else if (a->reporter && printed[a->set][about]++)
        sim_break(m, "rank %d: a second rank is to print: %s", rank, a->text);
}

static void settle(sim_machine *m) {
    for (int again = 1; again && !m->broken;) {
        again = 0;
        for (int r = 0; r < m->program->ranks && !m->broken; r++) {
            sim_rank *k = &m->rank[r];
            while (k->nsent && !m->broken) {
                hc_event e = {.kind = HC_EV_SENT, .peer = k->sent[--k->nsent]};
                sim_feed(m, r, &e);
                again = 1;
            }
            while (k->ninbox && !m->broken)
                sim_deliver(m, k->inbox[0], r), again = 1;
        }
    }
}

void sim_stalls(sim_machine *m) {
    const sim_program *p = m->program;
    uint64_t before = m->messages;
    if (p->stop || p->fail)
        return;
    sim_ideal_run(p, m->arena, &truth);
    memset(reports, 0, sizeof reports);
    memset(printed, 0, sizeof printed);
    m->stalled = stalled;
    for (int r = 0; r < p->ranks && !m->broken; r++) {
        if (m->rank[r].wake_at == UINT64_MAX)
            continue;
        hc_event e = {.kind = HC_EV_TICK, .peer = -1};
        m->rank[r].now += SIM_FAR + ((uint64_t)1 << 40); /* beyond the warning of every set */
        sim_feed(m, r, &e);
    }
    settle(m);
    for (int r = 0; r < p->ranks && !m->broken; r++)
        for (int t = 0; t < p->threads[r]; t++) {
            int pc = m->rank[r].pc[t];
            if (pc == p->thread[r][t].n || reports[p->thread[r][t].ops[pc].set])
                continue;
            sim_break(m, "rank %d waits in set %d and nobody was told (%llu messages)", r, p->thread[r][t].ops[pc].set,
                      (unsigned long long)(m->messages - before));
        }
}
