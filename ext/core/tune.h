/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.h - the knobs of a set that change at run time. The root proposes them, and the log determines from when they
 * are valid.
 */
#pragma once

#include "core/base.h"
#include "core/wire.h"

typedef struct hc__tune {
    hc_tuning now;
    hc_tuning proposed; /* at the root; if is_proposed */
    uint8_t is_proposed;
} hc__tune;

#define HC__TUNING_BYTES (3 * 8)

int hc__tune_propose(hc__set *, const hc_tuning *); /* HC_EV_TUNE: 0, or HC_INVALID */
uint8_t *hc__tune_write(hc__set *, uint8_t *);      /* writes the proposal into an entry and clears it */
void hc__tune_read(hc__reader *, hc_tuning *);
void hc__tune_apply(hc__set *, const hc_tuning *);
