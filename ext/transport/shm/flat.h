/* SPDX-License-Identifier: Apache-2.0
 *
 * flat.h - a data plane that repeats one small batch inside a node: each rank writes its part beside a flag, and reads
 * the parts that it needs when the other ranks' flags are up.
 *
 * It needs no driver: any thread may call start and test, one at a time. Once a test has returned anything but HC_IDLE,
 * this rank's part is published, and no other rank needs another call of this rank.
 */
#pragma once

#include "transport/data.h"
#include "transport/node.h"
#include "transport/shm/control_segment.h"

typedef struct hc_flat_config {
    hc_batch *batch;             /* the batch of every start; borrowed, with node_divisor set */
    int32_t source;              /* the local rank that gives; -1: all */
    int32_t target;              /* the local rank that takes; -1: all */
    const hc_stream_read *reads; /* local_size entries: the range read from each rank; copied. NULL: a reduction */
    int64_t from, to;            /* a reduction: the elements that this rank takes */
    int borrows;                 /* the caller keeps the segment */
    size_t slot_bytes;           /* of the largest part; 0: no rank gives anything (a barrier) */
} hc_flat_config;

size_t hc_flat_limit(int32_t local_size); /* above this the chunks of a node are faster */
size_t hc_flat_bytes(int32_t local_size, size_t slot_bytes);
/* The segment is zeroed and has hc_flat_bytes(); after OK the plane owns it. A single rank needs none. locals[i]: local
 * rank in the node control segment of the i-th rank. */
int hc_flat_new(const hc_flat_config *, hc_segment, hc_node_control *, const int32_t *locals, int32_t local_rank,
                int32_t local_size, hc_data **);
/* 1: the start waits for that local rank of the node control segment. [the caller of test] */
int hc_flat_awaits(const hc_data *, int32_t local);
