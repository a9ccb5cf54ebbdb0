/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.h - the end of a set's log, and the rank that caused it.
 */
#pragma once

#include "core/base.h"
#include "core/wire.h"

typedef struct hc__end {
    uint8_t stopping;       /* HC_EV_STOP here: new requests are refused */
    uint8_t stopped;        /* STOP is in the log */
    uint8_t leaving;        /* this rank has made its HC_REQUEST_LAST */
    uint8_t left;           /* LEAVE is in the log */
    int32_t first_to_leave; /* set rank, HC__OF_WORLD() or HC__NO_RANK: the first known here, then the log's */
    uint8_t nwhy;           /* bytes of its reason */
    uint8_t why[HC__WHY];
} hc__end;

void hc__stop(hc__set *, const char *why);                                /* HC_EV_STOP; NULL: in order */
void hc__child_flags(hc__set *, uint8_t flags, const hc__leaver *leaver); /* a child's flags */
hc__leaver hc__first_to_leave(const hc__set *);
void hc__keep_leaver(hc__set *, const hc__leaver *);
void hc__leave(hc__set *);       /* HC_REQUEST_LAST: leaves this set; if it is the World, all sets */
void hc__leave_check(hc__set *); /* call it after a change of pending requests or of the ranks that have left */
void hc__log_end(hc__set *);     /* STOP is in the log */
const char *hc__shut_down_text(hc__set *); /* lives until the next step */
