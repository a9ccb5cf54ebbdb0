/* SPDX-License-Identifier: Apache-2.0
 *
 * renumber.c - names calls without a name by their positions in the order, if ranks have numbered them differently.
 */
#include "core/renumber.h"

#include "core/hash.h"
#include "core/names.h"
#include "core/numbers.h"
#include "core/query.h"
#include "core/raise.h"
#include "core/refuse.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/tree.h"
#include "core/wire.h"

/* ---- raising --------------------------------------------------------------------------------------- */

/* 1: this rank has calls without a name that are not agreed, and has raised all of them, so also the oldest. It raises
 * a refusal at once, so perhaps before older requests. */
static int has_raised_all(const hc__set *s) {
    for (uint32_t name = s->pending.unraised; name != HC__NONE && !s->joins.joined; name = s->names.at[name].newer)
        if (s->names.at[name].order)
            return 0;
    return s->pending.unnamed.requests > s->pending.unnamed.later || s->pending.unnamed.refusals;
}

/* If something is not raised yet, raising it sets the time anew. */
void hc__renumber_tick(hc__set *s) {
    uint64_t due = hc__later(s->pending.unnamed.since, HC__NUMBERS_WAIT);
    s->pending.unnamed.due = HC__NEVER;
    if (s->pending.unnamed.ordered || s->end.stopped || !has_raised_all(s))
        return;
    if (due > s->engine->now)
        s->pending.unnamed.due = due;
    else
        hc__renumber_have(s, 0, s->position);
}

void hc__renumber_have(hc__set *s, uint32_t source, uint64_t tag) {
    if (s->pending.unnamed.ordered || tag < s->pending.unnamed.settled)
        return;
    s->pending.unnamed.asked[source] = 1;
    hc__renumber_check(s);
}

static int is_complete(const hc__set *s) { /* T2 */
    int any = 0;
    for (uint32_t source = 0; source < hc__sources(s); source++) {
        if (!s->pending.unnamed.asked[source] && !hc__tree_all_joined(s, source))
            return 0;
        any |= s->pending.unnamed.asked[source];
    }
    return any;
}

void hc__renumber_check(hc__set *s) {
    if (s->pending.unnamed.ordered || !is_complete(s))
        return;
    if (s->parent >= 0)
        hc__tree_flag(s, HC__F_RENUMBER);
    else
        hc__touch(s);
}

int hc__renumber_ready(const hc__set *s) {
    return !s->pending.unnamed.ordered && is_complete(s);
}

void hc__renumber_void(hc__set *s) {
    memset(s->pending.unnamed.asked, 0, hc__sources(s));
    s->tree.flags_sent &= (uint8_t)~HC__F_RENUMBER;
    s->tree.flags_out &= (uint8_t)~HC__F_RENUMBER;
    s->pending.unnamed.since = s->engine->now;
    hc__numbers_raised(s, s->pending.unnamed.requests || s->pending.unnamed.refusals);
}

/* ---- L0 -------------------------------------------------------------------------------------------- */

int hc__renumber_voids(const hc__set *s, const hc__sig_view *sig) {
    return s->pending.unnamed.ordered && hc__unnamed(sig->name, sig->name_len) == HC__NUMBERED;
}

static void drop_items(hc__set *s) {
    for (uint32_t slot = 0; slot < 64 * s->slots.nwords; slot++)
        if (s->slots.at[slot].sig && s->slots.at[slot].sig->unnamed)
            hc__slot_free(s, (int32_t)slot);
    for (hc__first *first = s->tree.firsts, *next; first; first = next) {
        next = first->next;
        if (first->sigs[0]->unnamed)
            hc__first_drop(s, first);
    }
}

/* The signature of this rank's request under its new name; NULL: no memory. */
static hc__sig *renamed_sig(hc__set *s, const hc__name *record) {
    hc__renamed renamed;
    hc__sig_view view;
    uint64_t key[2];
    const hc_request *request = hc__numbers_rename(s, &record->mine->request, record->order, &renamed);
    if (hc__sig_encode(s->engine, request, &view) || hc__sig_check(view.bytes, view.nbytes, s->set_size, &view))
        return NULL;
    hc__hash(view.name, view.name_len, key);
    return hc__sig_new(s->engine, &view, key);
}

static void rename_request(hc__set *s, uint32_t name) {
    hc__name *record = &s->names.at[name];
    hc__sig *sig = renamed_sig(s, record);
    if (!sig)
        return; /* the World breaks */
    hc__query_forget(s, record->key);
    hc__sig_unref(s->engine, record->mine);
    record->mine = sig;
    s->pending.nbehind -= record->phase == HC__BEHIND;
    record->phase = HC__PENDING;
    record->raised_slot = -1;
    hc__name_rename(s, name, sig->key);
}

void hc__renumber(hc__set *s) {
    s->pending.unnamed.ordered = 1;
    s->pending.unnamed.due = HC__NEVER;
    drop_items(s);
    hc__refuse_renamed(s);
    for (uint32_t name = s->pending.oldest; name != HC__NONE; name = s->names.at[name].newer)
        if (s->names.at[name].order)
            rename_request(s, name);
    hc__raise_renamed(s);
    s->pending.unnamed.settled = s->position;
}
