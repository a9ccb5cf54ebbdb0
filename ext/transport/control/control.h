/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h - the edges of the control plane: small messages, whole and in order, inside the node and between nodes.
 */
#pragma once

#include "transport/net/net.h"
#include "transport/progress.h"
#include "transport/shm/control_segment.h"

/* Messages of any size, whole, FIFO per pair of ranks. send copies the message and never fails because a ring is
 * full. */
typedef struct hc_control hc_control;
struct hc_control {
    const struct hc_control_ops *ops;
    hc_counter local_messages, local_bytes, net_messages, net_bytes;
    /* [any thread] Number of ranks with unsent bytes, or whose SENT progress() has not reported yet. */
    _Atomic uint32_t waiting;
};
struct hc_control_ops {
    int (*send)(hc_control *, int32_t peer, const void *, size_t bytes);
    /* 1: a message of this size would leave this process at once, with room for others. 0: wait until the driver's
     * doorbell rings for more room, or poll the net. A status below 0: as for send. */
    int (*takes)(hc_control *, int32_t peer, size_t bytes);
    int (*has_left)(hc_control *, int32_t peer); /* 1: all messages to this rank have left the process */
    /* The next whole message, valid until the next receive: HC_DONE, or HC_IDLE. */
    int (*receive)(hc_control *, int32_t *peer, const uint8_t **bytes, size_t *nbytes);
    /* Moves queued bytes. *peer: a rank whose queue just became empty, or -1; the loop tells the engine SENT. */
    int (*progress)(hc_control *, int32_t *peer);
    void (*free)(hc_control *);
};

/* Rings in the node control segment for the ranks of this node, `net` (borrowed; may be NULL) for all others.
 * local_of[r]: local rank in the node control segment of World rank r, or -1; copied. */
int hc_control_new(hc_node_control *, hc_net *, const int32_t *local_of, int32_t world_size, hc_control **);
