/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_direct.h - allgather and alltoall among ranks that one communicator joins: private to nccl_direct.c, nccl_rows.c
 * and device_data.c.
 *
 * Both launch in the node's stream `work`, one step of a batch after another, and wait for nothing on the device:
 * scratch memory is overwritten behind what reads it. All that decides which calls there are is known to all ranks.
 */
#ifndef HC_NCCL_DIRECT_H
#define HC_NCCL_DIRECT_H

#include "cuda/nccl/nccl_node.h"
#include "cuda/staged/rows.h"

/* ---- a step: the first member of an operation ------------------------------------------------------------------ */

typedef struct hc__step {
    hc__nccl_node *node;
    enum { HC__CUTTING, HC__PACKING, HC__CALLING, HC__UNPACKING } stage;
    hc__copies in, out; /* between tensors and scratch memory */
    char *scratch;      /* on the device, used again by every step */
    int64_t bytes;
} hc__step;

typedef struct hc__step_ops {
    int (*cut)(hc__step *);        /* fills in and out, which are empty; OK, HC_PACK_BUSY, or a status with text */
    int (*call)(const hc__step *); /* NCCL's answer */
    const char *call_name;         /* "an allgather" */
} hc__step_ops;

void hc__step_begin(hc__step *);
int hc__step_reserve(hc__step *, int64_t bytes); /* scratch memory; grows, doubling */
/* HC_DONE: all of it is launched. */
int hc__step_move(hc__step *, const hc__step_ops *);
void hc__step_free(hc__step *);

/* ---- allgather and alltoall: the counts cross, then runs of tensors, a large one as it lies, small ones packed -- */

/* A range of device memory. */
typedef struct hc__nccl_part {
    char *at;
    int64_t bytes;
} hc__nccl_part;

typedef struct hc__nccl_rows {
    hc__step step;
    hc__rows rows;
    uint8_t counted;
    int64_t most;         /* bytes that are packed together */
    int32_t first, end;   /* the run */
    hc__nccl_part *parts; /* of the run: a line for what leaves, a line for what comes, by rank */
} hc__nccl_rows;

/* Borrows all; of ranks that are all in the node's communicator. `host`: their data plane. chunk_bytes 0: chosen. */
int hc__nccl_rows_open(hc__nccl_rows *, hc__nccl_node *, hc_data *host, const int32_t *world, int64_t chunk_bytes);
int hc__nccl_rows_start(hc__nccl_rows *, hc_batch *);
int hc__nccl_rows_test(hc__nccl_rows *);
void hc__nccl_rows_close(hc__nccl_rows *);

#endif
