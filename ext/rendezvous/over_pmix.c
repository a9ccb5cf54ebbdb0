/* SPDX-License-Identifier: Apache-2.0
 *
 * over_pmix.c - the rendezvous of the ranks that a launcher with a PMIx server has started. PMIx does not say which
 * ranks are missing.
 */
#include "rendezvous/pmix.h"
#include "rendezvous/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_BYTES 16 /* before the value of each rank */

/* Copies the values of all ranks behind their versions; a status, if a rank has another version or step. */
static int unpack(hc_rendezvous *r, const char *packed, const size_t *sizes, size_t bytes, char *all) {
    for (int32_t rank = 0; rank < r->size; rank++) {
        if (sizes[rank] < VERSION_BYTES || strncmp(packed, r->version, VERSION_BYTES) != 0)
            return hc__other_version(r, rank, sizes[rank] < VERSION_BYTES ? "" : packed);
        if (sizes[rank] != VERSION_BYTES + bytes) {
            snprintf(r->why, sizeof r->why,
                     "rank %d is at another step of the start than rank %d: all ranks make the "
                     "same Worlds in the same order",
                     (int)rank, (int)r->rank);
            return HC_TRANSPORT;
        }
        memcpy(all + (size_t)rank * bytes, packed + VERSION_BYTES, bytes);
        packed += sizes[rank];
    }
    return HC_OK;
}

static int exchange(hc_rendezvous *r, const char *mine, size_t bytes, size_t *sizes, char **packed) {
    char why[HC_PMIX_WHY] = "";
    int status = hc_pmix_exchange(mine, bytes, r->timeout, sizes, packed, why);
    if (status == HC_STALLED)
        snprintf(r->why, sizeof r->why,
                 "no word from some rank within %g s (HPCCOLL_START_TIMEOUT); PMIx does not say "
                 "from which one",
                 (double)r->timeout / 1e9);
    else if (status < 0)
        snprintf(r->why, sizeof r->why, "%s", *why ? why : hc_status_text(status));
    return status;
}

static int allgather(hc_rendezvous *r, const void *mine, size_t bytes, void *all) {
    char *value = calloc(1, VERSION_BYTES + bytes), *packed = NULL;
    size_t *sizes = calloc((size_t)r->size, sizeof *sizes);
    int status = value && sizes ? HC_OK : HC_NO_MEMORY;
    if (status >= 0) {
        snprintf(value, VERSION_BYTES, "%s", r->version);
        memcpy(value + VERSION_BYTES, mine, bytes);
        status = exchange(r, value, VERSION_BYTES + bytes, sizes, &packed);
    }
    if (status >= 0)
        status = unpack(r, packed, sizes, bytes, all);
    free(packed);
    free(sizes);
    free(value);
    return status;
}

static const hc_rendezvous_ops over_pmix = {allgather, NULL, "the ranks met through their launcher's PMIx"};

int hc_rendezvous_over_pmix(const char *prefix, const hc_rendezvous_terms *terms, hc_rendezvous **made,
                            char why[HC_RENDEZVOUS_WHY]) {
    char reason[HC_PMIX_WHY] = "";
    hc_rendezvous *r = hc__rendezvous_new(sizeof *r, &over_pmix, terms, why);
    if (!r)
        return HC_NO_MEMORY;
    int status = hc_pmix_join(prefix, &r->rank, &r->size, reason);
    if (status < 0) {
        snprintf(why, HC_RENDEZVOUS_WHY, "%s", reason);
        free(r);
        return status;
    }
    *made = r;
    return HC_OK;
}
