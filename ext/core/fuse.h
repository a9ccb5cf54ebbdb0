/* SPDX-License-Identifier: Apache-2.0
 *
 * fuse.h - cuts the agreed requests of an entry into batches.
 */
#pragma once

#include "core/request.h"

/* A request of this entry that will run: its agreed signature and, where this rank takes part, its name. */
typedef struct hc__agreed {
    hc__sig *sig;
    uint32_t name; /* HC__NONE: this rank has joined */
    uint8_t cached;
} hc__agreed;

void hc__fuse(hc__set *, const hc__agreed *, uint32_t n);
