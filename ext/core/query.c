/* SPDX-License-Identifier: Apache-2.0
 *
 * query.c - the open stall queries at this node of the tree.
 */
#include "core/query.h"

#include "core/memory.h"
#include "core/state.h"
#include "core/text.h"
#include "core/wire.h"

#define MAX_QUERIES 8u       /* per set; further queries are repeated later */
#define PATIENCE 4000000000u /* ns: the longest time that the root gives its children */

const uint64_t hc__join_key[2] = {0, 0};

static uint32_t words(const hc__set *s) {
    return (hc__sources(s) + 63) / 64;
}

void hc__query_add_asker(hc__query *q, uint32_t source) {
    q->bits[source / 64] |= 1ull << (source % 64);
}

uint64_t *hc__query_unanswered(const hc__set *s, hc__query *q) {
    return q->bits + words(s);
}

int hc__query_is_join(const uint64_t key[2]) {
    return key[0] == 0 && key[1] == 0;
}

int hc__query_has(const uint64_t *bits, uint32_t i) {
    return bits[i / 64] >> (i % 64) & 1;
}

void hc__query_clear_unanswered(const hc__set *s, hc__query *q) {
    q->unanswered = 0;
    memset(hc__query_unanswered(s, q), 0, words(s) * sizeof(uint64_t));
}

int hc__query_asks(const hc__query *q, uint32_t source) {
    return hc__query_has(q->bits, source);
}

static size_t size_of(const hc__set *s) {
    return sizeof(hc__query) + 2 * words(s) * sizeof(uint64_t);
}

hc__query *hc__query_find(const hc__set *s, const uint64_t key[2]) {
    for (hc__query *q = s->stall.queries; q; q = q->next)
        if (q->key[0] == key[0] && q->key[1] == key[1])
            return q;
    return NULL;
}

uint64_t hc__query_patience(const hc__set *s) {
    uint64_t half = s->engine->config.stall_warning / 2;
    return half && half < PATIENCE ? half : PATIENCE;
}

hc__query *hc__query_find_or_make(hc__set *s, const uint64_t key[2]) {
    hc__query *q = hc__query_find(s, key);
    if (q || s->stall.nqueries >= MAX_QUERIES || !(q = hc__alloc(s->engine, size_of(s))))
        return q;
    q->key[0] = key[0];
    q->key[1] = key[1];
    q->first_asker = HC__NONE;
    q->silent_rank = -1;
    q->deadline = hc__later(s->engine->now, 4 * hc__query_patience(s));
    q->next = s->stall.queries;
    s->stall.queries = q;
    s->stall.nqueries++;
    s->engine->retime = 1;
    return q;
}

void hc__query_drop(hc__set *s, hc__query *q) {
    hc__query **link = &s->stall.queries;
    while (*link != q)
        link = &(*link)->next;
    *link = q->next;
    s->stall.nqueries--;
    hc__free(s->engine, q, size_of(s));
    s->engine->retime = 1;
}

/* ---- messages ------------------------------------------------------------------------------------ */

uint8_t *hc__query_message(hc__set *s, int message, const uint64_t key[2], size_t more, uint8_t **p) {
    uint8_t *bytes = hc__scratch(s->engine, HC__HEADER + 16 + more);
    if (bytes)
        *p = hc__write64(hc__write64(hc__write_header(bytes, message, s->wire), key[0]), key[1]);
    return bytes;
}

uint8_t *hc__write_ranks(uint8_t *p, const int32_t *ranks, uint32_t n) {
    p = hc__write32(p, n);
    for (uint32_t i = 0; i < n; i++)
        p = hc__write32(p, (uint32_t)ranks[i]);
    return p;
}

/* ---- time, and the end --------------------------------------------------------------------------- */

uint64_t hc__query_deadline(const hc__set *s) {
    uint64_t due = HC__NEVER;
    for (const hc__query *q = s->stall.queries; q; q = q->next)
        due = q->deadline < due ? q->deadline : due;
    return due;
}

void hc__query_forget(hc__set *s, const uint64_t key[2]) {
    hc__query *q = s->stall.queries ? hc__query_find(s, key) : NULL;
    if (q)
        hc__query_drop(s, q);
}

void hc__queries_free(hc__set *s) {
    while (s->stall.queries)
        hc__query_drop(s, s->stall.queries);
    hc__free(s->engine, s->stall.last_report, HC__TEXT);
    s->stall.last_report = NULL;
}
