/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.h - the process sets that the gate can find; private to ext/gate.
 */
#ifndef HC_GATE_SETS_H
#define HC_GATE_SETS_H

#include "gate/gate.h"

/* The set lives until it is left. HC_OK; or SHUT_DOWN or FORKED with a text. */
int hc__gate_enter(uint64_t number, const hc_gate_place **, char text[HC_GATE_TEXT]);
void hc__gate_leave(const hc_gate_place *);

#endif
