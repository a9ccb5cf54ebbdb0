/* SPDX-License-Identifier: Apache-2.0
 *
 * states.h - engines in many states, reached by the events of real simulated runs.
 */
#ifndef FUZZ_STATES_H
#define FUZZ_STATES_H

#include "core/hc.h"

enum { STATE_RANKS = 5 };

typedef struct state {
    hc_engine_config config;
    const hc_event *events; /* deep copies; the first `n` lead to the state */
    int n, total;
} state;

/* Records runs until there are `n` states; ends the process when a run goes wrong. */
void states_make(int n);
int states_count(void);
const state *state_at(int);

/* A new engine in that state. */
hc_engine *state_enter(const state *);

#endif
