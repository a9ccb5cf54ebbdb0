/* SPDX-License-Identifier: Apache-2.0
 *
 * halo_agreement.c - writes and compares reports about a halo exchange, and places its faces in shared memory.
 */
#include "world/halo_agreement.h"

#include "core/fnv.h"
#include "world/halo_sides.h"

#include <stdlib.h>
#include <string.h>

#define SAID 300 /* bytes of a text; a hash compares what does not fit */

typedef struct report {
    uint64_t said_hash;
    uint32_t generation;
    int32_t ndim;
    int64_t shape[HC_MAX_DIMS];
    uint8_t order[HC_MAX_DIMS];
    char said[SAID];
} report;

static void write_report(const hc_halo_place *place, const hc_halo_given *given, const char *said, int refused,
                         report *mine) {
    hc_plans_used used = hc_job_used(place->job);
    *mine = (report){.generation = used.generation, .said_hash = hc_fnv(said, strlen(said))};
    snprintf(mine->said, sizeof mine->said, "%.*s", SAID - 1, said);
    if (refused < 0)
        return;
    mine->ndim = given->ndim;
    memcpy(mine->shape, given->shape, (size_t)given->ndim * sizeof *given->shape);
    hc__halo_order(given, mine->order);
}

/* ---- compare ----------------------------------------------------------------------------------------------- */

typedef struct face {
    int32_t rank, peer;
    int d, upper;
} face;

typedef int visitor(void *of, const face *);

/* Calls `visit` for each face of all ranks, until it returns a status below 0. */
static int for_each_face(const hc_halo_given *given, int32_t size, visitor *visit, void *of) {
    int status = HC_OK;
    for (int32_t rank = 0; rank < size; rank++)
        for (int d = 0; d < given->grid->ndim; d++) {
            int32_t peers[2];
            hc_grid_shift(given->grid, rank, d, 1, peers);
            for (int upper = 0; upper < 2 && given->widths[d] && status >= 0; upper++)
                if (peers[upper] >= 0)
                    status = visit(of, &(face){rank, peers[upper], d, upper});
        }
    return status;
}

typedef struct comparison {
    const hc_halo_given *given;
    const report *all;
    char *why;
} comparison;

static int compare_face(void *of, const face *f) {
    const comparison *c = of;
    const report *mine = &c->all[f->rank], *its = &c->all[f->peer];
    int64_t wanted[HC_MAX_DIMS], sent[HC_MAX_DIMS];
    char text_wanted[HC__TUPLE], text_sent[HC__TUPLE];
    hc__face_shape(c->given, mine->shape, mine->ndim, f->d, wanted);
    hc__face_shape(c->given, its->shape, its->ndim, f->d, sent);
    if (mine->ndim == its->ndim && !memcmp(wanted, sent, (size_t)mine->ndim * sizeof *wanted))
        return HC_OK;
    return hc__refuse(
        c->why, HC_MISMATCH, "halo_exchange: rank %d has a halo of shape %s for rank %d, whose side there has shape %s",
        (int)f->rank, hc__tuple(wanted, mine->ndim, text_wanted), (int)f->peer, hc__tuple(sent, its->ndim, text_sent));
}

static int compare_said(const report *all, int32_t size, char *why) {
    for (int32_t rank = 1; rank < size; rank++)
        if (all[rank].said_hash != all[0].said_hash)
            return hc__refuse(why, HC_MISMATCH, "halo_exchange: rank 0 has (dtype, width, corners) %s, rank %d has %s",
                              all[0].said, (int)rank, all[rank].said);
    return HC_OK;
}

/* ---- places in shared memory ------------------------------------------------------------------------------- */

typedef struct placement {
    const hc_halo_place *place;
    const hc_halo_given *given;
    const report *all;
    size_t *ends; /* of the segment of each node */
    hc__halo_terms *terms;
} placement;

static int place_face(void *of, const face *f) {
    const placement *p = of;
    const int32_t *node_of = p->place->job->node_of, *members = p->place->members;
    const report *its = &p->all[f->rank];
    int64_t extents[HC_MAX_DIMS];
    int32_t node = node_of[members[f->rank]], me = p->place->own.rank;
    if (f->peer <= f->rank || node_of[members[f->peer]] != node)
        return HC_OK;
    size_t bytes = (size_t)hc__face_shape(p->given, its->shape, its->ndim, f->d, extents) * p->given->element;
    if (!bytes || bytes > HC_HALO_PAIR_BYTES)
        return HC_OK;
    if (me == f->rank || me == f->peer) /* the face of the peer is on its other side */
        p->terms->places[2 * f->d + (me == f->rank ? f->upper : !f->upper)] = (int64_t)p->ends[node];
    p->ends[node] += hc_flat_bytes(2, bytes);
    if (p->ends[node] > p->terms->segment_bytes)
        p->terms->segment_bytes = p->ends[node];
    return HC_OK;
}

static void take(const hc_halo_place *place, const report *all, hc__halo_terms *terms) {
    terms->is_ordered = 1;
    for (int32_t rank = 0; rank < place->own.size; rank++) {
        if (all[rank].generation >= terms->generation)
            terms->generation = all[rank].generation + 1;
        if (memcmp(all[rank].order, all[0].order, sizeof all[0].order) != 0)
            terms->is_ordered = 0;
    }
}

/* ---- agree ------------------------------------------------------------------------------------------------- */

/* What this rank says: its arguments, or why it has refused them. Sets `status`, which is that of the caller so far. */
static const char *say(const hc_halo_given *given, int *status, char text[HC_WHY]) {
    char width[HC__TUPLE];
    if (*status >= 0)
        *status = hc_halo_check(given, text);
    else
        return given->said;
    if (*status < 0)
        return text;
    snprintf(text, HC_WHY, "(%s, %s, %d)", hc_dtype_name(given->dtype), hc__tuple(given->widths, given->nwidths, width),
             given->corners);
    return given->said ? given->said : text;
}

static int gather(const hc_exchange *exchange, const report *mine, report *all, char *why) {
    int status = exchange->allgather(exchange->of, "hpccoll.halo", mine, sizeof *mine, all);
    if (status != HC_RESULT_SIZE)
        return status;
    return hc__refuse(why, HC_MISMATCH, "halo_exchange: a rank has joined: no plan is made");
}

/* `all`: room for the reports of all ranks and that of this one. `ends`: zeros. */
static int agree(const hc_halo_place *place, const hc_halo_given *given, const hc_exchange *exchange, int refused,
                 report *all, size_t *ends, hc__halo_terms *terms, char *why) {
    int32_t size = place->own.size;
    char text[HC_WHY];
    const char *said = say(given, &refused, text);
    write_report(place, given, said, refused, all + size);
    int status = gather(exchange, all + size, all, why);
    if (status >= 0)
        status = compare_said(all, size, why);
    if (status >= 0 && refused < 0)
        status = hc__refuse(why, refused, "%s", said);
    if (status >= 0)
        status = for_each_face(given, size, compare_face, &(comparison){given, all, why});
    if (status >= 0) {
        take(place, all, terms);
        for_each_face(given, size, place_face, &(placement){place, given, all, ends, terms});
    }
    return status;
}

int hc__halo_agree(const hc_halo_place *place, const hc_halo_given *given, const hc_exchange *exchange, int refused,
                   hc__halo_terms *terms, char why[HC_WHY]) {
    report *all = calloc((size_t)place->own.size + 1, sizeof *all);
    size_t *ends = calloc((size_t)place->job->size, sizeof *ends);
    int status = HC_NO_MEMORY;
    *terms = (hc__halo_terms){0};
    memset(terms->places, 0xff, sizeof terms->places);
    why[0] = 0;
    if (all && ends)
        status = agree(place, given, exchange, refused, all, ends, terms, why);
    else
        hc__refuse(why, status, "halo_exchange: no memory for a plan");
    free(all);
    free(ends);
    return status;
}
