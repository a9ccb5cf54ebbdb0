/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.c - what the threads of a virtual rank do, one operation at a time, and failures from outside.
 */
#include "machine.h"

#include <string.h>

/* order.c uses these. The simulator has no shortcuts. */
uint64_t hc_handle_position(const hc_handle *h) {
    return h->position;
}

size_t hc_shortcut_bytes(int32_t local_size) {
    (void)local_size;
    return 0;
}

void hc_shortcut_renumber(hc_shortcut *shortcut, uint64_t position) {
    (void)shortcut, (void)position;
}

static void make_request(const sim_machine *m, int handle, uint64_t ticket, hc_request *q, hc_tensor *tensors) {
    const sim_program *p = m->program;
    const sim_handle *h = &p->handles[handle];
    const sim_signature *s = &h->signature;
    memset(q, 0, sizeof *q);
    q->ticket = ticket;
    q->name = p->set[h->set].name[h->name];
    q->name_len = (uint32_t)p->set[h->set].name_len[h->name];
    if (h->is_unnamed) {
        q->name = m->result[handle].name;
        q->name_len = (uint32_t)strlen(q->name);
        q->order = m->result[handle].order;
    }
    q->operation = s->operation;
    q->reduction = s->reduction;
    q->memory = s->memory;
    q->wire = s->wire;
    q->flags = s->flags;
    q->root = s->root;
    q->prescale = s->prescale;
    q->postscale = s->postscale;
    q->ntensors = s->ntensors;
    q->tensors = tensors;
    for (int i = 0; i < s->ntensors; i++)
        tensors[i] = (hc_tensor){.dtype = s->tensor[i].dtype, .ndim = s->tensor[i].ndim, .dims = s->tensor[i].dims};
}

/* Gives a call without a name the number that this rank has for it. */
static void number(sim_machine *m, int rank, int handle, int (*next)(hc_order *, char *)) {
    const sim_handle *h = &m->program->handles[handle];
    hc_order *order = &m->rank[rank].order[h->set];
    if (!h->is_unnamed)
        return;
    if (next(order, m->result[handle].name) < 0)
        sim_break(m, "rank %d: a call without a name has no number", rank);
    m->result[handle].order = hc_order_count(order);
    m->rank[rank].raises[h->set] += 4; /* RENUMBER before it is agreed and after that; and then it is raised anew */
}

/* The program has waited for a call or for a join. */
static void waited(sim_machine *m, int rank, int handle) {
    const sim_handle *h = &m->program->handles[handle];
    const sim_result *r = &m->result[handle];
    hc_order *order = &m->rank[rank].order[h->set];
    if (!h->is_unnamed && !h->is_join)
        return;
    hc_order_note(order,
                  &(hc_handle){.kind = h->is_join ? HC_EV_JOIN : HC_EV_ENQUEUE,
                               .status = r->status,
                               .position = r->position,
                               .request = {.name = r->name, .name_len = (uint32_t)strlen(r->name), .order = r->order}});
    if (h->is_unnamed)
        hc_order_end(order);
}

static void enqueue(sim_machine *m, int rank, int handle) {
    const sim_handle *h = &m->program->handles[handle];
    hc_request q;
    hc_tensor tensors[SIM_TENSORS];
    number(m, rank, handle, hc_order_begin);
    make_request(m, handle, (uint64_t)handle + 1, &q, tensors);
    hc_event e = {.kind = HC_EV_ENQUEUE, .set = h->set, .peer = -1, .request = &q};
    m->result[handle].state = SIM_PENDING;
    m->rank[rank].outstanding++;
    m->rank[rank].raises[h->set] +=
        2; /* a slot, up to where it conflicts and further as a conflict; then a first announcement */
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: ENQUEUE refused", rank);
}

/* A second request of the name before anything else can happen: refused at once, and the first unharmed. */
static void enqueue_again(sim_machine *m, int rank, int handle) {
    hc_request q;
    hc_tensor tensors[SIM_TENSORS];
    if (m->result[handle].state == SIM_ENDED)
        return; /* the name is free again */
    make_request(m, handle, SIM_DUPLICATE, &q, tensors);
    hc_event e = {.kind = HC_EV_ENQUEUE, .set = m->program->handles[handle].set, .peer = -1, .request = &q};
    m->duplicate = HC_OK;
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: ENQUEUE refused", rank);
    int stops = m->program->leave && m->duplicate == HC_SHUT_DOWN; /* the first one was too late for a rank that left */
    if (m->duplicate != HC_DUPLICATE_NAME && !stops && !m->rank[rank].failed)
        sim_break(m, "rank %d: the second request of a name in flight was not refused as DUPLICATE_NAME", rank);
}

static void refuse(sim_machine *m, int rank, int handle) {
    const sim_handle *h = &m->program->handles[handle];
    hc_request q;
    number(m, rank, handle, hc_order_refuse);
    make_request(m, handle, 0, &q, NULL);
    q.why = "this rank is unwilling";
    q.why_len = (uint32_t)strlen(q.why);
    m->result[handle].state = SIM_ENDED;
    m->result[handle].status = HC_INVALID;
    m->result[handle].spoiled = 1;
    m->result[handle].text = q.why;
    m->rank[rank].raises[h->set]++;
    if (sim_feed(m, rank, &(hc_event){.kind = HC_EV_REFUSE, .set = h->set, .peer = -1, .request = &q}))
        sim_break(m, "rank %d: REFUSE refused", rank);
}

static void join(sim_machine *m, int rank, sim_op op) {
    hc_event e = {.kind = HC_EV_JOIN, .set = op.set, .peer = -1, .ticket = (uint64_t)op.handle + 1};
    m->result[op.handle].state = SIM_PENDING;
    m->rank[rank].outstanding++;
    m->rank[rank].raises[op.set]++;
    m->rank[rank].joins[op.set]++;
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: JOIN refused", rank);
}

static void flush(sim_machine *m, int rank) {
    hc_event e = {.kind = HC_EV_FLUSH, .peer = -1};
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: FLUSH refused", rank);
}

static void status_event(sim_machine *m, int rank, int kind, int set) {
    hc_event e = {.kind = (uint8_t)kind, .set = (uint32_t)set, .peer = -1};
    if (kind == HC_EV_STOP)
        m->stops[set != 0]++;
    else
        m->preempts[set]++;
    for (int s = 0; s < m->program->nsets; s++) /* STOP of the World stops all of this rank's sets */
        if (s == set || kind == HC_EV_STOP)
            m->rank[rank].raises[s]++;
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: STOP or PREEMPT refused", rank);
}

/* The root of a set changes its knobs. */
static void tune(sim_machine *m, int rank, int set) {
    static const uint64_t thresholds[] = {0, 8, 40, 96, 1 << 20};
    hc_tuning tuning = {.fusion_threshold = thresholds[sim_below(m->rng, 5)],
                        .raise_bytes = thresholds[sim_below(m->rng, 5)],
                        .raise_window = sim_below(m->rng, 2000)};
    hc_event e = {.kind = HC_EV_TUNE, .set = (uint32_t)set, .peer = -1, .tuning = &tuning};
    int is_root = m->rank[rank].config[set].parent < 0;
    m->tunes[set]++;
    if (sim_feed(m, rank, &e) != (is_root ? 0 : HC_INVALID))
        sim_break(m, "rank %d: TUNE of set %d ended wrongly", rank, set);
}

/* The transport reports: here and now, or, when the rank dies, at each neighbour some time later. */
static void fail(sim_machine *m, int rank) {
    m->failing = 1;
    if (m->program->victim < 0) {
        hc_event e = {.kind = HC_EV_FAIL, .peer = -1, .status = HC_TRANSPORT, .text = "the cable was cut"};
        if (sim_feed(m, rank, &e))
            sim_break(m, "rank %d: FAIL refused", rank);
        return;
    }
    m->rank[rank].dead = 1;
    for (int r = 0; r < m->program->ranks; r++)
        if (r != rank && (m->program->stop || m->rank[rank].neighbour[r])) { /* a rank that has stopped need not tell */
            m->rank[r].fail_peer = rank;
            m->rank[r].dirty = 1;
        }
}

void sim_inject_failures(sim_machine *m, int rank) {
    hc_event e = {
        .kind = HC_EV_FAIL, .peer = m->rank[rank].fail_peer, .status = HC_PEER_LOST, .text = "a peer is gone"};
    m->rank[rank].fail_peer = -1;
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: FAIL refused", rank);
}

/* ---- sets come and go ---------------------------------------------------------------------------- */

void sim_add_set(sim_machine *m, int rank, int set) {
    m->rank[rank].tuning[set].fusion_threshold = m->program->threshold;
    hc_event e = {.kind = HC_EV_ADD_SET, .set = (uint32_t)set, .peer = -1, .config = &m->rank[rank].config[set]};
    m->rank[rank].added[set] = 1;
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: ADD_SET refused", rank);
}

static int removable(const sim_machine *m, int rank, int set) {
    const sim_rank *k = &m->rank[rank];
    if (set == 0 || !k->stopped[set] || k->removed[set] || k->done[set].head != k->started[set])
        return 0;
    for (int t = 0; t < m->program->threads[rank]; t++)
        if (k->pc[t] != m->program->thread[rank][t].n)
            return 0;
    return 1;
}

/* How many sets this rank may add or remove now. */
uint32_t sim_sets_due(const sim_machine *m, int rank) {
    uint32_t n = 0;
    for (int s = 0; s < m->program->nsets; s++)
        if (m->program->set[s].set_rank[rank] >= 0)
            n += !m->rank[rank].added[s] || removable(m, rank, s);
    return m->rank[rank].failed ? 0 : n;
}

void sim_change_set(sim_machine *m, int rank, int which) {
    for (int s = 0; s < m->program->nsets; s++) {
        int add = !m->rank[rank].added[s];
        if (m->program->set[s].set_rank[rank] < 0 || (!add && !removable(m, rank, s)) || which-- > 0)
            continue;
        if (add)
            sim_add_set(m, rank, s);
        else {
            hc_event e = {.kind = HC_EV_REMOVE_SET, .set = (uint32_t)s, .peer = -1};
            m->rank[rank].removed[s] = 1;
            if (sim_feed(m, rank, &e))
                sim_break(m, "rank %d: REMOVE_SET refused", rank);
        }
        return;
    }
}

/* ---- threads ------------------------------------------------------------------------------------- */

int sim_thread_can(const sim_machine *m, int rank, int thread) {
    const sim_thread *t = &m->program->thread[rank][thread];
    int pc = m->rank[rank].pc[thread];
    if (pc >= t->n)
        return 0;
    sim_op op = t->ops[pc];
    if (!m->rank[rank].added[op.set])
        return 0;
    if (op.kind != SIM_WAIT && op.kind != SIM_JOIN)
        return 1;
    return !m->rank[rank].waiting[thread] || m->result[op.handle].state == SIM_ENDED;
}

void sim_thread_step(sim_machine *m, int rank, int thread) {
    sim_rank *k = &m->rank[rank];
    sim_op op = m->program->thread[rank][thread].ops[k->pc[thread]];
    switch (op.kind) {
    case SIM_ENQUEUE:
        enqueue(m, rank, op.handle);
        break;
    case SIM_ENQUEUE_TWICE:
        enqueue(m, rank, op.handle);
        if (!m->broken)
            enqueue_again(m, rank, op.handle);
        break;
    case SIM_REFUSE:
        refuse(m, rank, op.handle);
        break;
    case SIM_WAIT:
    case SIM_JOIN:
        if (!k->waiting[thread]) { /* first it says that it waits, then it waits */
            k->waiting[thread] = 1;
            if (op.kind == SIM_JOIN)
                join(m, rank, op);
            else if (m->result[op.handle].state != SIM_ENDED)
                flush(m, rank);
            return;
        }
        k->waiting[thread] = 0;
        waited(m, rank, op.handle);
        break;
    case SIM_STOP:
        status_event(m, rank, HC_EV_STOP, op.set);
        break;
    case SIM_PREEMPT:
        status_event(m, rank, HC_EV_PREEMPT, op.set);
        break;
    case SIM_TUNE:
        tune(m, rank, op.set);
        break;
    default:
        fail(m, rank);
    }
    k->pc[thread]++;
}
