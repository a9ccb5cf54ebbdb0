/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h - the state of an engine and of its sets, composed of the parts of the other files.
 *
 * A set has names; a name may have slots (signatures agreed before), a request of this rank, and a first announcement
 * in the tree.
 */
#pragma once

#include "core/actions.h"
#include "core/complete.h"
#include "core/fail.h"
#include "core/join.h"
#include "core/memory.h"
#include "core/message.h"
#include "core/names.h"
#include "core/pending.h"
#include "core/query.h"
#include "core/slots.h"
#include "core/stop.h"
#include "core/tree.h"
#include "core/tune.h"

struct hc__set {
    hc_engine *engine;
    hc__set *next_dirty;
    uint8_t dirty;
    uint32_t id, wire; /* number; wire: number with generation, in messages */
    int32_t set_rank, set_size, parent, nchildren;
    hc_child *children;
    uint64_t position; /* entries applied */

    hc__names names;
    hc__pending pending;
    hc__slots slots;
    hc__tree tree;
    hc__joins joins;
    hc__batches batches;
    hc__end end;
    hc__tune tune;
    hc__stall stall;
};

typedef struct hc__counters {
    hc_counter messages_up, messages_down, bytes_up, bytes_down;
    hc_counter entries, batches, cached_commits, first_commits, mismatches, evictions, conflicts;
} hc__counters;

struct hc_engine {
    hc_engine_config config;
    uint64_t now;
    hc__set **sets;
    uint32_t nsets;             /* room in sets */
    hc__set *dirty;             /* sets with something to send or commit when the step ends */
    uint32_t over[HC_MAX_SETS]; /* generations of each number below this one have ended here */
    hc__early *early;
    size_t early_bytes;

    hc__actions actions;
    hc__scratch_block *scratch;
    hc__sig *dead;    /* signatures to free at the next step */
    uint8_t *encoded; /* hc__sig_encode writes here */
    size_t encoded_room;

    uint64_t due;    /* the nearest deadline; the last WAKE_AT */
    uint8_t retime;  /* deadlines may have changed */
    uint8_t starved; /* memory ran out in this step */
    hc__failure failure;
    char *silent; /* HC__TEXT bytes: the ranks without a sign of life (HC_EV_SILENT); or NULL */
    uint64_t bytes;
    hc__counters counters;
};

/* Notes that the set must send or commit at the end of the step. */
static inline void hc__touch(hc__set *s) {
    if (s->dirty)
        return;
    s->dirty = 1;
    s->next_dirty = s->engine->dirty;
    s->engine->dirty = s;
}

/* NULL: there is no such set here. */
static inline hc__set *hc__set_find(const hc_engine *e, uint32_t id) {
    return id < e->nsets ? e->sets[id] : NULL;
}

/* The number of sources of requests: 0 is this rank, the others are its children. */
static inline uint32_t hc__sources(const hc__set *s) {
    return (uint32_t)s->nchildren + 1;
}

/* The source number of a child; 0: it is no child. */
static inline uint32_t hc__set_source(const hc__set *s, int32_t peer) {
    for (int32_t i = 0; i < s->nchildren; i++)
        if (s->children[i].rank == peer)
            return (uint32_t)i + 1;
    return 0;
}
