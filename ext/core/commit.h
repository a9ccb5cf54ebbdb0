/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.h - makes and receives entries.
 */
#pragma once

#include "core/base.h"

int hc__commit(hc__set *);                                 /* at the root: 1 when an entry was made */
int hc__entry_receive(hc__set *, const uint8_t *, size_t); /* a message, header included */
