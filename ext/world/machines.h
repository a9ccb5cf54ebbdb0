/* SPDX-License-Identifier: Apache-2.0
 *
 * machines.h - machines, and the nodes of the ranks: one for each machine, or as many as the knob `nodes` asks for.
 */
#pragma once

#include "world/why.h"

#include <stdint.h>

#define HC_MACHINE_BYTES 160
/* Names the machine of this process: its host, the host's boot, and its /dev/shm, of which containers on one host may
 * have several. Equal on processes that can share memory. */
void hc_machine_name(char name[HC_MACHINE_BYTES]);

/* Writes the node of each rank, numbered by first appearance. `machine_of`: of each rank, numbers below `size`; NULL:
 * there is one machine. `nodes`: "" makes each machine a node; "2" cuts the ranks of each machine into two contiguous
 * blocks, "3+1" into blocks of 3 and 1. Returns the number of nodes; or INVALID and why, or NO_MEMORY. */
int32_t hc_machines_to_nodes(const int32_t *machine_of, int32_t size, const char *nodes, int32_t *node_of,
                             char why[HC_WHY]);
