/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.h - the end of a set's log, and which rank brought it about.
 */
#ifndef HC_CORE_STOP_H
#define HC_CORE_STOP_H

#include "core/base.h"

typedef struct hc__end {
    uint8_t stopping;       /* HC_EV_STOP here: nothing new is taken */
    uint8_t stopped;        /* STOP is in the log */
    uint8_t leaving;        /* HC_REQUEST_LAST was asked for here */
    uint8_t left;           /* LEAVE is in the log */
    int32_t first_to_leave; /* the first to stop or leave: the log's word, or what was heard before it spoke */
} hc__end;

void hc__stop(hc__set *);                                               /* HC_EV_STOP */
void hc__child_flags(hc__set *, uint8_t flags, int32_t first_to_leave); /* a child's flags */
void hc__leave(hc__set *);                 /* HC_REQUEST_LAST: of this set, the World: of all */
void hc__leave_check(hc__set *);           /* what is pending here, or who has left, has changed */
void hc__log_end(hc__set *);               /* STOP is in the log */
const char *hc__shut_down_text(hc__set *); /* lives until the next step */

#endif
