/* SPDX-License-Identifier: Apache-2.0
 *
 * control_segment.h - what the node control segment offers to its neighbours in ext/transport. (Private to ext/transport.)
 */
#ifndef HC_CONTROL_SEGMENT_H
#define HC_CONTROL_SEGMENT_H

#include "transport/shm/cells.h"
#include "transport/shm/byte_ring.h"
#include "transport/shm/shm.h"

#define HC__LOCAL_MAX 256
#define HC__MASK_WORDS (HC__LOCAL_MAX / 64)

/* A set of local ranks. */
typedef struct hc__mask {
    uint64_t word[HC__MASK_WORDS];
} hc__mask;

static inline void hc__mask_add(hc__mask *mask, int32_t rank) {
    mask->word[rank / 64] |= UINT64_C(1) << (rank % 64);
}

int32_t hc__node_control_rank(const hc_node_control *);
int32_t hc__node_control_size(const hc_node_control *);
int32_t hc__node_control_world_rank(const hc_node_control *, int32_t local_rank);

/* Rings the bells of those in `mask` who sleep or are about to. What the caller published before is seen by
 * whoever is woken. [any thread] */
void hc__bells_ring(hc_node_control *, const hc__mask *mask);

/* The control ring from one local rank to another; hc__node_control_ring_room() bytes of data. */
hc__ring *hc__node_control_ring(hc_node_control *, int32_t from, int32_t to);
size_t hc__node_control_ring_room(const hc_node_control *);
/* The writer of a ring to `to` says that there is something in it; then it rings the bell. */
void hc__node_control_mark_dirty(hc_node_control *, int32_t to);
/* The rings to this rank that were marked since the last call; 0 when there are none. */
int hc__node_control_take_dirty(hc_node_control *, hc__mask *from);

/* The cells that a local rank owns. */
hc__cells *hc__node_control_cells(const hc_node_control *, int32_t local_rank);

#endif
