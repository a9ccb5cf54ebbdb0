/* SPDX-License-Identifier: Apache-2.0
 *
 * fail.c - an end without agreement: a lost peer, a broken transport, a stall beyond its limit.
 *
 * It floods all live edges once. Ranks may differ in the last operations that succeeded before; equal ones would need
 * consensus.
 */
#include "core/fail.h"

#include "core/actions.h"
#include "core/complete.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/pending.h"
#include "core/query.h"
#include "core/state.h"
#include "core/text.h"
#include "core/tree.h"
#include "core/wire.h"

/* 1: all sets have stopped in order; then a leaving peer breaks nothing. */
static int is_over(const hc_engine *e) {
    if (!hc__set_find(e, 0))
        return 0;
    for (uint32_t i = 0; i < e->nsets; i++)
        if (e->sets[i] && (!e->sets[i]->end.stopped || e->sets[i]->batches.running))
            return 0;
    return 1;
}

static int is_edge(const hc__set *s, int32_t peer) {
    return s && (s->parent == peer || hc__set_source(s, peer) != 0);
}

/* 1: `peer` is an edge of a set before number `end`, so it has the message already. */
static int has_message(const hc_engine *e, uint32_t end, int32_t peer) {
    for (uint32_t i = 0; i < end; i++)
        if (is_edge(e->sets[i], peer))
            return 1;
    return 0;
}

/* Writes the flooded message, with its text; both live as long as the engine. Returns its size. */
static size_t compose(hc_engine *e, int status, int32_t lost, const char *text) {
    uint8_t *p = hc__write_header(e->failure.message, HC__M_FAIL, 0);
    hc__text words = hc__text_on((char *)e->failure.message + HC__FAIL_FIXED, HC__TEXT);
    hc__put(&words, text);
    p = hc__write32(p, (uint32_t)status);
    p = hc__write32(p, (uint32_t)lost);
    hc__write32(p, (uint32_t)words.len);
    return HC__FAIL_FIXED + words.len;
}

static void flood(hc_engine *e, size_t nbytes, int32_t lost, int32_t from) {
    for (uint32_t i = 0; i < e->nsets; i++) {
        const hc__set *s = e->sets[i];
        for (int32_t k = -1; s && k < s->nchildren; k++) {
            int32_t peer = k < 0 ? s->parent : s->children[k].rank;
            if (peer < 0 || peer == lost || peer == from || has_message(e, i, peer))
                continue;
            if (k < 0)
                hc__send_up(e, peer, e->failure.message, nbytes);
            else
                hc__send_down(e, peer, e->failure.message, nbytes);
        }
    }
}

static void end_set(hc__set *s, int status, const char *text) {
    while (s->pending.oldest != HC__NONE) {
        uint32_t name = s->pending.oldest;
        hc__pending_unlink(s, name);
        hc__finish(s, name, status, text, s->position);
    }
    for (uint32_t name = 0; name < s->names.room; name++) /* requests that are in a batch, or will be in this step */
        if (s->names.at[name].phase == HC__RUNNING)
            hc__finish(s, name, status, text, s->names.at[name].position);
    if (s->joins.ticket)
        hc__complete(s->engine, s->joins.ticket, status, text, s->position);
    s->joins.ticket = 0;
    s->joins.joined = s->joins.is_loose = 0;
    hc__running_free(s);
    hc__tree_clear(s);
    hc__queries_free(s);
}

static void keep_failure(hc_engine *e, const char *text) {
    e->failure.text = hc__alloc(e, HC__TEXT);
    if (!e->failure.text)
        return;
    hc__text kept = hc__text_on(e->failure.text, HC__TEXT);
    hc__put(&kept, hc_status_text(HC_BROKEN));
    hc__put(&kept, ": ");
    hc__put(&kept, text);
}

void hc__fail(hc_engine *e, int status, int32_t lost, const char *text, int32_t from) {
    int over = is_over(e);
    if (e->failure.failed || e->failure.flooded || (over && from < 0))
        return;
    size_t nbytes = compose(e, status, lost, text && text[0] ? text : hc_status_text(status));
    text = (const char *)e->failure.message + HC__FAIL_FIXED;
    flood(e, nbytes, lost, from);
    e->failure.flooded = 1;
    if (over) /* only forwarded, for ranks whose sets have not ended; here nothing can break */
        return;
    e->failure.failed = 1;
    hc__act_withdraw(e, HC_AC_RUN); /* the owners may use the arrays again after this step */
    keep_failure(e, text);
    hc_action *action = hc__act_surely(e, HC_AC_FAILED);
    action->status = status;
    action->peer = lost;
    action->text = text;
    for (uint32_t i = 0; i < e->nsets; i++)
        if (e->sets[i])
            end_set(e->sets[i], status, text);
    e->retime = 1;
}

int hc__fail_receive(hc_engine *e, int32_t from, const uint8_t *message, size_t nbytes) {
    char buffer[HC__TEXT];
    hc__reader r = {.at = message + HC__HEADER, .end = message + nbytes};
    int32_t status = (int32_t)hc__read32(&r), lost = (int32_t)hc__read32(&r);
    uint32_t n = hc__read32(&r);
    const uint8_t *bytes = hc__read_bytes(&r, n);
    if (!bytes || r.at != r.end || status >= 0 || hc_status_name(status)[0] == '?' || lost < -1 ||
        lost >= e->config.size)
        return HC_BAD_MESSAGE;
    hc__text text = hc__text_on(buffer, sizeof buffer);
    hc__put_some(&text, (const char *)bytes, n);
    hc__fail(e, status, lost, buffer, from);
    return 0;
}
