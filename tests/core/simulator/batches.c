/* SPDX-License-Identifier: Apache-2.0
 *
 * batches.c - the data plane of a simulated run. It moves nothing, but compares everything that the members
 * must have in common when they move it. A batch is done when every member has started it.
 *
 * A stream is what executes in the order in which it was started: one per set. With one for all sets of a rank
 * (one_stream) a different order of two sets is a deadlock, as it would be on a device.
 */
#include "machine.h"

#include <string.h>

static int find_name(const sim_set *s, const hc_request *q) {
    for (int k = 0; k < s->names; k++)
        if ((uint32_t)s->name_len[k] == q->name_len && !memcmp(s->name[k], q->name, q->name_len))
            return k;
    return -1;
}

static int same_name(const hc_request *a, const hc_request *b) {
    return a->name_len == b->name_len && !memcmp(a->name, b->name, a->name_len);
}

/* The name of an item; -1: nobody has given it. A call without a name has another text, and a joined rank does not know
 * which call it is. */
enum { NOT_KNOWN = SIM_NAMES };
static int name_of(const sim_machine *m, const sim_set *set, const hc_item *it) {
    if (it->agreed->name_len < sizeof HC_ORDER_PREFIX ||
        memcmp(it->agreed->name, HC_ORDER_PREFIX, sizeof HC_ORDER_PREFIX - 1))
        return find_name(set, it->agreed);
    if (!it->ticket)
        return NOT_KNOWN;
    return it->ticket <= (uint64_t)m->program->nhandles ? m->program->handles[it->ticket - 1].name : -1;
}

static int tensors_equal(const hc_tensor *a, const sim_signature *s, int i, int joined) {
    if (a->dtype != s->tensor[i].dtype || a->ndim != s->tensor[i].ndim)
        return 0;
    for (int d = 0; d < a->ndim; d++) {
        int own_rows = d == 0 && sim_own_rows(s->operation);
        if (a->dims[d] != (own_rows && joined ? 0 : s->tensor[i].dims[d]))
            return 0;
    }
    return 1;
}

/* Is the agreed request what this rank asked for (for one that has joined: what another one asked for)? */
static int request_equal(const hc_request *q, const sim_signature *s, int joined) {
    if (q->operation != s->operation || q->reduction != s->reduction || q->memory != s->memory || q->wire != s->wire ||
        q->flags != s->flags || q->root != s->root || q->prescale != s->prescale || q->postscale != s->postscale ||
        q->ntensors != s->ntensors)
        return 0;
    for (int i = 0; i < s->ntensors; i++)
        if (!tensors_equal(&q->tensors[i], s, i, joined))
            return 0;
    return 1;
}

/* ---- starting ------------------------------------------------------------------------------------ */

/* Some other rank's request of this item, to compare a joined rank's view with; NULL: none has started. */
static const sim_signature *witness(const sim_machine *m, const sim_batch *b, uint32_t item) {
    for (int i = 0; i < SIM_RANKS; i++)
        if (b->member_started[i] && b->handles[i][item] >= 0)
            return &m->program->handles[b->handles[i][item]].signature;
    return NULL;
}

static void check_item(sim_machine *m, int rank, const hc_action *a, uint32_t i, sim_batch *b, int fresh) {
    const sim_set *set = &m->program->set[a->set];
    const hc_item *it = &a->items[i];
    int name = name_of(m, set, it), set_rank = set->set_rank[rank];
    sim_item *seen = &b->items[i];
    const char *where = "rank %d: batch %llu of set %u, item %u: %s";
#define WRONG(what)                                                               \
    {                                                                             \
        sim_break(m, where, rank, (unsigned long long)a->batch, a->set, i, what); \
        return;                                                                   \
    }
    if (name < 0)
        WRONG("a name that nobody gave")
    if (it->agreed->ticket)
        WRONG("the agreed request has a ticket")
    if (fresh)
        *seen = (sim_item){name, -1, it->first, it->count};
    if (seen->name == NOT_KNOWN)
        seen->name = name;
    if ((seen->name != name && name != NOT_KNOWN) || seen->first != it->first || seen->count != it->count)
        WRONG("differs between ranks")
    m->rank[rank].renamed[a->set] |= it->agreed->name_len > sizeof HC_ORDER_PREFIX &&
                                     !memcmp(it->agreed->name, HC_ORDER_PREFIX "#", sizeof HC_ORDER_PREFIX);
    b->handles[set_rank][i] = (int)it->ticket - 1;
    if (!it->ticket) {
        const sim_signature *other = witness(m, b, i);
        if (other && !request_equal(it->agreed, other, 1))
            WRONG("a joined rank sees another signature")
        return;
    }
    if (it->ticket > (uint64_t)m->program->nhandles)
        WRONG("a ticket that nobody gave")
    const sim_handle *h = &m->program->handles[it->ticket - 1];
    sim_result *r = &m->result[it->ticket - 1];
    if (h->rank != rank || h->set != a->set || h->name != name)
        WRONG("another request's ticket")
    if (r->state != SIM_PENDING && r->state != SIM_RUNNING)
        WRONG("a request that is not in flight")
    if (!request_equal(it->agreed, &h->signature, 0))
        WRONG("not the signature that this rank asked for")
    if (seen->occurrence >= 0 && seen->occurrence != h->occurrence)
        WRONG("different uses of the name have met")
    if (!it->count || it->first + it->count > h->signature.ntensors)
        WRONG("tensors that the request does not have")
    uint32_t carried = ((1u << it->count) - 1) << it->first;
    if (r->covered & carried)
        WRONG("tensors that an earlier batch has carried")
    seen->occurrence = h->occurrence;
    r->state = SIM_RUNNING;
    r->covered |= carried;
    r->running++;
#undef WRONG
}

/* One operation, root, dtype, reduction, wire and memory kind per batch; no more bytes than the threshold that holds,
 * but for a single tensor or a group, which is never cut by it. */
static void check_fusion(sim_machine *m, int rank, const hc_action *a) {
    uint64_t bytes = 0;
    const hc_request *q0 = a->items[0].agreed;
    for (uint32_t i = 0; i < a->nitems; i++) {
        const hc_item *it = &a->items[i];
        const hc_request *q = it->agreed;
        int group = (q->flags & HC_REQUEST_GROUP) || q->ntensors > 1;
        if (q->operation != q0->operation || q->memory != q0->memory || q->wire != q0->wire ||
            q->reduction != q0->reduction || q->root != q0->root)
            sim_break(m, "rank %d: batch %llu of set %u mixes operations", rank, (unsigned long long)a->batch, a->set);
        if (group && !same_name(q, q0))
            sim_break(m, "rank %d: batch %llu of set %u: a group is not alone", rank, (unsigned long long)a->batch,
                      a->set);
        for (uint32_t t = it->first; t < it->first + it->count; t++) {
            uint64_t n = hc_dtype_size(q->tensors[t].dtype);
            if (q->tensors[t].dtype != q0->tensors[a->items[0].first].dtype)
                sim_break(m, "rank %d: batch %llu of set %u mixes dtypes", rank, (unsigned long long)a->batch, a->set);
            for (int d = 0; d < q->tensors[t].ndim; d++)
                n *= (uint64_t)q->tensors[t].dims[d];
            bytes += n;
        }
    }
    if (a->nitems > 1 && bytes > m->rank[rank].tuning[a->set].fusion_threshold && !(q0->flags & HC_REQUEST_GROUP) &&
        !hc_operation_has(q0->operation, HC_OP_ROWS_DIFFER))
        sim_break(m, "rank %d: batch %llu of set %u has %llu bytes", rank, (unsigned long long)a->batch, a->set,
                  (unsigned long long)bytes);
}

static sim_stream *stream_of(sim_machine *m, int rank, int set) {
    return &m->rank[rank].stream[m->program->one_stream ? 0 : set];
}

static void execute(sim_machine *m);

void sim_start_batch(sim_machine *m, int rank, const hc_action *a) {
    const sim_set *set = &m->program->set[a->set];
    sim_log *log = &m->log[a->set];
    sim_rank *k = &m->rank[rank];
    if (a->set >= (uint32_t)m->program->nsets || set->set_rank[rank] < 0 || a->nitems == 0 ||
        a->batch != (uint64_t)k->started[a->set]) {
        sim_break(m, "rank %d: RUN of batch %llu of set %u is out of order", rank, (unsigned long long)a->batch,
                  a->set);
        return;
    }
    int fresh = k->started[a->set]++ == log->n;
    if (fresh) {
        log->batches = sim_grow(m->arena, log->batches, log->n, &log->room, sizeof *log->batches);
        sim_batch *b = memset(&log->batches[log->n++], 0, sizeof *b);
        b->items = sim_take(m->arena, sizeof *b->items * a->nitems);
        b->nitems = a->nitems;
        b->cached = a->cached;
    }
    sim_batch *b = &log->batches[a->batch];
    if (b->nitems != a->nitems || b->cached != a->cached) {
        sim_break(m, "rank %d: batch %llu of set %u differs between ranks", rank, (unsigned long long)a->batch, a->set);
        return;
    }
    b->handles[set->set_rank[rank]] = sim_take(m->arena, sizeof(int) * a->nitems);
    for (uint32_t i = 0; i < a->nitems && !m->broken; i++)
        check_item(m, rank, a, i, b, fresh);
    if (m->broken)
        return;
    check_fusion(m, rank, a);
    b->member_started[set->set_rank[rank]] = 1;
    b->started++;
    sim_stream *s = stream_of(m, rank, (int)a->set);
    s->items = sim_grow(m->arena, s->items, s->n, &s->room, sizeof *s->items);
    s->items[s->n++] = (struct sim_started){(uint8_t)a->set, (int)a->batch};
    execute(m);
}

/* ---- executing ----------------------------------------------------------------------------------- */

/* T2: at least one member has what is committed. */
static void check_given(sim_machine *m, int set, int batch) {
    const sim_batch *b = &m->log[set].batches[batch];
    for (uint32_t i = 0; i < b->nitems; i++)
        if (b->items[i].occurrence < 0)
            sim_break(m, "batch %d of set %d runs %s, which nobody has asked for", batch, set,
                      b->items[i].name == NOT_KNOWN ? "a call without a name"
                                                    : m->program->set[set].name[b->items[i].name]);
}

/* Executes every batch that is at the head of all its members' streams. */
static void execute(sim_machine *m) {
    for (int again = 1; again;) {
        again = 0;
        for (int r = 0; r < m->program->ranks; r++)
            for (int q = 0; q < m->program->nsets; q++) {
                sim_stream *s = &m->rank[r].stream[q];
                if (s->head == s->n)
                    continue;
                struct sim_started x = s->items[s->head];
                const sim_set *set = &m->program->set[x.set];
                int ready = set->members[0] == r && m->log[x.set].batches[x.batch].started == set->n;
                for (int i = 0; i < set->n && ready; i++) {
                    sim_stream *o = stream_of(m, set->members[i], x.set);
                    ready = o->head < o->n && o->items[o->head].set == x.set && o->items[o->head].batch == x.batch;
                }
                if (ready)
                    check_given(m, x.set, x.batch);
                for (int i = 0; i < set->n && ready; i++) {
                    sim_done *d = &m->rank[set->members[i]].done[x.set];
                    stream_of(m, set->members[i], x.set)->head++;
                    d->batch = sim_grow(m->arena, d->batch, d->n, &d->room, sizeof *d->batch);
                    d->batch[d->n++] = x.batch;
                    m->rank[set->members[i]].dirty = 1;
                    again = 1;
                }
            }
    }
}

void sim_report_done(sim_machine *m, int rank, int set) {
    sim_done *d = &m->rank[rank].done[set];
    int other = d->head + (int)sim_below(m->rng, (uint32_t)(d->n - d->head)), batch = d->batch[other];
    d->batch[other] = d->batch[d->head++]; /* reported in any order */
    const sim_batch *b = &m->log[set].batches[batch];
    const int *handles = b->handles[m->program->set[set].set_rank[rank]];
    int spoiled = sim_chance(m->rng, 1); /* only here: the output is too small, say */
    for (uint32_t i = 0; i < b->nitems; i++) {
        if (handles[i] < 0)
            continue;
        m->result[handles[i]].running--;
        m->result[handles[i]].spoiled |= (uint8_t)spoiled;
    }
    hc_event e = {.kind = HC_EV_BATCH_DONE,
                  .set = (uint32_t)set,
                  .peer = -1,
                  .batch = (uint64_t)batch,
                  .status = spoiled ? HC_RESULT_SIZE : HC_OK,
                  .text = spoiled ? "the output is too small" : NULL};
    if (sim_feed(m, rank, &e))
        sim_break(m, "rank %d: BATCH_DONE refused", rank);
    for (uint32_t i = 0; i < b->nitems && !m->broken; i++) {
        if (handles[i] < 0)
            continue;
        const sim_result *r = &m->result[handles[i]];
        const sim_handle *h = &m->program->handles[handles[i]];
        if (!r->running && r->covered == (1u << h->signature.ntensors) - 1 && r->state != SIM_ENDED)
            sim_break(m, "rank %d: %s is not COMPLETE after its last batch", rank, m->program->set[set].name[h->name]);
    }
}
