/* SPDX-License-Identifier: Apache-2.0
 *
 * fuse.c - cuts the agreed requests of an entry into batches. It uses only agreed signatures, so all ranks cut alike
 * (B1). Fusion of tensors follows Sergeev and Del Balso (Horovod, 2018).
 *
 * Cached requests come in the order of their slots, then first announcements in the order of the entry. Each goes to
 * the first batch of its class that has room, so a large tensor does not end the search (look-ahead). A group is cut by
 * dtype and never shares a batch. If an operation does not fuse, each tensor is a batch.
 */
#include "core/fuse.h"

#include "core/actions.h"
#include "core/complete.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/request.h"
#include "core/state.h"

typedef struct piece {
    uint32_t agreed, first, count; /* tensors [first, first + count) of an agreed request */
    uint32_t next;
} piece;

typedef struct cut {
    uint64_t fuse_class;
    uint64_t bytes;
    uint32_t head, tail, npieces;
} cut;

typedef struct plan {
    const hc__agreed *agreed;
    piece *pieces;
    cut *cuts;
    uint32_t npieces, ncuts;
    uint64_t threshold;
} plan;

/* ---- cutting ------------------------------------------------------------------------------------- */

static uint32_t new_cut(plan *p, uint64_t fuse_class) {
    p->cuts[p->ncuts] = (cut){.fuse_class = fuse_class, .head = HC__NONE, .tail = HC__NONE};
    return p->ncuts++;
}

static void add(plan *p, uint32_t to, uint32_t agreed, uint32_t first, uint32_t count, uint64_t bytes) {
    cut *c = &p->cuts[to];
    p->pieces[p->npieces] = (piece){.agreed = agreed, .first = first, .count = count, .next = HC__NONE};
    if (c->tail == HC__NONE)
        c->head = p->npieces;
    else
        p->pieces[c->tail].next = p->npieces;
    c->tail = p->npieces++;
    c->bytes += bytes;
    c->npieces++;
}

static void place(plan *p, uint32_t agreed) {
    const hc__sig *sig = p->agreed[agreed].sig;
    uint32_t at = 0;
    while (at < p->ncuts &&
           (p->cuts[at].fuse_class != sig->fuse_class || p->cuts[at].bytes + sig->payload > p->threshold))
        at++;
    if (at == p->ncuts)
        at = new_cut(p, sig->fuse_class);
    add(p, at, agreed, 0, 1, sig->payload);
}

static void place_group(plan *p, uint32_t agreed) {
    const hc_request *request = &p->agreed[agreed].sig->request;
    uint32_t cut_of[HC_DTYPE_COUNT];
    memset(cut_of, 0xff, sizeof cut_of); /* HC__NONE */
    for (uint32_t i = 0; i < request->ntensors; i++) {
        uint32_t *at = &cut_of[request->tensors[i].dtype];
        if (*at == HC__NONE)
            *at = new_cut(p, 0);
        const cut *c = &p->cuts[*at];
        piece *last = c->tail == HC__NONE ? NULL : &p->pieces[c->tail];
        if (last && last->first + last->count == i)
            last->count++;
        else
            add(p, *at, agreed, i, 1, 0);
    }
}

static void place_each(plan *p, uint32_t agreed) {
    for (uint32_t i = 0; i < p->agreed[agreed].sig->request.ntensors; i++)
        add(p, new_cut(p, 0), agreed, i, 1, 0);
}

/* ---- the items of a batch ------------------------------------------------------------------------ */

/* The agreed request with the rows that this rank has. */
static const hc_request *with_own_rows(hc__set *s, const hc_request *agreed, const hc__name *record) {
    size_t ndims = 0;
    for (uint32_t i = 0; i < agreed->ntensors; i++)
        ndims += agreed->tensors[i].ndim;
    hc_request *own = hc__scratch(s->engine,
                                  sizeof *own + agreed->ntensors * sizeof *agreed->tensors + ndims * sizeof(int64_t));
    if (!own)
        return agreed;
    hc_tensor *tensors = (hc_tensor *)(own + 1);
    int64_t *dims = (int64_t *)(tensors + agreed->ntensors);
    *own = *agreed;
    own->tensors = tensors;
    for (uint32_t i = 0; i < agreed->ntensors; i++) {
        tensors[i] = agreed->tensors[i];
        tensors[i].dims = memcpy(dims, agreed->tensors[i].dims, tensors[i].ndim * sizeof(int64_t));
        dims[0] = record->rows ? record->rows[i] : record->row;
        dims += tensors[i].ndim;
    }
    return own;
}

static hc_item item_of(hc__set *s, const hc__agreed *agreed, const piece *from) {
    hc_item item = {.agreed = &agreed->sig->request, .first = from->first, .count = from->count};
    if (agreed->name != HC__NONE) {
        const hc__name *record = &s->names.at[agreed->name];
        item.ticket = record->ticket;
        if (hc_operation_has(item.agreed->operation, HC_OP_ROWS_DIFFER))
            item.agreed = with_own_rows(s, item.agreed, record);
    }
    return item;
}

static hc__running *running_new(hc__set *s, uint32_t room) {
    hc__running *running = hc__alloc(s->engine, sizeof *running + room * sizeof running->names[0]);
    if (!running)
        return NULL;
    running->batch = s->batches.next++;
    running->started = s->engine->now;
    running->room = room;
    if (s->batches.running_last)
        s->batches.running_last->next = running;
    else
        s->batches.running = running;
    s->batches.running_last = running;
    return running;
}

static void note_name(hc__set *s, hc__running *running, uint32_t name) {
    if (name == HC__NONE || (running->nnames && running->names[running->nnames - 1] == name))
        return;
    running->names[running->nnames++] = name;
    s->names.at[name].batches++;
}

static void start(hc__set *s, const plan *p, const cut *c) {
    hc_item *items = hc__scratch(s->engine, c->npieces * sizeof *items);
    hc__running *running = items ? running_new(s, c->npieces) : NULL;
    if (!running)
        return;
    hc_action *action = hc__act(s->engine, HC_AC_RUN);
    action->set = s->id;
    action->batch = running->batch;
    action->items = items;
    action->cached = 1;
    for (uint32_t i = c->head; i != HC__NONE; i = p->pieces[i].next) {
        const hc__agreed *agreed = &p->agreed[p->pieces[i].agreed];
        items[action->nitems++] = item_of(s, agreed, &p->pieces[i]);
        action->cached &= agreed->cached;
        note_name(s, running, agreed->name);
    }
    hc_count(&s->engine->counters.batches, 1);
}

/* Finishes a request without data, which needs only the agreement. */
static void finish_at_once(hc__set *s, uint32_t name) {
    if (name != HC__NONE)
        hc__finish(s, name, HC_OK, "", s->position);
}

/* B2, B4: batches are numbered and start in the order of the log. */
void hc__fuse(hc__set *s, const hc__agreed *agreed, uint32_t n) {
    plan p = {.agreed = agreed, .threshold = s->tune.now.fusion_threshold};
    size_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most += agreed[i].sig->request.ntensors;
    p.pieces = hc__scratch(s->engine, (most + 1) * sizeof *p.pieces);
    p.cuts = hc__scratch(s->engine, (most + 1) * sizeof *p.cuts);
    if (!p.pieces || !p.cuts)
        return;
    for (uint32_t i = 0; i < n; i++) {
        int operation = agreed[i].sig->request.operation;
        if (agreed[i].sig->fuse_class)
            place(&p, i);
        else if (hc_operation_has(operation, HC_OP_NO_TENSORS))
            finish_at_once(s, agreed[i].name);
        else if (hc_operation_has(operation, HC_OP_FUSES))
            place_group(&p, i);
        else
            place_each(&p, i);
    }
    for (uint32_t i = 0; i < p.ncuts; i++)
        start(s, &p, &p.cuts[i]);
}
