/* SPDX-License-Identifier: Apache-2.0
 *
 * failures.h - delayed reports of failures of the gate's operations; private to ext/gate.
 */
#pragma once

#include "gate/gate.h"

/* Count an operation that starts, and an operation that ends. [any thread] */
void hc__gate_began(void);
void hc__gate_ended(void);
/* Calls `done` with the status and the text, in a new thread, after the program's other operations have ended. 0: out
 * of memory or threads; the caller must call `done`. [any thread] */
int hc__gate_fail_later(void (*done)(void *, hc_gate_result *), void *context, const hc_gate_result *);
