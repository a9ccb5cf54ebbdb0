/* SPDX-License-Identifier: Apache-2.0
 *
 * pending.c - the list of this rank's pending requests.
 */
#include "core/pending.h"

#include "core/names.h"
#include "core/state.h"

void hc__pending_append(hc__set *s, uint32_t name) {
    hc__name *record = &s->names.at[name];
    record->older = s->pending.newest;
    record->newer = HC__NONE;
    if (s->pending.newest != HC__NONE)
        s->names.at[s->pending.newest].newer = name;
    else
        s->pending.oldest = name;
    s->pending.newest = name;
    if (s->pending.unraised == HC__NONE) {
        s->pending.unraised = name;
        s->pending.unraised_bytes = 0;
        s->engine->retime = 1;
    }
}

void hc__pending_unlink(hc__set *s, uint32_t name) {
    hc__name *record = &s->names.at[name];
    s->pending.nwaited -= record->waited;
    s->pending.nbehind -= record->phase == HC__BEHIND;
    s->pending.unnamed.requests -= record->order != 0;
    if (s->pending.unraised == name)
        s->pending.unraised = record->newer;
    if (record->older != HC__NONE)
        s->names.at[record->older].newer = record->newer;
    else
        s->pending.oldest = record->newer;
    if (record->newer != HC__NONE)
        s->names.at[record->newer].older = record->older;
    else
        s->pending.newest = record->older;
}
