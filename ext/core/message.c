/* SPDX-License-Identifier: Apache-2.0
 *
 * message.c - checks the sender of a message and passes it to the part of the set that reads it.
 */
#include "core/message.h"

#include "core/commit.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/stall_query.h"
#include "core/state.h"
#include "core/up.h"
#include "core/wire.h"

#define EARLY_BYTES (1u << 20)

/* Keeps a message for a set that its sender has added before this rank. */
static int keep_early(hc_engine *e, uint32_t wire, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    if (nbytes > EARLY_BYTES - e->early_bytes)
        return HC_BAD_MESSAGE;
    hc__early *early = hc__alloc(e, sizeof *early + nbytes);
    if (!early)
        return 0;
    hc__early **link = &e->early;
    while (*link)
        link = &(*link)->next;
    *link = early;
    e->early_bytes += nbytes;
    early->peer = peer;
    early->wire = wire;
    early->nbytes = nbytes;
    memcpy(early->bytes, bytes, nbytes);
    return 0;
}

static int for_set(hc__set *s, int message, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    int downwards = message == HC__M_ENTRY || message == HC__M_STALL_PROBE || message == HC__M_STALL_REPORT;
    uint32_t source = downwards ? 0 : hc__set_source(s, peer);
    if (downwards ? peer != s->parent : source == 0)
        return HC_BAD_MESSAGE;
    switch (message) {
    case HC__M_UP:
        return hc__up_receive(s, source, bytes + HC__HEADER, nbytes - HC__HEADER);
    case HC__M_ENTRY:
        return hc__entry_receive(s, bytes, nbytes);
    default:
        return hc__stall_query_receive(s, message, source, bytes + HC__HEADER, nbytes - HC__HEADER);
    }
}

/* The set of this number and generation, or NULL. */
static hc__set *set_called(const hc_engine *e, uint32_t wire) {
    hc__set *s = hc__set_find(e, wire % HC_MAX_SETS);
    return s && s->wire == wire ? s : NULL;
}

int hc__message(hc_engine *e, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    uint32_t wire = 0;
    hc__reader r = {.at = bytes, .end = bytes + nbytes};
    int message = bytes ? hc__read_header(&r, &wire) : 0;
    if (!message || peer < 0 || peer >= e->config.size)
        return HC_BAD_MESSAGE;
    if (message == HC__M_FAIL)
        return hc__fail_receive(e, peer, bytes, nbytes);
    if (e->failure.failed)
        return 0;
    hc__set *s = set_called(e, wire);
    if (s)
        return for_set(s, message, peer, bytes, nbytes);
    int is_over = wire / HC_MAX_SETS < e->over[wire % HC_MAX_SETS]; /* messages of an ended set are ignored */
    return is_over ? 0 : keep_early(e, wire, peer, bytes, nbytes);
}

void hc__early_replay(hc_engine *e, uint32_t set) {
    uint32_t wire = hc__set_find(e, set)->wire;
    hc__early **link = &e->early;
    while (*link) {
        hc__early *early = *link;
        if (early->wire != wire) {
            link = &early->next;
            continue;
        }
        *link = early->next;
        if (hc__message(e, early->peer, early->bytes, early->nbytes) < 0)
            hc__fail(e, HC_BAD_MESSAGE, -1, "an early message of a process set could not be decoded", -1);
        e->early_bytes -= early->nbytes;
        hc__free(e, early, sizeof *early + early->nbytes);
    }
}

void hc__early_free(hc_engine *e) {
    while (e->early) {
        hc__early *early = e->early;
        e->early = early->next;
        hc__free(e, early, sizeof *early + early->nbytes);
    }
}
