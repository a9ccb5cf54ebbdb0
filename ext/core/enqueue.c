/* SPDX-License-Identifier: Apache-2.0
 *
 * enqueue.c - enqueues a request: refuses an invalid one, and finds the slot of one that was agreed before.
 */
#include "core/enqueue.h"

#include "core/actions.h"
#include "core/describe.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/numbers.h"
#include "core/pending.h"
#include "core/raise.h"
#include "core/request.h"
#include "core/slots.h"
#include "core/state.h"
#include "core/stop.h"
#include "core/text.h"
#include "core/tree.h"

static void refuse(hc__set *s, const hc_request *request, int status, const char *why) {
    char buffer[HC__TEXT];
    hc__text text = hc__text_on(buffer, sizeof buffer);
    if (request->name && request->name_len) {
        hc__describe(&text, request);
        hc__put(&text, ": ");
    }
    hc__put(&text, why);
    hc__complete(s->engine, request->ticket, status, hc__scratch_text(s->engine, buffer), s->position);
}

/* The signature of a request. With a slot it is the slot's object, so that the steady state allocates nothing. */
static hc__sig *signature(hc__set *s, uint32_t name, int32_t slot, const hc__sig_view *view) {
    hc__name *record = &s->names.at[name];
    if (slot >= 0)
        return hc__sig_ref(s->slots.at[slot].sig);
    hc__first *first = record->first;
    for (int i = 0; first && i < first->nsigs; i++)
        if (hc__sig_is(first->sigs[i], view->bytes, view->nbytes))
            return hc__sig_ref(first->sigs[i]);
    return hc__sig_new(s->engine, view, record->key);
}

/* Keeps this rank's rows, if rows may differ between ranks. 0: no memory. */
static int keep_rows(hc__set *s, hc__name *record, const hc_request *request) {
    record->rows = NULL;
    if (!hc_operation_has(request->operation, HC_OP_ROWS_DIFFER))
        return 1;
    record->row = request->tensors[0].dims[0];
    if (request->ntensors == 1)
        return 1;
    record->rows = hc__alloc(s->engine, request->ntensors * sizeof *record->rows);
    for (uint32_t i = 0; record->rows && i < request->ntensors; i++)
        record->rows[i] = request->tensors[i].dims[0];
    return record->rows != NULL;
}

static uint64_t payload_of(const hc__sig *sig, const hc_request *request) {
    if (!hc_operation_has(request->operation, HC_OP_ROWS_DIFFER))
        return sig->payload;
    uint64_t total = 0;
    for (uint32_t i = 0; i < request->ntensors; i++) {
        uint64_t bytes = hc_dtype_size(request->tensors[i].dtype);
        for (uint32_t d = 0; d < request->tensors[i].ndim; d++)
            bytes *= (uint64_t)request->tensors[i].dims[d];
        total += bytes;
    }
    return total;
}

static void admit(hc__set *s, uint32_t name, const hc_request *request, uint64_t order, hc__sig *sig) {
    hc__name *record = &s->names.at[name];
    record->mine = sig;
    record->ticket = request->ticket;
    record->order = order;
    record->since = s->engine->now;
    record->phase = HC__PENDING;
    record->waited = 0;
    record->status = 0;
    hc__pending_append(s, name);
    s->pending.unnamed.requests += order != 0;
    s->pending.unnamed.later += order && s->joins.joined;
    s->pending.unraised_bytes += payload_of(sig, request);
    if (s->pending.unraised_bytes >= s->tune.now.raise_bytes) /* R2 */
        hc__raise_all(s);
    if (request->flags & HC_REQUEST_LAST)
        hc__leave(s);
    hc__leave_check(s);
}

/* Memory is gone, but nothing has been raised, so only this request fails and not the World. */
static void refuse_starved(hc__set *s, uint32_t name, const hc_request *request, hc__sig *sig) {
    hc__sig_unref(s->engine, sig);
    if (name != HC__NONE)
        hc__name_forget(s, name);
    s->engine->starved = 0;
    hc__complete(s->engine, request->ticket, HC_NO_MEMORY, hc_status_text(HC_NO_MEMORY), s->position);
}

void hc__enqueue(hc__set *s, const hc_request *request) {
    hc_engine *e = s->engine;
    hc__renamed renamed;
    hc__sig_view view;
    uint64_t key[2];
    if (s->end.stopping || s->end.stopped) {
        hc__complete(e, request->ticket, HC_SHUT_DOWN, hc__shut_down_text(s), s->position);
        return;
    }
    uint64_t order = hc__numbers_count(s, request);
    request = hc__numbers_rename(s, request, order, &renamed);
    const char *wrong = hc__sig_encode(e, request, &view);
    if (wrong) {
        refuse(s, request, e->starved ? HC_NO_MEMORY : HC_INVALID, wrong);
        e->starved = 0;
        return;
    }
    hc__hash(view.name, view.name_len, key);
    uint32_t name = hc__name_find(s, key);
    int32_t slot = name == HC__NONE ? -1 : hc__slot_find(s, name, view.bytes, view.nbytes);
    if (slot < 0) /* else it was checked when it was agreed */
        wrong = hc__sig_check(view.bytes, view.nbytes, s->set_size, &view);
    if (wrong) {
        refuse(s, request, HC_INVALID, wrong);
        return;
    }
    if (name != HC__NONE && s->names.at[name].phase != HC__ABSENT) {
        refuse(s, request, HC_DUPLICATE_NAME, hc_status_text(HC_DUPLICATE_NAME));
        return;
    }
    if (name == HC__NONE)
        name = hc__name_intern(s, key);
    hc__sig *sig = name == HC__NONE ? NULL : signature(s, name, slot, &view);
    if (!sig || !keep_rows(s, &s->names.at[name], request))
        refuse_starved(s, name, request, sig);
    else
        admit(s, name, request, order, sig);
}
