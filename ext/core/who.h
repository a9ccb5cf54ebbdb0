/* SPDX-License-Identifier: Apache-2.0
 *
 * who.h - a rank in a text: its number, and where its process is.
 */
#pragma once

#include "core/text.h"

/* "3 (host n2, pid 4711)": `number` is the rank in its set, `rank` that of the World. Without processes "3". */
void hc__put_who(hc__text *, const hc_processes *, int32_t number, int32_t rank);
