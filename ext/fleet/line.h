/* SPDX-License-Identifier: Apache-2.0
 *
 * line.h - the time that a cache line needs from the core of one process to that of another.
 */
#pragma once

#include <stdint.h>

typedef struct fleet_line { /* in memory that both processes share; zero before the first measurement */
    _Alignas(128) uint64_t word;
} fleet_line;

/* Both processes call it with the same `turn`, which grows from call to call, from 1 on; `first` is 1 in one of them.
 * It returns the seconds that the line takes one way, in the fastest of several groups of round trips, in the first
 * process; in the second one it returns 1. 0: the other one did not come in time, or has no core. */
double fleet_line_bounce(fleet_line *, uint32_t turn, int first);
/* The processor on which the calling thread runs; -1: unknown. */
int fleet_processor(void);
