/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_direct.h - allgather, alltoall and reducescatter among ranks that one communicator joins: private to nccl_rows.c,
 * nccl_scatter.c and device_data.c.
 *
 * Both launch in the node's stream `work`, one piece of a batch after another, and wait for nothing on the device: what
 * the buffer holds is overwritten behind what reads it. All that decides which calls there are is known to all ranks.
 */
#ifndef HC_NCCL_DIRECT_H
#define HC_NCCL_DIRECT_H

#include "nccl_node.h"
#include "rows.h"
#include "shares.h"

/* Device memory that is used again and again in `work`. */
typedef struct hc__scratch {
    char *at;
    int64_t bytes;
} hc__scratch;
int hc__scratch_reserve(hc__nccl_node *, hc__scratch *, int64_t bytes); /* grows, doubling */
void hc__scratch_free(hc__nccl_node *, hc__scratch *);

/* A range of device memory. */
typedef struct hc__part {
    char *at;
    int64_t bytes;
} hc__part;

/* Allgather and alltoall: the counts cross, then runs of tensors: a large one as it lies, small ones packed. */
typedef struct hc__nccl_rows {
    hc__nccl_node *node;
    int64_t most; /* bytes that are packed together */
    hc__rows rows;
    uint8_t counted, cut, called;
    int32_t first, end; /* the run */
    hc__part *parts;    /* of the run: a line for what leaves, a line for what comes, by rank */
    hc__copies in, out; /* where it is packed */
    hc__scratch scratch;
} hc__nccl_rows;

/* Borrows all; of ranks that are all in the node's communicator. `host`: their data plane. chunk_bytes 0: chosen. */
int hc__nccl_rows_open(hc__nccl_rows *, hc__nccl_node *, hc_data *host, int64_t chunk_bytes);
int hc__nccl_rows_start(hc__nccl_rows *, hc_batch *);
int hc__nccl_rows_test(hc__nccl_rows *);
void hc__nccl_rows_close(hc__nccl_rows *);

/* Reducescatter: windows of all shares, packed and scaled; one tensor whose rows come out even, as it lies. */
typedef struct hc__nccl_scatter {
    hc__nccl_node *node;
    int64_t most; /* bytes of a window's parts */
    hc__shares shares;
    int late;
    uint8_t whole, cut, called;
    int64_t each, windows, next; /* bytes of a share in a window */
    int64_t from, bytes;         /* the window */
    const char *give;
    char *take;
    hc__copies in, out;
    hc__scratch scratch;
} hc__nccl_scatter;

void hc__nccl_scatter_open(hc__nccl_scatter *, hc__nccl_node *, int64_t chunk_bytes);
int hc__nccl_scatter_start(hc__nccl_scatter *, hc_batch *);
int hc__nccl_scatter_test(hc__nccl_scatter *);
void hc__nccl_scatter_close(hc__nccl_scatter *);

#endif
