/* SPDX-License-Identifier: Apache-2.0
 *
 * validate.c - checks the invariants of one engine, for tests. All of them hold between steps.
 */
#include "core/names.h"
#include "core/numbers.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/tree.h"

static const char *check_pending(const hc__set *s) {
    uint32_t before = HC__NONE, n = 0, waited = 0, unnamed = 0;
    int raised = 1;
    for (uint32_t name = s->pending.oldest; name != HC__NONE; before = name, name = s->names.at[name].newer) {
        const hc__name *record = &s->names.at[name];
        if (name == s->pending.unraised)
            raised = 0;
        if (record->older != before || n++ > s->names.count)
            return "the pending list is broken";
        if (!record->mine || record->ticket == 0)
            return "a pending name has no request";
        if (record->phase == HC__ABSENT || record->phase == HC__RUNNING)
            return "a name is pending and is not";
        if (record->phase == HC__BEHIND && !record->refused)
            return "a request is behind a refusal that there is not";
        waited += record->waited;
        unnamed += record->order != 0;
        if (raised == (record->phase == HC__PENDING))
            return "the raised requests are not the older ones";
    }
    if (waited != s->pending.nwaited)
        return "waiting requests are counted wrong";
    if (unnamed != s->pending.unnamed.requests || s->pending.unnamed.later > unnamed)
        return "requests without a name are counted wrong";
    return s->pending.newest == before ? NULL : "the pending list has another end";
}

static int own_bit(const hc__set *s, const hc__name *record) {
    uint32_t slot = (uint32_t)record->raised_slot;
    return hc__row(&s->slots, slot / 64)[HC__HAVE] >> (slot % 64) & 1;
}

/* A name has at most its maximum of slots, and no two with one signature. */
static const char *check_slots_of(const hc__set *s, uint32_t name) {
    const hc__name *record = &s->names.at[name];
    uint32_t n = 0;
    for (int32_t slot = record->slot; slot >= 0; slot = s->slots.at[slot].next) {
        const hc__sig *sig = s->slots.at[slot].sig;
        if (!sig || s->slots.at[slot].name != name || ++n > hc__slots_per_name(s))
            return "a name and its slots disagree";
        if (hc__slot_find(s, name, sig->bytes, sig->nbytes) != slot)
            return "two slots of a name have one signature";
    }
    if (record->phase == HC__ON_SLOT &&
        (record->raised_slot < 0 || !own_bit(s, record) ||
         !hc__sig_is(s->slots.at[record->raised_slot].sig, record->mine->bytes, record->mine->nbytes)))
        return "a request is on a slot that is not its own";
    return NULL;
}

static const char *check_names(const hc__set *s) {
    uint32_t count = 0, on_slot = 0, bits = 0;
    const char *wrong;
    for (uint32_t cell = 0; s->names.table && cell <= s->names.mask; cell++) {
        if (!s->names.table[cell])
            continue;
        uint32_t name = s->names.table[cell] - 1;
        const hc__name *record = &s->names.at[name];
        count++;
        if (hc__name_find(s, record->key) != name)
            return "a name cannot be found";
        if (record->slot < 0 && !record->first && !record->refused && record->phase == HC__ABSENT)
            return "a name is kept for nothing";
        if ((wrong = check_slots_of(s, name)))
            return wrong;
        if (record->phase == HC__ON_FIRST && (!record->first || !(record->first->have[0] & 1)))
            return "a raised first announcement is not in the tree";
        if (record->phase == HC__RUNNING && record->batches == 0)
            return "a request runs in no batch";
        on_slot += record->phase == HC__ON_SLOT;
    }
    for (uint32_t word = 0; word < s->slots.nwords; word++)
        for (uint64_t rest = hc__row(&s->slots, word)[HC__HAVE]; rest; rest &= rest - 1)
            bits++;
    if (on_slot != bits)
        return "own bits are not own requests";
    return count == s->names.count ? NULL : "names are counted wrong";
}

static const char *check_slots(const hc__set *s) {
    uint32_t used = 0, listed = 0;
    for (int32_t slot = s->slots.lru_oldest; slot >= 0 && listed <= s->slots.count; slot = s->slots.at[slot].newer)
        listed++;
    for (uint32_t word = 0; word < s->slots.nwords; word++) {
        const uint64_t *row = hc__row(&s->slots, word);
        for (uint32_t bit = 0; bit < 64; bit++) {
            int is_used = row[HC__USED] >> bit & 1;
            used += (uint32_t)is_used;
            if (is_used != (s->slots.at[64 * word + bit].sig != NULL))
                return "a slot is used and free";
        }
        for (uint32_t column = 0; column < s->slots.stride; column++)
            if (column != HC__USED && (row[column] & ~row[HC__USED]))
                return "T10: a free slot has a bit";
        if (row[HC__GONE])
            return "a slot is still going";
        if (row[HC__OUT] & row[HC__CONFLICT_SENT])
            return "T7: a slot that conflicts is to go up";
        if (row[HC__OUT] & ~row[HC__SENT])
            return "T3: what is to go up is not marked as sent";
    }
    if (used != s->slots.count || used > s->engine->config.cache_capacity)
        return "slots are counted wrong";
    return listed == used ? NULL : "the order of use has not every slot";
}

/* A first announcement waits while a slot of its name is raised. */
static int is_held_back(const hc__set *s, const hc__first *first) {
    for (int32_t slot = s->names.at[first->name].slot; slot >= 0; slot = s->slots.at[slot].next)
        if (hc__slot_raised(s, slot))
            return 1;
    return 0;
}

/* T7: if two items of a name are raised, a conflict is noted; RIVALS marks the slots to check. */
static const char *check_rivals(const hc__set *s) {
    for (uint32_t slot = 0; slot < 64 * s->slots.nwords; slot++) {
        if (!s->slots.at[slot].sig)
            continue;
        const hc__name *record = &s->names.at[s->slots.at[slot].name];
        const uint64_t *row = hc__row(&s->slots, slot / 64);
        int rivals = record->first || s->slots.at[record->slot].next >= 0;
        if (rivals != (int)(row[HC__RIVALS] >> (slot % 64) & 1))
            return "RIVALS: a slot has a rival, or none, and the bit says otherwise";
        if (row[HC__CONFLICT_SENT] >> (slot % 64) & 1 || !hc__slot_raised(s, (int32_t)slot))
            continue;
        int others = record->first != NULL;
        for (int32_t rival = record->slot; rival >= 0; rival = s->slots.at[rival].next)
            others += rival != (int32_t)slot && hc__slot_raised(s, rival);
        if (others)
            return "T7: two items of one name are raised and do not conflict";
    }
    return NULL;
}

static int is_complete(const hc__set *s, const hc__first *first) {
    for (uint32_t source = 0; source < hc__sources(s); source++)
        if (!(first->have[source / 64] >> (source % 64) & 1) && !hc__tree_all_joined(s, source))
            return 0;
    return 1;
}

static const char *check_tree(const hc__set *s) {
    for (uint32_t word = 0; word < s->slots.nwords; word++) {
        const uint64_t *row = hc__row(&s->slots, word);
        uint64_t all = UINT64_MAX, any = 0;
        for (uint32_t source = 0; source < hc__sources(s); source++) {
            any |= row[HC__HAVE + source];
            all &= hc__tree_all_joined(s, source) ? UINT64_MAX : row[HC__HAVE + source];
        }
        if (all & any & ~row[HC__SENT] & ~row[HC__CONFLICT_SENT])
            return "T2: a cached request is complete and has not risen";
    }
    for (const hc__first *first = s->tree.firsts; first; first = first->next) {
        if (s->names.at[first->name].first != first)
            return "a first announcement has another's name";
        if (first->nsigs < 1 || first->nsigs > 2 || (first->nsigs == 2 && first->ranks[0] > first->ranks[1]))
            return "T7: the signatures of a first announcement";
        if (!first->sent && is_complete(s, first) && !is_held_back(s, first))
            return "T2: a first announcement is complete and has not risen";
    }
    for (uint32_t source = 0; source < hc__sources(s); source++) {
        uint32_t subtree = source ? (uint32_t)s->children[source - 1].subtree : 1;
        if (s->joins.firm[source] + s->joins.loose[source] > subtree)
            return "more ranks have joined than there are";
    }
    return NULL;
}

/* L0: no item has a number for a name any more. */
static const char *check_numbers(const hc__set *s) {
    uint32_t refused = 0;
    for (uint32_t cell = 0; s->names.table && cell <= s->names.mask; cell++)
        if (s->names.table[cell])
            for (const hc__sig *sig = s->names.at[s->names.table[cell] - 1].refused; sig; sig = sig->next)
                refused += sig->request.order != 0;
    if (refused != s->pending.unnamed.refusals)
        return "refused calls without a name are counted wrong";
    for (uint32_t slot = 0; s->pending.unnamed.ordered && slot < 64 * s->slots.nwords; slot++)
        if (s->slots.at[slot].sig && s->slots.at[slot].sig->unnamed)
            return "L0: a slot has a call without a name";
    for (const hc__first *first = s->pending.unnamed.ordered ? s->tree.firsts : NULL; first; first = first->next)
        if (first->sigs[0]->unnamed == HC__NUMBERED)
            return "L0: a first announcement has a number for a name";
    return NULL;
}

static const char *check_set(const hc__set *s) {
    const char *wrong = check_pending(s);
    if (!wrong)
        wrong = check_names(s);
    if (!wrong)
        wrong = check_slots(s);
    if (!wrong)
        wrong = check_numbers(s);
    if (!wrong && !s->end.stopped && !s->engine->failure.failed)
        wrong = check_tree(s);
    if (!wrong && !s->end.stopped && !s->engine->failure.failed)
        wrong = check_rivals(s);
    if (!wrong && s->dirty)
        wrong = "a step has ended with work to do";
    return wrong;
}

const char *hc_engine_validate(const hc_engine *e) {
    const char *wrong = NULL;
    for (uint32_t i = 0; i < e->nsets && !wrong; i++)
        if (e->sets[i])
            wrong = check_set(e->sets[i]);
    return wrong;
}
