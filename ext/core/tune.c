/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.c - the knobs of a set that change at run time.
 *
 * The root's proposal is part of the next entry that commits a request, so tuning sends no message and wakes no rank.
 * Only the newest proposal counts.
 */
#include "core/tune.h"

#include "core/actions.h"
#include "core/memory.h"
#include "core/state.h"
#include "core/wire.h"

static int is_valid(const hc_tuning *t) {
    return t->fusion_threshold <= HC_TUNING_MOST_BYTES && t->raise_bytes <= HC_TUNING_MOST_BYTES &&
           t->raise_window <= HC_TUNING_MOST_NS;
}

int hc__tune_propose(hc__set *s, const hc_tuning *tuning) {
    if (s->parent >= 0 || !tuning || !is_valid(tuning))
        return HC_INVALID;
    s->tune.proposed = *tuning;
    s->tune.is_proposed = 1;
    return 0;
}

uint8_t *hc__tune_write(hc__set *s, uint8_t *p) {
    p = hc__write64(p, s->tune.proposed.fusion_threshold);
    p = hc__write64(p, s->tune.proposed.raise_bytes);
    s->tune.is_proposed = 0;
    return hc__write64(p, s->tune.proposed.raise_window);
}

void hc__tune_read(hc__reader *r, hc_tuning *tuning) {
    tuning->fusion_threshold = hc__read64(r);
    tuning->raise_bytes = hc__read64(r);
    tuning->raise_window = hc__read64(r);
    if (!is_valid(tuning))
        r->bad = 1;
}

/* Applying an entry also sets e->retime, so this rank's deadlines follow the new window. */
void hc__tune_apply(hc__set *s, const hc_tuning *tuning) {
    s->tune.now = *tuning;
    hc_tuning *copy = hc__scratch(s->engine, sizeof *copy);
    if (!copy)
        return;
    *copy = *tuning;
    hc_action *action = hc__act(s->engine, HC_AC_TUNED);
    action->set = s->id;
    action->position = s->position;
    action->tuning = copy;
}
