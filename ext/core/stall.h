/* SPDX-License-Identifier: Apache-2.0
 *
 * stall.h - reports long waits, and breaks the World beyond a limit.
 */
#pragma once

#include "core/base.h"

void hc__stall_tick(hc__set *);
uint64_t hc__stall_deadline(const hc__set *);           /* when hc__stall_tick() has something to do */
void hc__stall_silent(hc_engine *, const char *silent); /* HC_EV_SILENT; NULL: no rank is silent */
