/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - the cache: a signature that was agreed once has a slot, the same on every rank.
 *
 * A signature gets the lowest free slot; if there is none, the least recently used one is evicted. This happens only
 * while an entry is applied, so slots, their order and their generations are a function of the log.
 *
 * A name has one slot for each of its last signatures, because programs alternate signatures under one name (all
 * unnamed blocking calls share a name). Their number is limited, so that sizes that never repeat do not evict the names
 * of a training step.
 */
#include "core/slots.h"

#include "core/memory.h"
#include "core/names.h"
#include "core/request.h"
#include "core/state.h"

#ifndef HC__SLOTS_PER_NAME /* a test has fewer */
#define HC__SLOTS_PER_NAME 16
#endif

static int grow(hc__set *s) {
    size_t old = s->slots.nwords, row = s->slots.stride * sizeof *s->slots.rows, slots = 64 * sizeof *s->slots.at;
    uint64_t *rows = hc__resize(s->engine, s->slots.rows, old * row, (old + 1) * row);
    if (!rows)
        return 0;
    s->slots.rows = rows;
    hc__slot *at = hc__resize(s->engine, s->slots.at, old * slots, (old + 1) * slots);
    if (!at) {
        s->engine->bytes -= row; /* the larger block stays allocated; the next growth counts it */
        return 0;
    }
    s->slots.at = at;
    s->slots.nwords++;
    return 1;
}

static void lru_unlink(hc__set *s, int32_t slot) {
    hc__slot *at = &s->slots.at[slot];
    if (at->older >= 0)
        s->slots.at[at->older].newer = at->newer;
    else
        s->slots.lru_oldest = at->newer;
    if (at->newer >= 0)
        s->slots.at[at->newer].older = at->older;
    else
        s->slots.lru_newest = at->older;
}

static void lru_append(hc__set *s, int32_t slot) {
    s->slots.at[slot].older = s->slots.lru_newest;
    s->slots.at[slot].newer = -1;
    if (s->slots.lru_newest >= 0)
        s->slots.at[s->slots.lru_newest].newer = slot;
    else
        s->slots.lru_oldest = slot;
    s->slots.lru_newest = slot;
}

/* ---- the slots of one name ----------------------------------------------------------------------- */

static void name_unlink(hc__set *s, int32_t slot) {
    int32_t *link = &s->names.at[s->slots.at[slot].name].slot;
    while (*link != slot)
        link = &s->slots.at[*link].next;
    *link = s->slots.at[slot].next;
}

static void name_push(hc__set *s, int32_t slot) {
    hc__name *record = &s->names.at[s->slots.at[slot].name];
    s->slots.at[slot].next = record->slot;
    record->slot = slot;
}

uint32_t hc__slots_per_name(const hc__set *s) {
    uint32_t given = s->engine->config.signatures_per_name;
    return given ? given : HC__SLOTS_PER_NAME;
}

/* If the name has its maximum of slots, returns the least recently used one; else -1. */
static int32_t one_too_many(const hc__set *s, uint32_t name) {
    int32_t slot = s->names.at[name].slot;
    uint32_t n = slot >= 0;
    for (; n && s->slots.at[slot].next >= 0; n++)
        slot = s->slots.at[slot].next;
    return n < hc__slots_per_name(s) ? -1 : slot;
}

int32_t hc__slot_find(const hc__set *s, uint32_t name, const uint8_t *sig, uint32_t nbytes) {
    int32_t slot = s->names.at[name].slot;
    while (slot >= 0 && !hc__sig_is(s->slots.at[slot].sig, sig, nbytes))
        slot = s->slots.at[slot].next;
    return slot;
}

void hc__slots_compare(hc__set *s, uint32_t name) {
    const hc__name *record = &s->names.at[name];
    int rivals = record->first || (record->slot >= 0 && s->slots.at[record->slot].next >= 0);
    for (int32_t slot = record->slot; slot >= 0; slot = s->slots.at[slot].next) {
        uint64_t *row = hc__row(&s->slots, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
        row[HC__RIVALS] = rivals ? row[HC__RIVALS] | bit : row[HC__RIVALS] & ~bit;
    }
}

int hc__slot_raised(const hc__set *s, int32_t slot) {
    const uint64_t *row = hc__row(&s->slots, (uint32_t)slot / 64);
    uint64_t any = 0;
    for (uint32_t source = 0; source < hc__sources(s); source++)
        any |= row[HC__HAVE + source];
    return any >> (slot % 64) & 1;
}

void hc__slot_touch(hc__set *s, int32_t slot) {
    if (s->names.at[s->slots.at[slot].name].slot != slot) {
        name_unlink(s, slot);
        name_push(s, slot);
    }
    if (s->slots.lru_newest == slot)
        return;
    lru_unlink(s, slot);
    lru_append(s, slot);
}

/* Returns the lowest free slot below the capacity, or -1. */
static int32_t lowest_free(const hc__set *s) {
    uint32_t capacity = s->engine->config.cache_capacity;
    if (s->slots.count >= capacity)
        return -1;
    uint32_t word = 0;
    while (word < s->slots.nwords && hc__row(&s->slots, word)[HC__USED] == UINT64_MAX)
        word++;
    uint32_t slot = 64 * word + (word < s->slots.nwords ? (uint32_t)hc__bit(~hc__row(&s->slots, word)[HC__USED]) : 0);
    return slot < capacity ? (int32_t)slot : -1;
}

static void evict(hc__set *s, int32_t slot) {
    hc__slot_free(s, slot);
    hc_count(&s->engine->counters.evictions, 1);
}

/* L3: the lowest free slot, else the least recently used one. */
int hc__slot_assign(hc__set *s, uint32_t name, hc__sig *sig) {
    int32_t spare = one_too_many(s, name);
    if (spare >= 0)
        evict(s, spare);
    int32_t slot = lowest_free(s);
    if (slot < 0) {
        slot = s->slots.lru_oldest;
        evict(s, slot);
    }
    if ((uint32_t)slot >= 64 * s->slots.nwords && !grow(s))
        return HC_NO_MEMORY;
    s->slots.at[slot].sig = hc__sig_ref(sig);
    s->slots.at[slot].name = name;
    s->slots.at[slot].gen = s->slots.changed = s->position;
    lru_append(s, slot);
    name_push(s, slot);
    uint64_t *row = hc__row(&s->slots, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
    row[HC__USED] |= bit;
    if (hc_operation_has(sig->request.operation, HC_OP_ROOTED))
        row[HC__NEEDS_ROOT] |= bit;
    s->slots.count++;
    hc__slots_compare(s, name);
    return 0;
}

void hc__slot_free(hc__set *s, int32_t slot) {
    hc__slot *at = &s->slots.at[slot];
    lru_unlink(s, slot);
    if (at->sig->unnamed)
        s->pending.unnamed.settled = s->position;
    hc__sig_unref(s->engine, at->sig);
    at->sig = NULL;
    at->gen = s->slots.changed = s->slots.freed = s->position;
    name_unlink(s, slot);
    hc__slots_compare(s, at->name);
    hc__name_forget(s, at->name);
    uint64_t *row = hc__row(&s->slots, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
    for (uint32_t column = 0; column < s->slots.stride; column++) /* T10 */
        row[column] &= ~bit;
    row[HC__GONE] |= bit;
    s->slots.count--;
}

void hc__slots_clear_gone(hc__set *s) {
    for (uint32_t word = 0; word < s->slots.nwords; word++)
        hc__row(&s->slots, word)[HC__GONE] = 0;
}

void hc__slots_free(hc__set *s) {
    for (uint32_t slot = 0; slot < 64 * s->slots.nwords; slot++)
        hc__sig_unref(s->engine, s->slots.at[slot].sig);
    hc__free(s->engine, s->slots.at, (size_t)s->slots.nwords * 64 * sizeof *s->slots.at);
    hc__free(s->engine, s->slots.rows, (size_t)s->slots.nwords * s->slots.stride * sizeof *s->slots.rows);
    s->slots.at = NULL;
    s->slots.rows = NULL;
    s->slots.nwords = s->slots.count = 0;
}
