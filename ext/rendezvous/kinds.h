/* SPDX-License-Identifier: Apache-2.0
 *
 * waits.h - what the kinds of rendezvous share: limits of their waits, and texts about ranks that are missing.
 */
#ifndef HC__RENDEZVOUS_WAITS_H
#define HC__RENDEZVOUS_WAITS_H

#include "rendezvous/rendezvous.h"

#define HC__SECOND 1000000000ull
#define HC__GRACE (5 * HC__SECOND) /* other ranks wait so much longer than rank 0, which knows the missing ranks */
#define HC__REPORT_EVERY (10 * HC__SECOND)

uint64_t hc__now_ns(void);
/* Prints the missing ranks, at most every ten seconds. `here`: for each rank, whether its value has come. */
void hc__report_missing(const hc_rendezvous *, const uint8_t *here, uint64_t *reported);
/* Each writes `why`, and returns TRANSPORT. */
int hc__ranks_missing(hc_rendezvous *, const uint8_t *here);
int hc__root_missing(hc_rendezvous *);
int hc__other_version(hc_rendezvous *, int32_t rank, const char *version); /* "": not known */

#endif
