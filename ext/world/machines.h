/* SPDX-License-Identifier: Apache-2.0
 *
 * machines.h - the nodes of the ranks: one for each machine, or as many as the knob `nodes` asks for.
 */
#ifndef HC_MACHINES_H
#define HC_MACHINES_H

#include "world/why.h"

#include <stdint.h>

/* Writes the node of each rank, numbered by first appearance. `machine_of`: of each rank, numbers below `size`; NULL:
 * there is one machine. `nodes`: "" makes each machine a node; "2" cuts the ranks of each machine into two contiguous
 * blocks, "3+1" into blocks of 3 and 1. Returns the number of nodes; or INVALID and why, or NO_MEMORY. */
int32_t hc_machines_to_nodes(const int32_t *machine_of, int32_t size, const char *nodes, int32_t *node_of,
                             char why[HC_WHY]);

#endif
