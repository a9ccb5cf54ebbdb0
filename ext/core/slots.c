/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - the cache: what was agreed once has a slot, the same on every rank.
 *
 * Lowest free slot, else the least recently used one is evicted. Called while an entry is applied and never
 * else, so slots, their order and their generations are a function of the log.
 *
 * A name has one slot for each of its last signatures, because programs alternate them under one name (all
 * unnamed blocking calls have the same). Their number is bounded: sizes that never come again must not push the
 * names of a training step out of the cache.
 */
#include "core/core.h"

uint64_t *hc__row(const hc__set *s, uint32_t word) {
    return s->rows + (size_t)word * s->stride;
}

int hc__bit(uint64_t bits) {
    return __builtin_ctzll(bits);
}

static int grow(hc__set *s) {
    size_t old = s->nwords, row = s->stride * sizeof *s->rows, slots = 64 * sizeof *s->slots;
    uint64_t *rows = hc__resize(s->engine, s->rows, old * row, (old + 1) * row);
    if (!rows)
        return 0;
    s->rows = rows;
    hc__slot *at = hc__resize(s->engine, s->slots, old * slots, (old + 1) * slots);
    if (!at) {
        s->engine->bytes -= row; /* the larger block stays; the next growth counts it again */
        return 0;
    }
    s->slots = at;
    s->nwords++;
    return 1;
}

static void lru_unlink(hc__set *s, int32_t slot) {
    hc__slot *at = &s->slots[slot];
    if (at->older >= 0)
        s->slots[at->older].newer = at->newer;
    else
        s->lru_oldest = at->newer;
    if (at->newer >= 0)
        s->slots[at->newer].older = at->older;
    else
        s->lru_newest = at->older;
}

static void lru_append(hc__set *s, int32_t slot) {
    s->slots[slot].older = s->lru_newest;
    s->slots[slot].newer = -1;
    if (s->lru_newest >= 0)
        s->slots[s->lru_newest].newer = slot;
    else
        s->lru_oldest = slot;
    s->lru_newest = slot;
}

/* ---- the slots of one name ----------------------------------------------------------------------------- */

static void name_unlink(hc__set *s, int32_t slot) {
    int32_t *link = &s->names.at[s->slots[slot].name].slot;
    while (*link != slot)
        link = &s->slots[*link].next;
    *link = s->slots[slot].next;
}

static void name_push(hc__set *s, int32_t slot) {
    hc__name *record = &s->names.at[s->slots[slot].name];
    s->slots[slot].next = record->slot;
    record->slot = slot;
}

/* The least recently used slot of a name that may have no more of them, or -1. */
static int32_t one_too_many(const hc__set *s, uint32_t name) {
    int32_t slot = s->names.at[name].slot;
    int n = slot >= 0;
    for (; n && s->slots[slot].next >= 0; n++)
        slot = s->slots[slot].next;
    return n < HC__SLOTS_A_NAME ? -1 : slot;
}

int32_t hc__slot_find(const hc__set *s, uint32_t name, const uint8_t *sig, uint32_t nbytes) {
    int32_t slot = s->names.at[name].slot;
    while (slot >= 0 && !hc__sig_is(s->slots[slot].sig, sig, nbytes))
        slot = s->slots[slot].next;
    return slot;
}

void hc__slots_compare(hc__set *s, uint32_t name) {
    const hc__name *record = &s->names.at[name];
    int rivals = record->first || (record->slot >= 0 && s->slots[record->slot].next >= 0);
    for (int32_t slot = record->slot; slot >= 0; slot = s->slots[slot].next) {
        uint64_t *row = hc__row(s, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
        row[HC__RIVALS] = rivals ? row[HC__RIVALS] | bit : row[HC__RIVALS] & ~bit;
    }
}

int hc__slot_raised(const hc__set *s, int32_t slot) {
    const uint64_t *row = hc__row(s, (uint32_t)slot / 64);
    uint64_t any = 0;
    for (uint32_t source = 0; source < s->nsources; source++)
        any |= row[HC__HAVE + source];
    return any >> (slot % 64) & 1;
}

void hc__slot_touch(hc__set *s, int32_t slot) {
    if (s->names.at[s->slots[slot].name].slot != slot) {
        name_unlink(s, slot);
        name_push(s, slot);
    }
    if (s->lru_newest == slot)
        return;
    lru_unlink(s, slot);
    lru_append(s, slot);
}

/* Lowest free slot below the capacity, or -1. */
static int32_t lowest_free(const hc__set *s) {
    uint32_t capacity = s->engine->config.cache_capacity;
    if (s->nslots >= capacity)
        return -1;
    uint32_t word = 0;
    while (word < s->nwords && hc__row(s, word)[HC__USED] == UINT64_MAX)
        word++;
    uint32_t slot = 64 * word + (word < s->nwords ? (uint32_t)hc__bit(~hc__row(s, word)[HC__USED]) : 0);
    return slot < capacity ? (int32_t)slot : -1;
}

static void evict(hc__set *s, int32_t slot) {
    hc__slot_free(s, slot);
    hc_count(&s->engine->counters.evictions, 1);
}

/* L3 */
int hc__slot_assign(hc__set *s, uint32_t name, hc__sig *sig) {
    int32_t spare = one_too_many(s, name);
    if (spare >= 0)
        evict(s, spare);
    int32_t slot = lowest_free(s);
    if (slot < 0) {
        slot = s->lru_oldest;
        evict(s, slot);
    }
    if ((uint32_t)slot >= 64 * s->nwords && !grow(s))
        return HC_NO_MEMORY;
    s->slots[slot].sig = hc__sig_ref(sig);
    s->slots[slot].name = name;
    s->slots[slot].gen = s->changed = s->q;
    lru_append(s, slot);
    name_push(s, slot);
    uint64_t *row = hc__row(s, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
    row[HC__USED] |= bit;
    if (hc_operation_has(sig->request.operation, HC_OP_ROOTED))
        row[HC__NEEDS_ROOT] |= bit;
    s->nslots++;
    hc__slots_compare(s, name);
    return 0;
}

void hc__slot_free(hc__set *s, int32_t slot) {
    hc__slot *at = &s->slots[slot];
    lru_unlink(s, slot);
    hc__sig_unref(s->engine, at->sig);
    at->sig = NULL;
    at->gen = s->changed = s->freed = s->q;
    name_unlink(s, slot);
    hc__slots_compare(s, at->name);
    hc__name_forget(s, at->name);
    uint64_t *row = hc__row(s, (uint32_t)slot / 64), bit = 1ull << (slot % 64);
    for (uint32_t column = 0; column < s->stride; column++) /* T10 */
        row[column] &= ~bit;
    row[HC__GONE] |= bit;
    s->nslots--;
}

void hc__slots_clear_gone(hc__set *s) {
    for (uint32_t word = 0; word < s->nwords; word++)
        hc__row(s, word)[HC__GONE] = 0;
}

void hc__slots_free(hc__set *s) {
    for (uint32_t slot = 0; slot < 64 * s->nwords; slot++)
        hc__sig_unref(s->engine, s->slots[slot].sig);
    hc__free(s->engine, s->slots, (size_t)s->nwords * 64 * sizeof *s->slots);
    hc__free(s->engine, s->rows, (size_t)s->nwords * s->stride * sizeof *s->rows);
    s->slots = NULL;
    s->rows = NULL;
    s->nwords = s->nslots = 0;
}
