/* SPDX-License-Identifier: Apache-2.0
 *
 * tuning.h - the World's knobs that may change at run time, at this rank's position of the log.
 */
#pragma once

#include "loop/loop.h"

typedef struct hc__tuned { /* the driver writes them */
    atomic_ullong fusion_threshold, raise_bytes, raise_window;
    atomic_ullong changes, at; /* changes: incremented before and after each write; at: time of the last, ns */
} hc__tuned;

void hc__tuning_begin(hc_loop *);
void hc__tuning_perform(hc_loop *, const hc_action *);
