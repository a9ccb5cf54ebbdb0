/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_direct.h - allgather and alltoall over one communicator: private to nccl_direct.c, nccl_rows.c and
 * device_data.c.
 *
 * Both launch the steps of a batch in the node's stream `work`, one after another, and never wait for the device: the
 * stream's order protects the scratch memory. All ranks know the numbers that decide which calls are made.
 */
#pragma once

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
    int (*cut)(hc__step *);        /* fills `in` and `out`, empty before; OK, HC_PACK_BUSY, or a status with text */
    int (*call)(const hc__step *); /* NCCL's status */
    const char *call_name;         /* "an allgather" */
} hc__step_ops;

void hc__step_begin(hc__step *);
int hc__step_reserve(hc__step *, int64_t bytes); /* scratch memory; grows, doubling */
/* HC_DONE: all of it is launched. */
int hc__step_move(hc__step *, const hc__step_ops *);
void hc__step_free(hc__step *);

/* ---- allgather and alltoall: first the counts, then runs of tensors: a large one in place, small ones packed ---- */

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
    hc__nccl_part *parts; /* of the run: a row for outgoing bytes, a row for incoming bytes; by rank */
} hc__nccl_rows;

/* Borrows all arguments. All ranks of the set are in the node's communicator. `host`: the set's data plane. chunk_bytes
 * 0: the default. */
int hc__nccl_rows_open(hc__nccl_rows *, hc__nccl_node *, hc_data *host, const int32_t *world, int64_t chunk_bytes);
int hc__nccl_rows_start(hc__nccl_rows *, hc_batch *);
int hc__nccl_rows_test(hc__nccl_rows *);
void hc__nccl_rows_close(hc__nccl_rows *);
