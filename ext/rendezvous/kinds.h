/* SPDX-License-Identifier: Apache-2.0
 *
 * kinds.h - what the kinds of rendezvous share: their making, limits of their waits, texts about missing ranks.
 */
#pragma once

#include "rendezvous/rendezvous.h"

#define HC__SECOND 1000000000ull
#define HC__GRACE (5 * HC__SECOND) /* other ranks wait so much longer than rank 0, which knows the missing ranks */
#define HC__REPORT_EVERY (10 * HC__SECOND)

/* Allocates a rendezvous that begins with an hc_rendezvous, and fills that in. NULL: no memory, and `why` says so. */
void *hc__rendezvous_new(size_t bytes, const hc_rendezvous_ops *, const hc_rendezvous_terms *,
                         char why[HC_RENDEZVOUS_WHY]);

uint64_t hc__now_ns(void);
/* Prints the missing ranks, at most every ten seconds. `here`: for each rank, whether its value has come. */
void hc__report_missing(const hc_rendezvous *, const uint8_t *here, uint64_t *reported);
/* Each writes `why`, and returns TRANSPORT. */
int hc__ranks_missing(hc_rendezvous *, const uint8_t *here);
int hc__root_missing(hc_rendezvous *);
int hc__other_version(hc_rendezvous *, int32_t rank, const char *version); /* "": not known */
