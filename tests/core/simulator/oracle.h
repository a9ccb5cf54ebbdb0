/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle.h - the same program on an omniscient machine: what must end, how, and what must hang.
 */
#ifndef SIM_ORACLE_H
#define SIM_ORACLE_H

#include "program.h"

enum { SIM_UNKNOWN = 1 }; /* outcome of a handle that never ends; other outcomes are enum hc_status */

typedef struct sim_ideal {
    int *outcome;                   /* by handle */
    int pc[SIM_RANKS][SIM_THREADS]; /* where each thread ends or hangs */
    uint8_t joined[SIM_SETS][SIM_RANKS];
    int pending[SIM_SETS][SIM_NAMES][SIM_RANKS]; /* handle + 1 of what never met the others */
    int *behind;                                 /* by handle: handle + 1 of what is behind this refusal */
} sim_ideal;

/* Only for programs that do not stop or fail: with those, what was committed first is a matter of timing. */
void sim_ideal_run(const sim_program *, sim_arena *, sim_ideal *);

#endif
