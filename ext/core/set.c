/* SPDX-License-Identifier: Apache-2.0
 *
 * set.c - adds and removes process sets. An idle set is small; everything in it grows with use.
 */
#include "core/set.h"

#include "core/actions.h"
#include "core/complete.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/query.h"
#include "core/refuse.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/tree.h"
#include "core/wire.h"

#define MAX_GENERATION (UINT32_MAX / HC_MAX_SETS)

static int is_valid(const hc_engine *e, const hc_set_config *c) {
    if (c->set >= HC_MAX_SETS || c->generation < e->over[c->set] || c->generation >= MAX_GENERATION ||
        c->set_size < 1 || c->set_size > e->config.size || c->set_rank < 0 || c->set_rank >= c->set_size ||
        c->parent < -1 || c->parent >= e->config.size || c->nchildren < 0 || (c->nchildren && !c->children))
        return 0;
    for (int32_t i = 0; i < c->nchildren; i++)
        if (c->children[i].rank < 0 || c->children[i].rank >= e->config.size || c->children[i].subtree < 1 ||
            c->children[i].subtree >= c->set_size)
            return 0;
    return 1;
}

static void set_init(hc_engine *e, hc__set *s, const hc_set_config *c) {
    s->engine = e;
    s->id = c->set;
    s->wire = hc_set_wire(c->set, c->generation);
    s->set_rank = c->set_rank;
    s->set_size = c->set_size;
    s->parent = c->parent;
    s->nchildren = c->nchildren;
    s->slots.stride = HC__HAVE + hc__sources(s);
    s->names.free_list = HC__NONE;
    s->pending.oldest = s->pending.newest = s->pending.unraised = HC__NONE;
    s->slots.lru_oldest = s->slots.lru_newest = -1;
    s->joins.last = -1;
    s->pending.unnamed.due = HC__NEVER;
    s->end.first_to_leave = HC__NO_RANK;
    s->tune.now = (hc_tuning){.fusion_threshold = e->config.fusion_threshold,
                              .raise_bytes = e->config.raise_bytes,
                              .raise_window = e->config.raise_window};
}

static int reserve(hc_engine *e, uint32_t id) {
    if (id < e->nsets)
        return 1;
    hc__set **more = hc__resize(e, e->sets, e->nsets * sizeof *more, (id + 1) * sizeof *more);
    if (!more)
        return 0;
    e->sets = more;
    e->nsets = id + 1;
    return 1;
}

/* Bytes of a set, with its children and counters in the same block. */
static size_t size_of(int32_t nchildren) {
    return sizeof(hc__set) + (size_t)nchildren * sizeof(hc_child) +
           ((size_t)nchildren + 1) * (2 * sizeof(uint32_t) + 1);
}

static uint32_t edges(const hc_engine *e) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->nsets; i++)
        n += e->sets[i] ? (uint32_t)e->sets[i]->nchildren + 1 : 0;
    return n;
}

/* A failure needs one action per edge and a few more: FAILED, WAKE_AT, and those of the step's event. */
#define LAST_ACTIONS 4

int hc__set_add(hc_engine *e, const hc_set_config *c) {
    const hc__set *world = hc__set_find(e, 0);
    if (!c || !is_valid(e, c) || hc__set_find(e, c->set) || (c->set != 0 && !world))
        return HC_INVALID;
    if (world && world->end.stopped)
        return HC_SHUT_DOWN;
    int room = reserve(e, c->set) && hc__act_reserve(e, edges(e) + (uint32_t)c->nchildren + 1 + LAST_ACTIONS);
    hc__set *s = room ? hc__alloc(e, size_of(c->nchildren)) : NULL;
    if (!s) {
        e->starved = 0; /* the set is refused as a whole, so the World need not fail */
        return HC_NO_MEMORY;
    }
    set_init(e, s, c);
    s->children = (hc_child *)(s + 1);
    s->joins.firm = (uint32_t *)(s->children + c->nchildren);
    s->joins.loose = s->joins.firm + hc__sources(s);
    s->pending.unnamed.asked = (uint8_t *)(s->joins.loose + hc__sources(s));
    if (c->nchildren)
        memcpy(s->children, c->children, (size_t)c->nchildren * sizeof *s->children);
    e->sets[c->set] = s;
    e->over[c->set] = c->generation;
    return 0;
}

int hc__set_remove(hc_engine *e, uint32_t id) {
    hc__set *s = hc__set_find(e, id);
    if (!s || (!e->failure.failed && (!s->end.stopped || s->batches.running)))
        return HC_INVALID;
    hc__set_free(s);
    e->sets[id] = NULL;
    e->over[id]++;
    return 0;
}

void hc__set_free(hc__set *s) {
    hc_engine *e = s->engine;
    hc__tree_clear(s);
    hc__refusals_free(s);
    for (uint32_t i = 0; i < s->names.room; i++) {
        hc__name *record = &s->names.at[i];
        if (record->rows)
            hc__free(e, record->rows, record->mine->request.ntensors * sizeof *record->rows);
        hc__sig_unref(e, record->mine);
    }
    hc__running_free(s);
    hc__queries_free(s);
    hc__slots_free(s);
    hc__names_free(s);
    hc__free(e, s, size_of(s->nchildren));
}
