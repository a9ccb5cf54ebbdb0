/* SPDX-License-Identifier: Apache-2.0
 *
 * refuse.c - calls that this rank has refused before they became requests.
 *
 * The other ranks make the same call and would wait for this rank; or their call would match this rank's next call of
 * the name, and give wrong numbers. So a refusal is announced like a request, and when it is complete it is a mismatch,
 * even if all ranks refuse. No caller waits for it, so it is no pending request: its rank may leave before it is
 * agreed, and it has no stall clock. The next request of the name is raised after it.
 */
#include "core/refuse.h"

#include "core/hash.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/numbers.h"
#include "core/pending.h"
#include "core/raise.h"
#include "core/request.h"
#include "core/state.h"
#include "core/tree.h"

static void raise_refusal(hc__set *s, uint32_t name) {
    hc__numbers_raised(s, s->names.at[name].refused->request.order != 0);
    hc__tree_have_first(s, name, 0, s->names.at[name].refused, s->set_rank, 0);
}

static void append(hc__set *s, uint32_t name, hc__sig *sig) {
    hc__sig **end = &s->names.at[name].refused;
    int is_behind = *end != NULL;
    while (*end)
        end = &(*end)->next;
    *end = sig;
    s->pending.unnamed.refusals += sig->request.order != 0;
    if (is_behind)
        s->pending.nbehind++;
    else
        raise_refusal(s, name);
}

/* 0: the name has a request that is not agreed yet, which goes on. */
static int may_refuse(const hc__name *record) {
    return record->phase == HC__ABSENT || record->phase == HC__RUNNING;
}

/* Without memory the World breaks (starved), because the other ranks would not learn of the refusal. */
static void announce(hc__set *s, const hc_request *request, uint64_t order) {
    hc_engine *e = s->engine;
    hc_request refusal = {.name = request->name,
                          .name_len = request->name_len,
                          .operation = request->operation,
                          .reduction = HC_SUM,
                          .wire = HC_WIRE_SAME,
                          .flags = HC_REQUEST_REFUSED,
                          .root = -1,
                          .why = request->why,
                          .why_len = request->why_len < HC__WHY_REFUSED ? request->why_len : HC__WHY_REFUSED};
    hc__sig_view view;
    uint64_t key[2];
    uint32_t name = HC__NONE;
    hc__sig *sig = NULL;
    if (!hc__sig_encode(e, &refusal, &view) && !hc__sig_check(view.bytes, view.nbytes, s->set_size, &view)) {
        hc__hash(view.name, view.name_len, key);
        name = hc__name_intern(s, key);
    }
    if (name != HC__NONE && may_refuse(&s->names.at[name]))
        sig = hc__sig_new(e, &view, key);
    if (sig) {
        sig->request.order = order;
        append(s, name, sig);
        return;
    }
    if (name != HC__NONE)
        hc__name_forget(s, name);
}

void hc__refuse(hc__set *s, const hc_request *request) {
    hc__renamed renamed;
    if (s->end.stopping || s->end.stopped)
        return;
    uint64_t order = hc__numbers_count(s, request);
    announce(s, hc__numbers_rename(s, request, order, &renamed), order);
}

/* Takes the refusals of calls without a name from the names. Returns them as a list, oldest first. */
static hc__sig *take_unnamed(hc__set *s) {
    hc__sig *all = NULL, **end = &all;
    for (uint32_t i = 0; i < s->names.room; i++) {
        hc__sig *refused = s->names.at[i].refused;
        if (!refused || !refused->request.order)
            continue;
        s->names.at[i].refused = NULL;
        for (*end = refused; (*end)->next; end = &(*end)->next)
            s->pending.nbehind--;
        end = &(*end)->next;
        hc__name_forget(s, i);
    }
    s->pending.unnamed.refusals = 0;
    return all;
}

void hc__refuse_renamed(hc__set *s) {
    hc__renamed renamed;
    for (hc__sig *sig = take_unnamed(s), *next; sig; sig = next) {
        next = sig->next;
        announce(s, hc__numbers_rename(s, &sig->request, sig->request.order, &renamed), sig->request.order);
        hc__sig_unref(s->engine, sig);
    }
}

int hc__refusal_raised(const hc__set *s, uint32_t name) {
    const hc__name *record = &s->names.at[name];
    return record->refused && record->first && (record->first->have[0] & 1);
}

void hc__refusal_settled(hc__set *s, uint32_t name) {
    hc__name *record = &s->names.at[name];
    hc__sig *over = record->refused;
    record->refused = over->next;
    s->pending.unnamed.refusals -= over->request.order != 0;
    hc__sig_unref(s->engine, over);
    if (record->refused) {
        s->pending.nbehind--;
        raise_refusal(s, name);
    } else if (record->phase == HC__BEHIND) {
        s->pending.nbehind--;
        hc__raise_behind(s, name);
    }
}

const hc_request *hc__refusal(const hc__set *s) {
    for (uint32_t i = 0; i < s->names.room; i++)
        if (s->names.at[i].refused)
            return &s->names.at[i].refused->request;
    return NULL;
}

void hc__refusals_free(hc__set *s) {
    for (uint32_t i = 0; i < s->names.room; i++)
        while (s->names.at[i].refused) {
            hc__sig *sig = s->names.at[i].refused;
            s->names.at[i].refused = sig->next;
            hc__sig_unref(s->engine, sig);
            hc__name_forget(s, i);
        }
    s->pending.nbehind = s->pending.unnamed.refusals = 0;
}
