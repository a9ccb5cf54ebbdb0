/* SPDX-License-Identifier: Apache-2.0
 *
 * stall_query.h - asks over the tree which ranks are awaited.
 */
#pragma once

#include "core/base.h"

void hc__stall_query(hc__set *, uint32_t source, const uint64_t key[2]); /* a source waits for this item */
int hc__stall_query_receive(hc__set *, int message, uint32_t source, const uint8_t *, size_t);
void hc__stall_query_tick(hc__set *); /* ends the questions whose time is over */
