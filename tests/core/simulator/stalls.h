/* SPDX-License-Identifier: Apache-2.0
 *
 * stalls.h - the last phase of a run that hangs by itself: ranks that wait ask which ranks are awaited.
 */
#ifndef SIM_STALLS_H
#define SIM_STALLS_H

#include "machine.h"

/* Lets the stall warnings expire on every rank of a machine at rest, and compares what is reported with what
 * the oracle knows. */
void sim_stalls(sim_machine *);

#endif
