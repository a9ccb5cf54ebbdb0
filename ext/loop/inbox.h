/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox.h - submitted handles that the driver has not taken yet.
 */
#pragma once

#include "loop/loop.h"

typedef struct hc__inbox {
    _Atomic(hc_handle *) newest; /* [any] linked by next */
    atomic_ullong bytes;         /* [any] since the last drain */
} hc__inbox;

void hc__inbox_push(hc_loop *, hc_handle *); /* [any thread] */
hc_handle *hc__inbox_take(hc_loop *);        /* oldest first; linked by next */
