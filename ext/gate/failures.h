/* SPDX-License-Identifier: Apache-2.0
 *
 * failures.h - failures of the gate's operations that are told later; private to ext/gate.
 */
#ifndef HC_GATE_FAILURES_H
#define HC_GATE_FAILURES_H

#include "gate/gate.h"

/* An operation is in flight, and is not any more. [any thread] */
void hc__gate_began(void);
void hc__gate_ended(void);
/* Calls `done` with the status and the text, in a thread of its own, when the program's other operations have ended.
 * 0: it cannot, and `done` is still to be called. [any thread] */
int hc__gate_fail_later(void (*done)(void *, hc_gate_result *), void *context, const hc_gate_result *);

#endif
