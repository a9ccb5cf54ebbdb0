/* SPDX-License-Identifier: Apache-2.0
 *
 * renumber.h - finds out that ranks know one call without a name by different numbers, and names these calls anew.
 *
 * All ranks make these calls in one order, and the log says which of them are agreed. So the oldest one that is not
 * agreed is the same call on every rank that has one. If it had the same name on all of them it would be complete. A
 * rank whose oldest such call waits for HC__NUMBERS_WAIT raises RENUMBER, which the next agreement on a call without a
 * name voids (T11). When all ranks have raised it, and no call without a name is ready, the names differ. Then an entry
 * with the flag RENUMBER names all calls by their positions in the order, for good (L0): they are agreed as new ones.
 */
#pragma once

#include "core/request.h"

void hc__renumber_tick(hc__set *);                                /* call it when pending.unnamed.due has come */
void hc__renumber_have(hc__set *, uint32_t source, uint64_t tag); /* the source has raised it at this position */
void hc__renumber_check(hc__set *);                               /* call it when sources have raised it, or joined */
int hc__renumber_ready(const hc__set *);                          /* at the root: the names differ */
void hc__renumber_void(hc__set *);                                /* T11 */
void hc__renumber(hc__set *);                                     /* L0 */
/* T6: 1: the first announcement is older than L0. Its rank will announce the call again. */
int hc__renumber_voids(const hc__set *, const hc__sig_view *);
