/* SPDX-License-Identifier: Apache-2.0
 *
 * message.h - receives control messages.
 */
#pragma once

#include "core/base.h"

/* A message for a set that this rank has not added yet. */
typedef struct hc__early {
    struct hc__early *next;
    int32_t peer;
    uint32_t wire;
    size_t nbytes;
    uint8_t bytes[];
} hc__early;

int hc__message(hc_engine *, int32_t peer, const uint8_t *, size_t);
void hc__early_replay(hc_engine *, uint32_t set); /* handles messages that arrived before the set was added */
void hc__early_free(hc_engine *);
