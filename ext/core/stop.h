/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.h - the end of a set's log, and which rank brought it about.
 */
#ifndef HC_CORE_STOP_H
#define HC_CORE_STOP_H

#include "core/base.h"
#include "core/wire.h"

typedef struct hc__end {
    uint8_t stopping;       /* HC_EV_STOP here: nothing new is taken */
    uint8_t stopped;        /* STOP is in the log */
    uint8_t leaving;        /* HC_REQUEST_LAST was asked for here */
    uint8_t left;           /* LEAVE is in the log */
    int32_t first_to_leave; /* set rank, HC__OF_WORLD() or HC__NO_RANK; of what was heard first, then the log's */
    uint8_t nwhy;           /* and why it has left: bytes */
    uint8_t why[HC__WHY];
} hc__end;

void hc__stop(hc__set *, const char *why);                                /* HC_EV_STOP; NULL: in order */
void hc__child_flags(hc__set *, uint8_t flags, const hc__leaver *leaver); /* a child's flags */
hc__leaver hc__first_to_leave(const hc__set *);
void hc__keep_leaver(hc__set *, const hc__leaver *);
void hc__leave(hc__set *);                 /* HC_REQUEST_LAST: of this set, the World: of all */
void hc__leave_check(hc__set *);           /* call it when pending requests or the ranks that have left have changed */
void hc__log_end(hc__set *);               /* STOP is in the log */
const char *hc__shut_down_text(hc__set *); /* lives until the next step */

#endif
