/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast.h - the state of a broadcast.
 */
#pragma once

#include "transport/net/bundle.h"

typedef struct hc__hierarchy hc__hierarchy;

/* A position in the stream of a batch's pieces. It advances by segments; a segment never spans two pieces. */
typedef struct hc__cursor {
    int32_t piece;
    int64_t offset;   /* bytes into the piece */
    int64_t position; /* bytes into the stream */
    int64_t step;     /* longest segment */
} hc__cursor;

typedef struct hc__broadcast {
    int in_chunks; /* the pipeline carries it */
    char **at;     /* the memory of each piece on this rank; NULL: not wanted */
    void *spare;   /* for a representative that needs no result */
    int64_t bytes;
    hc__cursor posted, arrived, forwarded, exchanged;
    int32_t parent, nchildren, children[32]; /* World ranks */
    hc__bundle sends;
    hc_net_request *receives[8]; /* the next segments from the parent */
    int64_t nposted, narrived;   /* segments */
} hc__broadcast;

void hc__broadcast_abandon(hc__hierarchy *);
