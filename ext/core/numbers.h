/* SPDX-License-Identifier: Apache-2.0
 *
 * numbers.h - the order of this rank's calls without a name, and the names that they have.
 *
 * The name of such a call is its number since its rank has last waited for all of its calls, so that a loop repeats its
 * names. Ranks that wait at different calls, as MPI allows, give one call different numbers; then the set names each
 * call by its position in the order (renumber.h).
 */
#pragma once

#include "core/request.h"

typedef struct hc__numbers {
    uint64_t last;     /* position of this rank's newest call without a name (hc_request.order) */
    uint64_t base;     /* the same at this rank's last join: positions begin anew behind a join */
    uint64_t joins;    /* of this rank */
    uint64_t due;      /* when this rank asks whether the names differ */
    uint64_t settled;  /* the last entry that has agreed on a call without a name, or has freed its slot */
    uint64_t since;    /* the time of that entry */
    uint32_t requests; /* of this rank without a name, not agreed yet */
    uint32_t later;    /* requests among them that it has made since it joined */
    uint32_t refusals; /* of such calls, not agreed yet */
    uint8_t ordered;   /* 1: calls have their positions for names */
    uint8_t *asked;    /* 1 for each source that has raised RENUMBER */
} hc__numbers;

#define HC__NUMBERS_WAIT 20000000 /* ns from a rank's last progress to its RENUMBER: no wait in a program that runs */

/* Notes that this rank makes the call. Returns a number for its position among the set's calls; 0: it has a name. */
uint64_t hc__numbers_count(hc__set *, const hc_request *);
void hc__numbers_join(hc__set *);                   /* this rank joins */
void hc__numbers_raised(hc__set *, int is_unnamed); /* this rank has raised a call */

typedef struct hc__renamed {
    hc_request request;
    char name[64];
} hc__renamed;
/* The request under the name that the set has for it: `request` itself, or `renamed`. */
const hc_request *hc__numbers_rename(const hc__set *, const hc_request *request, uint64_t order, hc__renamed *renamed);
