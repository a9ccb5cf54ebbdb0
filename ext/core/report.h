/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - the answer to a stall query, as text.
 */
#pragma once

#include "core/query.h"
#include "core/text.h"

typedef struct hc__report {
    uint8_t reporter; /* 1: the receiver should print it */
    uint32_t awaited, nranks, text_len;
    int32_t ranks[HC__LISTED];
    const char *text;
} hc__report;

void hc__report_write(const hc__set *, const hc__query *, char text[HC__TEXT], hc__report *); /* at the root */
void hc__report_down(hc__set *, const hc__query *, const hc__report *); /* to all ranks that asked */
void hc__report_unanswered(hc__set *, const uint64_t key[2]); /* this rank's parent has not answered its query */
/* A report whose query has expired here; this rank may still wait. */
void hc__report_late(hc__set *, const uint64_t key[2], const hc__report *);
