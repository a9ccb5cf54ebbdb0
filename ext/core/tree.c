/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c - aggregation in the tree: a node tells its parent when its whole subtree has an item.
 *
 * The sources of a node are itself and its children's subtrees. A source whose ranks have all joined counts as having
 * every item. Complete items wait for the next message up (up.c); at the root they are ready for the log (commit.c). A
 * request that was agreed before is one bit, as in Romero et al., NSDI 2022.
 */
#include "core/tree.h"

#include "core/memory.h"
#include "core/names.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/wire.h"

int hc__tree_all_joined(const hc__set *s, uint32_t source) {
    uint32_t subtree = source ? (uint32_t)s->children[source - 1].subtree : 1;
    return s->joins.firm[source] + s->joins.loose[source] >= subtree;
}

/* ---- cached requests: bits ----------------------------------------------------------------------- */

void hc__tree_have_slot(hc__set *s, int32_t slot) { /* T1 */
    uint64_t *row = hc__row(&s->slots, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
    row[HC__HAVE] |= bit;
    if (s->slots.at[slot].sig->request.root == s->set_rank)
        row[HC__ROOTED] |= bit;
}

/* T7: two items of one name at the same time are a mismatch. The log frees their slots, then all ranks announce the
 * name again, and these announcements become the error. */
static void compare(hc__set *s, int32_t slot) {
    const hc__name *record = &s->names.at[s->slots.at[slot].name];
    if (record->first)
        hc__tree_conflict(s, slot);
    for (int32_t rival = record->slot; rival >= 0; rival = s->slots.at[rival].next)
        if (rival != slot && hc__slot_raised(s, rival)) {
            hc__tree_conflict(s, slot);
            hc__tree_conflict(s, rival);
        }
}

void hc__tree_rise(hc__set *s, uint32_t from, uint32_t to) {
    for (uint32_t word = from; word < to; word++) {
        uint64_t *row = hc__row(&s->slots, word), all = UINT64_MAX, any = 0;
        for (uint32_t source = 0; source < hc__sources(s); source++) { /* T2 */
            uint64_t have = row[HC__HAVE + source];
            any |= have;
            all &= have == UINT64_MAX || !hc__tree_all_joined(s, source) ? have : UINT64_MAX;
        }
        for (uint64_t rest = any & row[HC__RIVALS] & ~row[HC__CONFLICT_SENT]; rest; rest &= rest - 1)
            compare(s, (int32_t)(64 * word + (uint32_t)hc__bit(rest)));
        uint64_t fresh = all & any & ~row[HC__SENT] & ~row[HC__CONFLICT_SENT];
        if (fresh) { /* T3 */
            row[HC__SENT] |= fresh;
            row[HC__OUT] |= fresh;
            hc__touch(s);
        }
    }
}

/* ---- first announcements ------------------------------------------------------------------------- */

static hc__first *first_new(hc__set *s, uint32_t name) {
    size_t words = (hc__sources(s) + 63) / 64;
    hc__first *first = hc__alloc(s->engine, sizeof *first + words * sizeof(uint64_t));
    if (!first)
        return NULL;
    first->name = name;
    first->prev = s->tree.firsts_last;
    if (s->tree.firsts_last)
        s->tree.firsts_last->next = first;
    else
        s->tree.firsts = first;
    s->tree.firsts_last = first;
    s->names.at[name].first = first;
    hc__slots_compare(s, name);
    return first;
}

static void out_append(hc__set *s, hc__first *first) {
    first->out = 1;
    first->out_next = NULL;
    first->out_prev = s->tree.out_last;
    if (s->tree.out_last)
        s->tree.out_last->out_next = first;
    else
        s->tree.out = first;
    s->tree.out_last = first;
    hc__touch(s);
}

static void out_remove(hc__set *s, hc__first *first) {
    if (!first->out)
        return;
    first->out = 0;
    if (first->out_prev)
        first->out_prev->out_next = first->out_next;
    else
        s->tree.out = first->out_next;
    if (first->out_next)
        first->out_next->out_prev = first->out_prev;
    else
        s->tree.out_last = first->out_prev;
}

int hc__tree_any_out(const hc__set *s) {
    if (s->tree.out)
        return 1;
    for (uint32_t word = 0; word < s->slots.nwords; word++)
        if (hc__row(&s->slots, word)[HC__OUT] | hc__row(&s->slots, word)[HC__CONFLICT_OUT])
            return 1;
    return 0;
}

uint8_t *hc__tree_write_firsts(const hc__set *s, uint8_t *p, hc__write_first *write) {
    uint8_t *count = p;
    uint32_t n = 0;
    p += 4;
    for (const hc__first *first = s->tree.out; first; first = first->out_next, n++)
        p = write(first, p);
    hc__write32(count, n);
    return p;
}

void hc__tree_clear_out(hc__set *s) {
    for (hc__first *first = s->tree.out; first; first = first->out_next)
        first->out = 0;
    s->tree.out = s->tree.out_last = NULL;
    for (uint32_t word = 0; word < s->slots.nwords; word++)
        hc__row(&s->slots, word)[HC__OUT] = hc__row(&s->slots, word)[HC__CONFLICT_OUT] = 0;
    s->tree.flags_out = 0;
}

void hc__first_drop(hc__set *s, hc__first *first) { /* T10 */
    out_remove(s, first);
    if (first->prev)
        first->prev->next = first->next;
    else
        s->tree.firsts = first->next;
    if (first->next)
        first->next->prev = first->prev;
    else
        s->tree.firsts_last = first->prev;
    for (int i = 0; i < first->nsigs; i++)
        hc__sig_unref(s->engine, first->sigs[i]);
    s->names.at[first->name].first = NULL;
    hc__slots_compare(s, first->name);
    uint32_t name = first->name;
    hc__free(s->engine, first, sizeof *first + (hc__sources(s) + 63) / 64 * sizeof(uint64_t));
    hc__name_forget(s, name);
}

/* T7: 1: a slot of this name is raised, too. Nothing of the name rises until such slots are freed, because joins must
 * not complete an item that other ranks have raised in another form. */
static int conflicts(hc__set *s, const hc__first *first) {
    int any = 0;
    for (int32_t slot = s->names.at[first->name].slot; slot >= 0; slot = s->slots.at[slot].next)
        if (hc__slot_raised(s, slot)) {
            hc__tree_conflict(s, slot);
            any = 1;
        }
    return any;
}

static void first_check(hc__set *s, hc__first *first) {
    if (first->sent || conflicts(s, first))
        return;
    for (uint32_t source = 0; source < hc__sources(s); source++) /* T2 */
        if (!(first->have[source / 64] >> (source % 64) & 1) && !hc__tree_all_joined(s, source))
            return;
    first->sent = 1; /* T3 */
    out_append(s, first);
}

static void swap_sides(hc__first *first) {
    hc__sig *sig = first->sigs[0];
    int32_t rank = first->ranks[0];
    first->sigs[0] = first->sigs[1];
    first->ranks[0] = first->ranks[1];
    first->sigs[1] = sig;
    first->ranks[1] = rank;
}

/* T7: keeps the two signatures of the lowest ranks, the lower rank's first. */
static void merge(hc_engine *e, hc__first *first, hc__sig *sig, int32_t rank) {
    int i = 0;
    while (i < first->nsigs && first->sigs[i] != sig && !hc__sig_is(first->sigs[i], sig->bytes, sig->nbytes))
        i++;
    if (i < first->nsigs) {
        if (rank < first->ranks[i])
            first->ranks[i] = rank;
    } else if (i < 2) {
        first->sigs[i] = hc__sig_ref(sig);
        first->ranks[i] = rank;
        first->nsigs++;
    } else if (rank < first->ranks[1]) {
        hc__sig_unref(e, first->sigs[1]);
        first->sigs[1] = hc__sig_ref(sig);
        first->ranks[1] = rank;
    }
    if (first->nsigs == 2 && first->ranks[1] < first->ranks[0])
        swap_sides(first);
}

void hc__tree_have_first(hc__set *s, uint32_t name, uint32_t source, hc__sig *sig, int32_t rank, int rooted) {
    hc__first *first = s->names.at[name].first;
    if (!first && !(first = first_new(s, name)))
        return;
    merge(s->engine, first, sig, rank);
    first->rooted |= (uint8_t)(rooted != 0);
    first->have[source / 64] |= 1ull << (source % 64);
    first_check(s, first);
}

/* ---- items for which one rank is enough ---------------------------------------------------------- */

void hc__tree_conflict(hc__set *s, int32_t slot) {
    uint64_t *row = hc__row(&s->slots, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
    if (row[HC__CONFLICT_SENT] & bit)
        return;
    row[HC__CONFLICT_SENT] |= bit; /* cleared when the slot is freed */
    row[HC__CONFLICT_OUT] |= bit;
    row[HC__OUT] &= ~bit; /* joins may have completed it in this step */
    hc__touch(s);
}

void hc__tree_flag(hc__set *s, uint8_t flag) {
    if (s->tree.flags_sent & flag)
        return;
    s->tree.flags_sent |= flag;
    s->tree.flags_out |= flag;
    hc__touch(s);
}

/* ---- joined -------------------------------------------------------------------------------------- */

static void rise_all(hc__set *s) {
    hc__tree_rise(s, 0, s->slots.nwords);
    for (hc__first *first = s->tree.firsts; first; first = first->next)
        first_check(s, first);
}

/* Keeps counts and not ranks, so that a node's memory does not grow with the number of ranks. */
void hc__tree_joined(hc__set *s, uint32_t source, uint32_t firm, uint32_t loose, int32_t last) {
    if (!firm && !loose)
        return;
    s->joins.firm[source] += firm;
    s->joins.loose[source] += loose;
    s->joins.out_firm += firm;
    s->joins.out_loose += loose;
    s->joins.last = last;
    rise_all(s);
    hc__touch(s);
}

/* ---- questions ----------------------------------------------------------------------------------- */

int hc__tree_has(const hc__set *s, uint32_t name, uint32_t source) {
    const hc__name *record = &s->names.at[name];
    if (record->first && (record->first->have[source / 64] >> (source % 64) & 1))
        return 1;
    for (int32_t slot = record->slot; slot >= 0; slot = s->slots.at[slot].next)
        if (hc__row(&s->slots, (uint32_t)slot / 64)[HC__HAVE + source] >> (slot % 64) & 1)
            return 1;
    return 0;
}

void hc__tree_clear(hc__set *s) {
    while (s->tree.firsts)
        hc__first_drop(s, s->tree.firsts);
    for (uint32_t word = 0; word < s->slots.nwords; word++)
        for (uint32_t column = HC__SENT; column < s->slots.stride; column++)
            hc__row(&s->slots, word)[column] = 0;
    s->tree.flags_out = 0;
    s->joins.out_firm = s->joins.out_loose = 0;
}
