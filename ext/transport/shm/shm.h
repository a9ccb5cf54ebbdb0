/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.h - a node over shared memory: the node's stages of the collectives of one process set.
 */
#ifndef HC_SHM_H
#define HC_SHM_H

#include "transport/node.h"
#include "transport/shm/control_segment.h"

/* The data stage of one process set on this node (shm.c). The zeroed segment is made for the set: hc_shm_bytes()
 * says how large. It is the node's from here, if this returns OK; a private one is shared by all nodes of the set
 * and goes with the last of them. locals[i]: the node control segment's local rank of the set's i-th member on this node. */
size_t hc_shm_bytes(int32_t local_size);
int hc_shm_node_new(hc_segment, hc_node_control *, const int32_t *locals, int32_t local_rank, int32_t local_size,
                    hc_node **);

#endif
