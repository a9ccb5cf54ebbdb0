/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c - creates and frees an engine, and has its query functions.
 */
#include <stdlib.h>

#include "core/actions.h"
#include "core/memory.h"
#include "core/message.h"
#include "core/request.h"
#include "core/set.h"
#include "core/state.h"
#include "core/text.h"

hc_engine *hc_engine_new(const hc_engine_config *config) {
    if (config->size < 1 || config->rank < 0 || config->rank >= config->size || config->cache_capacity > INT32_MAX - 64)
        return NULL;
    hc_engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->config = *config;
    e->due = HC__NEVER;
    e->bytes = sizeof *e;
    return e;
}

void hc_engine_free(hc_engine *e) {
    if (!e)
        return;
    for (uint32_t i = 0; i < e->nsets; i++)
        if (e->sets[i])
            hc__set_free(e->sets[i]);
    hc__early_free(e);
    hc__sig_free_dead(e);
    hc__scratch_free(e);
    hc__free(e, e->sets, e->nsets * sizeof *e->sets);
    hc__actions_free(e);
    hc__free(e, e->encoded, e->encoded_room);
    hc__free(e, e->failure.text, HC__TEXT);
    hc__free(e, e->silent, HC__TEXT);
    free(e);
}

int hc_engine_quiet(const hc_engine *e) {
    for (uint32_t i = 0; i < e->nsets; i++) {
        const hc__set *s = e->sets[i];
        if (s && (s->pending.oldest != HC__NONE || s->batches.running || s->joins.joined ||
                  (s->end.stopping && !s->end.stopped && !e->failure.failed)))
            return 0;
    }
    return 1;
}

uint64_t hc_engine_memory(const hc_engine *e) {
    return e->bytes;
}

void hc_engine_counters(const hc_engine *e, hc_counters *out) {
    const hc__counters *c = &e->counters;
    *out = (hc_counters){
        .messages_up = hc_counted(&c->messages_up),
        .messages_down = hc_counted(&c->messages_down),
        .bytes_up = hc_counted(&c->bytes_up),
        .bytes_down = hc_counted(&c->bytes_down),
        .entries = hc_counted(&c->entries),
        .batches = hc_counted(&c->batches),
        .cached_commits = hc_counted(&c->cached_commits),
        .first_commits = hc_counted(&c->first_commits),
        .mismatches = hc_counted(&c->mismatches),
        .evictions = hc_counted(&c->evictions),
        .conflicts = hc_counted(&c->conflicts),
    };
}
