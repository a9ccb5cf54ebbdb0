/* SPDX-License-Identifier: Apache-2.0
 *
 * judge.h - is what a run ended in right? Breaks the machine with a reason if not.
 */
#ifndef SIM_JUDGE_H
#define SIM_JUDGE_H

#include "machine.h"

void sim_judge(sim_machine *);

#endif
