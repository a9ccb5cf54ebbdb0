/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.h - a node over shared memory, for the collectives of one process set.
 */
#pragma once

#include "transport/node.h"
#include "transport/shm/control_segment.h"
#include "transport/shm/flat.h"

/* Makes the node of one process set. The segment is zeroed and has hc_shm_bytes() or less; after OK the node owns it.
 * Threads share a private segment, which the last of their nodes frees. locals[i]: local rank in the node control
 * segment of the set's i-th member on this node. */
size_t hc_shm_bytes(int32_t local_size);
/* The same for a node without shortcut that only runs chunks of at most `chunk` bytes (rounded up to whole pages). If
 * they are fewer than hc_node_chunk_bytes(), it must not run exchange() or scatter(), whose rounds need whole slots. */
size_t hc_shm_bytes_for(int32_t local_size, int64_t *chunk);
int hc_shm_node_new(hc_segment, hc_node_control *, const int32_t *locals, int32_t local_rank, int32_t local_size,
                    hc_node **);
