/* SPDX-License-Identifier: Apache-2.0
 *
 * in_flight.c - the memory of requests in flight, as sorted spans; a search takes logarithmic time.
 *
 * Spans of ended requests stay until one of them overlaps a new request, or the table is full. So a wait costs nothing
 * here. A program's next step begins with nothing in flight, so it finds an empty table.
 */
#include "world/in_flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of spans that begin before `place`. */
static size_t before(const hc__spans *s, const char *place) {
    size_t low = 0, high = s->many;
    if (high && s->at[high - 1].begin < place) /* requests often come in the order of their memory */
        return high;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->at[middle].begin < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void find_reach(hc__spans *s, size_t from) {
    for (size_t i = from; i < s->many; i++) {
        const char *reach = i && s->at[i - 1].reach > s->at[i].end ? s->at[i - 1].reach : s->at[i].end;
        if (i > from && s->at[i].reach == reach)
            return; /* the later ones are unchanged, too */
        s->at[i].reach = reach;
    }
}

/* Drops the spans of the handle; NULL: of all requests that have ended. */
static void drop(hc__spans *s, const hc_handle *handle) {
    size_t kept = 0;
    for (size_t i = 0; i < s->many; i++) {
        if (handle ? s->at[i].handle == handle : hc_handle_done(s->at[i].handle)) {
            hc_handle_release(s->at[i].handle);
            continue;
        }
        s->at[kept] = s->at[i];
        s->at[kept].reach = NULL;
        kept++;
    }
    s->many = kept;
    find_reach(s, 0);
}

static void count(hc_in_flight *f) {
    atomic_store_explicit(&f->many, f->inputs.many + f->outs.many, memory_order_relaxed);
}

static const hc_handle *find(hc__spans *s, const char *begin, const char *end, int operation) {
    size_t at = before(s, end);
    if (at == 0 || s->at[at - 1].reach <= begin)
        return NULL;
    drop(s, NULL);
    for (at = before(s, end); at > 0 && s->at[at - 1].reach > begin; at--) {
        const hc__span *span = &s->at[at - 1];
        int same = span->begin == begin && span->end == end && operation == HC_BROADCAST &&
                   span->handle->request.operation == HC_BROADCAST;
        if (span->end > begin && !same)
            return span->handle;
    }
    return NULL;
}

/* NULL, or the request in flight that conflicts with the extent. */
static const hc_handle *find_other(hc_in_flight *f, const hc_extent *e, int operation) {
    const hc_handle *other = e->begin < e->end ? find(&f->outs, e->begin, e->end, operation) : NULL;
    return other || !e->writes || e->begin >= e->end ? other : find(&f->inputs, e->begin, e->end, operation);
}

static int make_room(hc__spans *s) {
    if (s->many < s->room)
        return HC_OK;
    drop(s, NULL);
    if (s->many * 2 < s->room)
        return HC_OK;
    size_t room = s->room * 2 + 64;
    hc__span *grown = realloc(s->at, room * sizeof *grown);
    if (!grown)
        return HC_NO_MEMORY;
    s->at = grown;
    s->room = room;
    return HC_OK;
}

static int add(hc_in_flight *f, const hc_extent *e, hc_handle *handle) {
    hc__spans *s = e->writes ? &f->outs : &f->inputs;
    if (e->begin >= e->end)
        return HC_OK;
    if (make_room(s) != HC_OK)
        return HC_NO_MEMORY;
    size_t at = before(s, e->begin);
    memmove(s->at + at + 1, s->at + at, (s->many - at) * sizeof *s->at);
    s->at[at] = (hc__span){.begin = e->begin, .end = e->end, .handle = handle};
    s->many++;
    hc_handle_retain(handle);
    find_reach(s, at);
    return HC_OK;
}

static void describe(const hc_handle *h, char text[HC_IN_FLIGHT_WORDS]) {
    int shown = h->request.name_len < 80 ? (int)h->request.name_len : 80;
    if (h->op)
        snprintf(text, HC_IN_FLIGHT_WORDS, "a %s", h->op->receives ? "recv" : "send");
    else
        snprintf(text, HC_IN_FLIGHT_WORDS, "%s '%.*s'", hc_operation_name(h->request.operation), shown,
                 h->request.name);
}

static int check(hc_in_flight *f, hc_claim *claim) {
    for (claim->at = 0; claim->at < claim->n; claim->at++) {
        const hc_handle *other = find_other(f, &claim->extents[claim->at], claim->operation);
        if (other) {
            describe(other, claim->its);
            return HC_INVALID;
        }
    }
    return HC_OK;
}

static int record(hc_in_flight *f, const hc_claim *claim) {
    int status = HC_OK;
    for (size_t i = 0; i < claim->n && status >= 0; i++)
        status = add(f, &claim->extents[i], claim->handle);
    if (status < 0) {
        drop(&f->inputs, claim->handle);
        drop(&f->outs, claim->handle);
    }
    return status;
}

int hc_in_flight_claim(hc_in_flight *f, hc_claim *claim) {
    pthread_mutex_lock(&f->lock);
    int status = check(f, claim);
    if (status >= 0 && claim->handle)
        status = record(f, claim);
    count(f);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static int earlier(const void *a, const void *b) {
    const char *left = ((const hc_extent *)a)->begin, *right = ((const hc_extent *)b)->begin;
    return (left > right) - (left < right);
}

int hc_extents_conflict(hc_extent *extents, size_t n) {
    const char *read_to = NULL, *written_to = NULL;
    qsort(extents, n, sizeof *extents, earlier);
    for (size_t i = 0; i < n; i++) {
        const hc_extent *e = &extents[i];
        const char **to = e->writes ? &written_to : &read_to;
        if (e->begin < written_to || (e->writes && e->begin < read_to))
            return e->array;
        *to = e->end > *to ? e->end : *to;
    }
    return -1;
}

static void clear(hc__spans *s) {
    for (size_t i = 0; i < s->many; i++)
        hc_handle_release(s->at[i].handle);
    s->many = 0;
}

void hc_in_flight_clear(hc_in_flight *f) {
    pthread_mutex_lock(&f->lock);
    clear(&f->inputs);
    clear(&f->outs);
    count(f);
    pthread_mutex_unlock(&f->lock);
}

void hc_in_flight_init(hc_in_flight *f) {
    pthread_mutex_init(&f->lock, NULL);
}

void hc_in_flight_free(hc_in_flight *f) {
    hc_in_flight_clear(f);
    free(f->inputs.at);
    free(f->outs.at);
    f->inputs = f->outs = (hc__spans){0};
}
