/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.c - what all kinds of rendezvous share, and the rendezvous of a rank that is alone.
 */
#include "rendezvous/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int hc_rendezvous_allgather(hc_rendezvous *r, const void *mine, size_t bytes, void *all) {
    if (r->size > 1)
        return r->ops->allgather(r, mine, bytes, all);
    memcpy(all, mine, bytes);
    return HC_OK;
}

static int allgather(void *of, const char *name, const void *mine, size_t bytes, void *all) {
    (void)name;
    return hc_rendezvous_allgather(of, mine, bytes, all);
}

hc_exchange hc_rendezvous_exchange(hc_rendezvous *r) {
    return (hc_exchange){allgather, r, r->size};
}

void *hc__rendezvous_new(size_t bytes, const hc_rendezvous_ops *ops, const hc_rendezvous_terms *terms,
                         char why[HC_RENDEZVOUS_WHY]) {
    hc_rendezvous *r = calloc(1, bytes);
    snprintf(why, HC_RENDEZVOUS_WHY, "%s", r ? "" : hc_status_text(HC_NO_MEMORY));
    if (r)
        *r = (hc_rendezvous){
            .ops = ops, .rank = terms->rank, .size = terms->size, .timeout = terms->timeout, .version = terms->version};
    return r;
}

void hc_rendezvous_free(hc_rendezvous *r) {
    if (r && r->ops->free)
        r->ops->free(r);
    else
        free(r);
}

/* ---- a rank alone ------------------------------------------------------------------------------------------ */

static const hc_rendezvous_ops alone = {.met = ""};

int hc_rendezvous_alone(const hc_rendezvous_terms *terms, hc_rendezvous **made, char why[HC_RENDEZVOUS_WHY]) {
    hc_rendezvous *r = hc__rendezvous_new(sizeof *r, &alone, terms, why);
    if (!r)
        return HC_NO_MEMORY;
    r->rank = 0;
    r->size = 1;
    *made = r;
    return HC_OK;
}

/* ---- limits and missing ranks ------------------------------------------------------------------------------ */

uint64_t hc__now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * HC__SECOND + (uint64_t)now.tv_nsec;
}

/* "rank 1, rank 2, rank 5 and 3 more", with hosts and processes where they are known */
static void name_missing(const hc_rendezvous *r, const uint8_t *here, char text[400]) {
    int32_t missing = 0, named = 0;
    size_t at = 0;
    char who[HC_WHO];
    text[0] = 0;
    for (int32_t rank = 0; rank < r->size; rank++)
        missing += !here[rank];
    for (int32_t rank = 0; rank < r->size && named < 8 && at < 400; rank++)
        if (!here[rank])
            at += (size_t)snprintf(text + at, 400 - at, "%s%s", named++ ? ", " : "", hc_who(r->processes, rank, who));
    if (missing > named && at < 400)
        snprintf(text + at, 400 - at, " and %d more", (int)(missing - named));
}

void hc__report_missing(const hc_rendezvous *r, const uint8_t *here, uint64_t *reported) {
    char missing[400];
    if (hc__now_ns() - *reported < HC__REPORT_EVERY)
        return;
    *reported = hc__now_ns();
    name_missing(r, here, missing);
    fprintf(stderr, "hpccoll: start: waiting for %s\n", missing);
}

int hc__ranks_missing(hc_rendezvous *r, const uint8_t *here) {
    char missing[400];
    name_missing(r, here, missing);
    snprintf(r->why, sizeof r->why, "no word from %s within %g s (HPCCOLL_START_TIMEOUT)", missing,
             (double)r->timeout / 1e9);
    return HC_TRANSPORT;
}

int hc__root_missing(hc_rendezvous *r) {
    snprintf(r->why, sizeof r->why, "no word from rank 0 within %g s (HPCCOLL_START_TIMEOUT)",
             (double)(r->timeout + HC__GRACE) / 1e9);
    return HC_TRANSPORT;
}

int hc__other_version(hc_rendezvous *r, int32_t rank, const char *version) {
    snprintf(r->why, sizeof r->why, "rank %d runs hpccoll %.15s, rank %d runs %s: start all ranks with one library",
             (int)rank, *version ? version : "of another version", (int)r->rank, r->version);
    return HC_TRANSPORT;
}
