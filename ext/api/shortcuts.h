/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcuts.h - calls of few bytes, without a request.
 */
#pragma once

#include "api/calls.h"

/* 1: all ranks took part, and the result is complete; 0: submit a request; or the status of a wait that has broken the
 * World (error set). The call must be checked and unnamed, and its caller must wait. `counts`: NULL, or receives the
 * rows of each rank. `tried`: 1 if other ranks may have heard of the call. */
int hc__shortcut(const hc__read *, hpccoll_world *, int64_t *counts, int *tried);
/* Lets the ranks agree by their count on the request of such a call that was not tried. Submit it then. */
void hc__count(hpccoll_world *, hc_handle *);
