/* SPDX-License-Identifier: Apache-2.0
 *
 * join.h - ranks without further requests.
 *
 * A join is firm if its rank has nothing pending. Otherwise it is loose: it is void when slots are freed, and the rank
 * joins again, because it may have to raise requests again (L5).
 */
#pragma once

#include "core/base.h"

typedef struct hc__joins {
    uint32_t *firm, *loose;       /* joined ranks of each source */
    uint32_t out_firm, out_loose; /* to send up; at the root: all joined ranks */
    int32_t last;                 /* set rank of the last one to join */
    uint8_t joined;               /* this rank has joined */
    uint8_t is_loose;             /* ... and had requests pending at that time (L5) */
    uint8_t flush_owed;           /* a caller waits for a request that cannot be raised before JOINALL */
    uint8_t is_owed;              /* this rank joins after requests of its own that are not agreed */
    uint64_t ticket, since;
} hc__joins;

void hc__join(hc__set *, uint64_t ticket);
void hc__join_void(hc__set *);              /* T6: loose joins, when slots are freed */
void hc__join_again(hc__set *);             /* L5: this rank's, if it is loose */
void hc__join_owed(hc__set *);              /* call it when a refusal, or a call without a name, is agreed */
void hc__join_all(hc__set *, int32_t last); /* L6 */
