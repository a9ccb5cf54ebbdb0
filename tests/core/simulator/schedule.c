/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c - what happens next: one of the events that can, at random, with a bias for every rank and kind.
 *
 * Time is virtual and local: a timer is just an event that may fire, whenever chance wants it to. So a run
 * explores orders that real clocks produce once in a year.
 */
#include "machine.h"

#include <string.h>

static void count_enabled(sim_machine *m, int rank) {
    sim_rank *k = &m->rank[rank];
    memset(k->enabled, 0, sizeof k->enabled);
    k->dirty = 0;
    if (k->dead)
        return;
    int deaf = m->program->lazy && k->outstanding == 0;
    k->enabled[SIM_EV_MESSAGE] = deaf ? 0 : k->ninbox;
    k->enabled[SIM_EV_SENT] = (uint32_t)k->nsent;
    k->enabled[SIM_EV_TIMER] = k->wake_at < SIM_FAR;
    k->enabled[SIM_EV_FAIL] = k->fail_peer >= 0;
    k->enabled[SIM_EV_SETS] = sim_sets_due(m, rank);
    for (int t = 0; t < m->program->threads[rank]; t++)
        k->enabled[SIM_EV_THREAD] += (uint32_t)sim_thread_can(m, rank, t);
    for (int s = 0; s < m->program->nsets; s++)
        k->enabled[SIM_EV_DONE] += !k->failed && k->done[s].head < k->done[s].n;
}

/* Picks a rank by its weight among those where something can happen; -1: nowhere. */
static int pick_rank(sim_machine *m) {
    uint32_t total = 0, weight[SIM_RANKS];
    for (int r = 0; r < m->program->ranks; r++) {
        sim_rank *k = &m->rank[r];
        if (k->dirty)
            count_enabled(m, r);
        int any = 0;
        for (int e = 0; e < SIM_EV_KINDS; e++)
            any |= k->enabled[e] != 0;
        weight[r] = any ? m->program->weight[r] : 0;
        total += weight[r];
    }
    if (!total)
        return -1;
    uint32_t u = sim_below(m->rng, total);
    int r = 0;
    while (u >= weight[r])
        u -= weight[r++];
    return r;
}

static int pick_kind(sim_machine *m, int rank) {
    const sim_rank *k = &m->rank[rank];
    uint32_t total = 0;
    for (int e = 0; e < SIM_EV_KINDS; e++)
        total += k->enabled[e] ? m->program->kind_weight[e] : 0;
    uint32_t u = sim_below(m->rng, total);
    for (int e = 0;; e++) {
        uint32_t w = k->enabled[e] ? m->program->kind_weight[e] : 0;
        if (u < w)
            return e;
        u -= w;
    }
}

static void fire(sim_machine *m, int rank, int kind) {
    sim_rank *k = &m->rank[rank];
    int u = (int)sim_below(m->rng, k->enabled[kind]);
    hc_event e = {.peer = -1};
    switch (kind) {
    case SIM_EV_MESSAGE:
        sim_deliver(m, k->inbox[u], rank);
        break;
    case SIM_EV_SENT:
        e.kind = HC_EV_SENT;
        e.peer = k->sent[u];
        k->sent[u] = k->sent[--k->nsent];
        if (sim_feed(m, rank, &e))
            sim_break(m, "rank %d: SENT refused", rank);
        break;
    case SIM_EV_TIMER:
        e.kind = HC_EV_TICK;
        if (k->now < k->wake_at)
            k->now = k->wake_at;
        if (sim_feed(m, rank, &e))
            sim_break(m, "rank %d: TICK refused", rank);
        break;
    case SIM_EV_THREAD:
        for (int t = 0; t < m->program->threads[rank]; t++)
            if (sim_thread_can(m, rank, t) && u-- == 0) {
                sim_thread_step(m, rank, t);
                break;
            }
        break;
    case SIM_EV_DONE:
        for (int s = 0; s < m->program->nsets; s++)
            if (k->done[s].head < k->done[s].n && u-- == 0) {
                sim_report_done(m, rank, s);
                break;
            }
        break;
    case SIM_EV_FAIL:
        sim_inject_failures(m, rank);
        break;
    default:
        sim_change_set(m, rank, u);
    }
    k->dirty = 1;
}

int sim_machine_run(sim_machine *m, uint64_t limit) {
    while (!m->broken) {
        int rank = pick_rank(m);
        if (rank < 0)
            return 1;
        if (limit-- == 0) {
            sim_break(m, "livelock: still busy after %llu events", (unsigned long long)m->steps);
            return 0;
        }
        m->steps++;
        fire(m, rank, pick_kind(m, rank));
    }
    return 0;
}
