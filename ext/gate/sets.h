/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.h - the process sets that are open in the gate; private to ext/gate.
 */
#pragma once

#include "gate/gate.h"

/* Finds a set, which lives until hc__gate_leave(). HC_OK, or a status with a text. */
int hc__gate_enter(uint64_t number, const hc_gate_place **, char text[HC_GATE_TEXT]);
void hc__gate_leave(const hc_gate_place *);
