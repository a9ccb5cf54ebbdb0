/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.c - the world of one run: engines, what comes out of them, and the edges between them.
 */
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int sim_in_engine;

void sim_break(sim_machine *m, const char *format, ...) {
    if (m->broken)
        return;
    m->broken = 1;
    va_list list;
    va_start(list, format);
    vsnprintf(m->why, sizeof m->why, format, list);
    va_end(list);
}

/* ---- engines ------------------------------------------------------------------------------------- */

static void ended(sim_machine *m, int rank, const hc_action *a) {
    if (a->ticket == SIM_DUPLICATE) {
        m->duplicate = a->status;
        return;
    }
    if (a->ticket == 0 || a->ticket > (uint64_t)m->program->nhandles) {
        sim_break(m, "rank %d: COMPLETE of ticket %llu that nobody gave", rank, (unsigned long long)a->ticket);
        return;
    }
    const sim_handle *h = &m->program->handles[a->ticket - 1];
    sim_result *r = &m->result[a->ticket - 1];
    if (h->rank != rank || r->state == SIM_UNBORN || r->state == SIM_ENDED)
        sim_break(m, "rank %d: COMPLETE of ticket %llu that is not outstanding here", rank,
                  (unsigned long long)a->ticket);
    else if (a->status == HC_OK && !h->is_join && r->covered != (1u << h->signature.ntensors) - 1)
        sim_break(m, "rank %d: %s of set %d is OK, but not all of its tensors were in a batch", rank,
                  m->program->set[h->set].name[h->name], h->set);
    else if (r->spoiled && a->status != HC_RESULT_SIZE && !m->failing)
        sim_break(m, "rank %d: ticket %llu ends as %s, its batch as RESULT_SIZE", rank, (unsigned long long)a->ticket,
                  hc_status_name(a->status));
    else if (r->running && a->status == HC_OK)
        sim_break(m, "rank %d: ticket %llu is OK while a batch of it runs", rank, (unsigned long long)a->ticket);
    if (m->broken)
        return;
    r->state = SIM_ENDED;
    r->status = a->status;
    r->position = a->position;
    r->value = a->value;
    r->text = a->text ? sim_copy(m->arena, a->text, strlen(a->text) + 1) : "";
    m->rank[rank].outstanding--;
}

static void stopped(sim_machine *m, int rank, uint32_t set) {
    if (set >= (uint32_t)m->program->nsets || m->rank[rank].stopped[set]++)
        sim_break(m, "rank %d: set %u STOPPED twice or unknown", rank, set);
}

/* FNV-1a */
static uint64_t hash(uint64_t h, uint64_t value) {
    return (h ^ value) * 0x100000001b3ull;
}

static void tuned(sim_machine *m, int rank, const hc_action *a) {
    sim_rank *k = &m->rank[rank];
    if (!m->tunes[a->set])
        sim_break(m, "rank %d: set %u is TUNED, and nobody has asked for it", rank, a->set);
    k->tuning[a->set] = *a->tuning;
    uint64_t h = hash(hash(k->tuned[a->set], a->position), a->tuning->fusion_threshold);
    k->tuned[a->set] = hash(hash(h, a->tuning->raise_bytes), a->tuning->raise_window);
}

static void act(sim_machine *m, int rank, const hc_action *a) {
    sim_rank *k = &m->rank[rank];
    switch (a->kind) {
    case HC_AC_SEND:
        if (a->peer < 0 || a->peer >= m->program->ranks || a->peer == rank)
            sim_break(m, "rank %d: SEND to %d", rank, a->peer);
        else
            sim_send(m, rank, a->peer, a->bytes, a->nbytes);
        break;
    case HC_AC_RUN:
        sim_start_batch(m, rank, a);
        break;
    case HC_AC_COMPLETE:
        ended(m, rank, a);
        break;
    case HC_AC_WAKE_AT:
        k->wake_at = a->time;
        break;
    case HC_AC_STALLED:
        k->nstalled++;
        if (m->stalled)
            m->stalled(m, rank, a);
        break;
    case HC_AC_PREEMPTED:
        if (k->preempted[a->set])
            sim_break(m, "rank %d: set %u PREEMPTED twice", rank, a->set);
        k->preempted[a->set] = a->position + 1;
        break;
    case HC_AC_TUNED:
        tuned(m, rank, a);
        break;
    case HC_AC_STOPPED:
        stopped(m, rank, a->set);
        break;
    case HC_AC_FAILED:
        if (k->failed++)
            sim_break(m, "rank %d: FAILED twice", rank);
        if (!m->failing)
            sim_break(m, "rank %d: FAILED without a failure: %s", rank, a->text ? a->text : "");
        break;
    default:
        sim_break(m, "rank %d: unknown action %d", rank, a->kind);
    }
}

/* Where the World ends, requests end with it, and their arrays are their owners' again. */
static void check_failure(sim_machine *m, int rank, const hc_action *actions, size_t n) {
    int failed = 0, runs = 0;
    for (size_t i = 0; i < n; i++) {
        failed |= actions[i].kind == HC_AC_FAILED;
        runs |= actions[i].kind == HC_AC_RUN;
    }
    if (failed && runs)
        sim_break(m, "rank %d: RUN and FAILED in one step", rank);
}

int sim_feed(sim_machine *m, int rank, hc_event *e) {
    sim_rank *k = &m->rank[rank];
    const hc_action *actions = NULL;
    size_t n = 0;
    e->now = ++k->now;
    if (m->trace)
        sim_trace_event(m, rank, e);
    if (m->fed)
        m->fed(m->fed_arg, rank, e);
    sim_in_engine = 1;
    int status = hc_step(k->engine, e, &actions, &n);
    sim_in_engine = 0;
    if (m->trace && status)
        printf("        -> %s\n", hc_status_name(status));
    check_failure(m, rank, actions, n);
    for (size_t i = 0; i < n && !m->broken; i++) {
        if (m->trace)
            sim_trace_action(m, rank, &actions[i]);
        act(m, rank, &actions[i]);
    }
    const char *wrong = m->steps % 16 == 0 || m->trace ? hc_engine_validate(k->engine) : NULL;
    if (wrong)
        sim_break(m, "rank %d: %s", rank, wrong);
    k->dirty = 1;
    return status;
}

static void place(sim_machine *m, int set, const hc_tree_index *tree) {
    const sim_set *s = &m->program->set[set];
    for (int i = 0; i < s->n; i++) {
        hc_child children[SIM_RANKS];
        hc_set_config c;
        memset(&c, 0, sizeof c);
        hc_tree_place(tree, i, &c, children, SIM_RANKS);
        c.set = (uint32_t)set;
        c.children = children;
        int r = s->members[i];
        if (c.set_size != s->n || c.set_rank != i)
            sim_break(m, "hc_tree_place: wrong set rank or size");
        c.children = sim_copy(m->arena, children, sizeof *children * (size_t)c.nchildren);
        m->rank[r].config[set] = c;
        if (set == 0 || !m->program->late_sets)
            sim_add_set(m, r, set);
        for (int j = 0; j < c.nchildren; j++) {
            m->rank[r].neighbour[children[j].rank] = m->rank[children[j].rank].neighbour[r] = 1;
            m->rank[children[j].rank].depth[set] = -1 - r; /* parent, for now */
        }
    }
    for (int i = 0; i < s->n; i++) { /* depth: follow the parents up */
        int depth = 0;
        for (int r = s->members[i]; m->rank[r].depth[set] < 0; r = -1 - m->rank[r].depth[set])
            if (++depth > s->n) {
                sim_break(m, "hc_tree_place: a circle");
                return;
            }
        m->rank[s->members[i]].started[set] = depth; /* parked here until all depths are known */
    }
    for (int i = 0; i < s->n; i++) {
        m->rank[s->members[i]].depth[set] = m->rank[s->members[i]].started[set];
        m->rank[s->members[i]].started[set] = 0;
    }
}

int sim_machine_open(sim_machine *m, const sim_program *p, sim_arena *a, sim_random *rng) {
    m->program = p;
    m->arena = a;
    m->rng = rng;
    m->edge = sim_take(a, sizeof *m->edge * (size_t)p->ranks * (size_t)p->ranks);
    m->result = sim_take(a, sizeof *m->result * ((size_t)p->nhandles + 1));
    for (int r = 0; r < p->ranks; r++) {
        hc_engine_config c = {.rank = r,
                              .size = p->ranks,
                              .cache_capacity = p->capacity,
                              .fusion_threshold = p->threshold,
                              .raise_bytes = p->raise_bytes,
                              .raise_window = p->raise_window,
                              .stall_warning = p->stall ? SIM_FAR : 0};
        m->rank[r].engine = hc_engine_new(&c);
        m->rank[r].wake_at = UINT64_MAX;
        m->rank[r].fail_peer = -1;
        m->rank[r].now = sim_below(rng, 1000);
        if (!m->rank[r].engine)
            sim_break(m, "hc_engine_new: no memory");
    }
    for (int s = 0; s < p->nsets && !m->broken; s++) {
        int32_t nodes[SIM_RANKS];
        for (int i = 0; i < p->set[s].n; i++)
            nodes[i] = p->node_of[p->set[s].members[i]];
        hc_tree_index *tree = hc_tree_index_new(p->set[s].members, nodes, p->set[s].n, p->fanout);
        if (tree)
            place(m, s, tree);
        else
            sim_break(m, "hc_tree_index_new: no memory");
        hc_tree_index_free(tree);
    }
    return !m->broken;
}

void sim_machine_close(sim_machine *m) {
    for (int r = 0; r < m->program->ranks; r++)
        hc_engine_free(m->rank[r].engine);
}

/* ---- edges --------------------------------------------------------------------------------------- */

void sim_send(sim_machine *m, int from, int to, const uint8_t *bytes, size_t n) {
    sim_edge *e = &m->edge[from * m->program->ranks + to];
    sim_message *g = sim_take(m->arena, sizeof *g + n);
    sim_rank *k = &m->rank[from];
    memcpy(g->bytes, bytes, n);
    g->n = n;
    m->messages++;
    m->bytes += n;
    k->sent = sim_grow(m->arena, k->sent, k->nsent, &k->sent_room, 1);
    k->sent[k->nsent++] = (uint8_t)to;
    if (m->rank[to].dead)
        return; /* into the void */
    if (e->tail)
        e->tail->next = g;
    else {
        e->head = g;
        m->rank[to].inbox[m->rank[to].ninbox++] = (uint8_t)from;
    }
    e->tail = g;
    m->rank[to].dirty = 1;
}

void sim_deliver(sim_machine *m, int from, int to) {
    sim_edge *e = &m->edge[from * m->program->ranks + to];
    sim_message *g = e->head;
    sim_rank *k = &m->rank[to];
    e->head = g->next;
    if (!e->head) {
        e->tail = NULL;
        for (int i = 0; i < k->ninbox; i++)
            if (k->inbox[i] == from)
                k->inbox[i--] = k->inbox[--k->ninbox];
    }
    hc_event v = {.kind = HC_EV_MESSAGE, .peer = from, .bytes = g->bytes, .nbytes = g->n};
    int status = sim_feed(m, to, &v);
    if (status)
        sim_break(m, "rank %d: refused a message of rank %d: %s", to, from, hc_status_name(status));
}
