/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h - the control plane's edges: small messages, whole and in order, within the node and between nodes.
 */
#ifndef HC_CONTROL_H
#define HC_CONTROL_H

#include "transport/net/net.h"
#include "transport/progress.h"
#include "transport/shm/control_segment.h"

/* Messages of any size, whole, FIFO per pair of ranks. send takes a copy and never fails for lack of room. */
typedef struct hc_control hc_control;
struct hc_control {
    const struct hc_control_ops *ops;
    hc_counter local_messages, local_bytes, net_messages, net_bytes;
    /* [any thread] Ranks to which something has not left, or that progress has not yet reported. */
    _Atomic uint32_t waiting;
};
struct hc_control_ops {
    int (*send)(hc_control *, int32_t peer, const void *, size_t bytes);
    /* 1: a message of so many bytes would leave this process at once, and leave room for others. Else the driver's
     * doorbell is rung when there is more room, or the net is to be polled. A status below 0: as of send. */
    int (*takes)(hc_control *, int32_t peer, size_t bytes);
    int (*has_left)(hc_control *, int32_t peer); /* 1: all that was sent to it has left this process */
    /* The next whole message, valid until the next receive: HC_DONE, or HC_IDLE. */
    int (*receive)(hc_control *, int32_t *peer, const uint8_t **bytes, size_t *nbytes);
    /* Moves what is queued. *peer: a rank whose queue just became empty, or -1 (the loop says SENT). */
    int (*progress)(hc_control *, int32_t *peer);
    void (*free)(hc_control *);
};

/* Rings in the node control segment for the ranks of this node, `net` (borrowed; may be NULL) for all others.
 * local_of[r]: local rank in the node control segment of World rank r, or -1; copied. */
int hc_control_new(hc_node_control *, hc_net *, const int32_t *local_of, int32_t world_size, hc_control **);

#endif
