/* SPDX-License-Identifier: Apache-2.0
 *
 * flat.h - a data plane for one small batch that runs again and again inside a node: each rank writes its part beside a
 * flag, and takes what it needs when the flags of the others are up.
 *
 * It needs no driver: start and test may be called by any thread, one at a time. Once a test has not answered HC_IDLE,
 * this rank's part is there for the others, and no other rank needs this one to call again.
 */
#ifndef HC_FLAT_H
#define HC_FLAT_H

#include "transport/data.h"
#include "transport/node.h"
#include "transport/shm/control_segment.h"

typedef struct hc_flat_config {
    hc_batch *batch;             /* the batch of every start; borrowed, its node_divisor is set */
    int32_t source;              /* the local rank that gives; -1: all */
    int32_t target;              /* the local rank that takes; -1: all */
    const hc_stream_read *reads; /* local_size entries: what is taken from each rank; copied. NULL: a reduction */
    int64_t from, to;            /* a reduction: the elements that this rank takes */
    int borrows;                 /* the segment stays the caller's */
    size_t slot_bytes;           /* of the largest part that a rank gives; 0: nothing is given (a barrier) */
} hc_flat_config;

size_t hc_flat_limit(int32_t local_size); /* slot_bytes above which the chunks of a node cost less */
size_t hc_flat_bytes(int32_t local_size, size_t slot_bytes);
/* The zeroed segment, of hc_flat_bytes(), is made for the plane, which owns it after OK; a rank alone needs none.
 * locals[i]: local rank in the node control segment of the i-th rank. */
int hc_flat_new(const hc_flat_config *, hc_segment, hc_node_control *, const int32_t *locals, int32_t local_rank,
                int32_t local_size, hc_data **);
/* 1: the start waits for that local rank of the node control segment. [the caller of test] */
int hc_flat_awaits(const hc_data *, int32_t local);

#endif
