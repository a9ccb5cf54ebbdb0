/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c - ends a request: after its last batch, or without a batch.
 */
#include "core/complete.h"

#include "core/actions.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/request.h"
#include "core/state.h"

void hc__finish(hc__set *s, uint32_t name, int status, const char *text, uint64_t position) {
    hc__name *record = &s->names.at[name];
    hc__complete(s->engine, record->ticket, status, text, position);
    if (s->stall.asked_ticket == record->ticket)
        s->stall.asked_ticket = 0; /* the caller may reuse the ticket for another request */
    if (record->rows)
        hc__free(s->engine, record->rows, record->mine->request.ntensors * sizeof *record->rows);
    hc__sig_unref(s->engine, record->mine);
    record->rows = NULL;
    record->mine = NULL;
    record->ticket = 0;
    record->phase = HC__ABSENT;
    hc__name_forget(s, name);
}

static void batch_of_request_done(hc__set *s, uint32_t name, int status, const char *text) {
    hc__name *record = &s->names.at[name];
    if (status < 0 && record->status == 0)
        record->status = status;
    if (--record->batches)
        return;
    if (record->status != status || !text)
        text = record->status ? hc_status_text(record->status) : "";
    hc__finish(s, name, record->status, text, record->position);
}

static size_t size_of(const hc__running *running) {
    return sizeof *running + running->room * sizeof running->names[0];
}

int hc__batch_done(hc__set *s, uint64_t batch, int status, const char *text) {
    hc__running *before = NULL, *running = s->batches.running;
    while (running && running->batch != batch) {
        before = running;
        running = running->next;
    }
    if (!running || status > 0)
        return HC_INVALID;
    if (before)
        before->next = running->next;
    else
        s->batches.running = running->next;
    if (s->batches.running_last == running)
        s->batches.running_last = before;
    if (text)
        text = hc__scratch_text(s->engine, text);
    for (uint32_t i = 0; i < running->nnames; i++)
        batch_of_request_done(s, running->names[i], status, text);
    hc__free(s->engine, running, size_of(running));
    s->engine->retime = 1;
    return 0;
}

void hc__running_free(hc__set *s) {
    while (s->batches.running) {
        hc__running *running = s->batches.running;
        s->batches.running = running->next;
        hc__free(s->engine, running, size_of(running));
    }
    s->batches.running_last = NULL;
}
