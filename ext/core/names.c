/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c - the names that this rank knows in a set: a hash table with open addressing, whose records keep their index.
 * A record lives while a slot, a request of this rank or a first announcement uses it.
 */
#include "core/names.h"

#include "core/memory.h"
#include "core/state.h"

static uint32_t bucket_of(const hc__names *names, const uint64_t key[2]) {
    return (uint32_t)key[0] & names->mask;
}

uint32_t hc__name_find(const hc__set *s, const uint64_t key[2]) {
    const hc__names *names = &s->names;
    if (!names->table)
        return HC__NONE;
    for (uint32_t i = bucket_of(names, key); names->table[i]; i = (i + 1) & names->mask) {
        const hc__name *name = &names->at[names->table[i] - 1];
        if (name->key[0] == key[0] && name->key[1] == key[1])
            return names->table[i] - 1;
    }
    return HC__NONE;
}

static void table_put(hc__names *names, uint32_t name) {
    uint32_t i = bucket_of(names, names->at[name].key);
    while (names->table[i])
        i = (i + 1) & names->mask;
    names->table[i] = name + 1;
}

/* Makes room for half again as many records, and a table at most two thirds full. 0: no memory. */
static int grow(hc__set *s) {
    hc__names *names = &s->names;
    uint32_t room = names->room ? names->room + names->room / 2 : 8, cells = 16;
    while (2 * (uint64_t)cells < 3 * (uint64_t)room)
        cells *= 2;
    uint32_t *table = hc__alloc(s->engine, cells * sizeof *table);
    hc__name *at = table ? hc__resize(s->engine, names->at, names->room * sizeof *at, room * sizeof *at) : NULL;
    if (!at) {
        hc__free(s->engine, table, cells * sizeof *table);
        return 0;
    }
    hc__free(s->engine, names->table, names->table ? (names->mask + 1) * sizeof *table : 0);
    names->at = at;
    names->table = table;
    names->mask = cells - 1;
    for (uint32_t i = 0; i < names->room; i++) /* every record is in use */
        table_put(names, i);
    for (uint32_t i = room; i > names->room; i--) {
        at[i - 1].older = names->free_list;
        names->free_list = i - 1;
    }
    names->room = room;
    return 1;
}

uint32_t hc__name_intern(hc__set *s, const uint64_t key[2]) {
    hc__names *names = &s->names;
    uint32_t found = hc__name_find(s, key);
    if (found != HC__NONE)
        return found;
    if (names->count == names->room && !grow(s))
        return HC__NONE;
    uint32_t fresh = names->free_list;
    names->free_list = names->at[fresh].older;
    names->count++;
    names->at[fresh] = (hc__name){
        .key = {key[0], key[1]}, .older = HC__NONE, .newer = HC__NONE, .slot = -1, .raised_slot = -1};
    table_put(names, fresh);
    return fresh;
}

/* Removes a cell, and moves back cells that the gap would hide. */
static void table_remove(hc__names *names, uint32_t name) {
    uint32_t gap = bucket_of(names, names->at[name].key);
    while (names->table[gap] != name + 1)
        gap = (gap + 1) & names->mask;
    for (uint32_t i = (gap + 1) & names->mask; names->table[i]; i = (i + 1) & names->mask) {
        uint32_t bucket = bucket_of(names, names->at[names->table[i] - 1].key);
        if (((i - bucket) & names->mask) >= ((i - gap) & names->mask)) {
            names->table[gap] = names->table[i];
            gap = i;
        }
    }
    names->table[gap] = 0;
}

void hc__name_rename(hc__set *s, uint32_t name, const uint64_t key[2]) {
    hc__name *record = &s->names.at[name];
    table_remove(&s->names, name);
    record->key[0] = key[0];
    record->key[1] = key[1];
    table_put(&s->names, name);
}

void hc__name_forget(hc__set *s, uint32_t name) {
    hc__names *names = &s->names;
    hc__name *record = &names->at[name];
    if (record->slot >= 0 || record->first || record->phase != HC__ABSENT || record->refused || record->pinned)
        return;
    table_remove(names, name);
    record->older = names->free_list;
    names->free_list = name;
    names->count--;
}

void hc__names_free(hc__set *s) {
    hc__names *names = &s->names;
    hc__free(s->engine, names->at, names->room * sizeof *names->at);
    hc__free(s->engine, names->table, names->table ? (names->mask + 1) * sizeof *names->table : 0);
    *names = (hc__names){.free_list = HC__NONE};
}
