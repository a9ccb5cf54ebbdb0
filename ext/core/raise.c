/* SPDX-License-Identifier: Apache-2.0
 *
 * raise.c - raises the pending requests of this rank. The rank chooses when: a caller waits (R1), a batch is full (R2,
 * enqueue.c), or a short time has passed (R3, step.c). Then it raises all pending requests, because a limit on raised
 * names would deadlock ranks that work in different orders.
 */
#include "core/raise.h"

#include "core/names.h"
#include "core/numbers.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/tree.h"

static void raise_first(hc__set *s, uint32_t name) {
    hc__name *record = &s->names.at[name];
    hc__sig *sig = record->mine;
    record->phase = HC__ON_FIRST;
    hc__tree_have_first(s, name, 0, sig, s->set_rank, sig->request.root == s->set_rank);
}

static void raise_one(hc__set *s, uint32_t name) {
    hc__name *record = &s->names.at[name];
    hc__numbers_raised(s, record->order != 0);
    if (record->refused) {
        record->phase = HC__BEHIND;
        s->pending.nbehind++;
        return;
    }
    int32_t slot = hc__slot_find(s, name, record->mine->bytes, record->mine->nbytes);
    record->raised_slot = slot;
    if (slot < 0) {
        raise_first(s, name);
        return;
    }
    record->phase = HC__ON_SLOT;
    hc__tree_have_slot(s, slot);
}

void hc__raise_behind(hc__set *s, uint32_t name) {
    raise_one(s, name);
    hc__tree_rise(s, 0, s->slots.nwords);
}

/* After JOIN this rank raises nothing more until all ranks have joined. */
void hc__raise_all(hc__set *s) {
    if (s->end.stopped || s->pending.unraised == HC__NONE)
        return;
    if (s->joins.joined) {
        s->joins.flush_owed = 1;
        return;
    }
    uint32_t name = s->pending.unraised;
    s->pending.unraised = HC__NONE;
    s->pending.unraised_bytes = 0;
    for (; name != HC__NONE; name = s->names.at[name].newer)
        raise_one(s, name);
    hc__tree_rise(s, 0, s->slots.nwords);
    s->engine->retime = 1;
}

void hc__raise_everywhere(hc_engine *e) {
    for (uint32_t i = 0; i < e->nsets; i++)
        if (e->sets[i])
            hc__raise_all(e->sets[i]);
}

static void mark(hc__set *s, hc__name *record) {
    record->waited = 1;
    record->since = s->engine->now;
    s->pending.nwaited++;
}

/* Goes from the newest request back to the first one that is already marked. */
static void mark_all(hc__set *s) {
    for (uint32_t name = s->pending.newest; name != HC__NONE && !s->names.at[name].waited;
         name = s->names.at[name].older)
        mark(s, &s->names.at[name]);
}

static void mark_ticket(hc__set *s, uint64_t ticket) {
    for (uint32_t name = s->pending.oldest; name != HC__NONE; name = s->names.at[name].newer)
        if (s->names.at[name].ticket == ticket && !s->names.at[name].waited)
            mark(s, &s->names.at[name]);
}

/* R1. With a ticket, starts only the stall clock of that request. */
void hc__flush(hc_engine *e, uint64_t ticket) {
    for (uint32_t i = 0; i < e->nsets; i++) {
        hc__set *s = e->sets[i];
        if (!s || s->pending.oldest == HC__NONE)
            continue;
        if (ticket)
            mark_ticket(s, ticket);
        else
            mark_all(s);
        hc__raise_all(s);
        e->retime = 1;
    }
}

/* L0: raises again what has another name now. */
void hc__raise_renamed(hc__set *s) {
    for (uint32_t name = s->pending.oldest; name != HC__NONE && name != s->pending.unraised;
         name = s->names.at[name].newer)
        if (s->names.at[name].phase == HC__PENDING)
            raise_one(s, name);
    hc__tree_rise(s, 0, s->slots.nwords);
}

/* L5: raises again the requests whose slots this entry has freed. */
void hc__raise_again(hc__set *s) {
    for (uint32_t name = s->pending.oldest; name != HC__NONE && name != s->pending.unraised;
         name = s->names.at[name].newer) {
        const hc__name *record = &s->names.at[name];
        if (record->phase != HC__ON_SLOT)
            continue;
        uint32_t slot = (uint32_t)record->raised_slot;
        if (hc__row(&s->slots, slot / 64)[HC__GONE] >> (slot % 64) & 1)
            raise_one(s, name);
    }
    hc__tree_rise(s, 0, s->slots.nwords);
}
