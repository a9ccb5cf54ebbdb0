/* SPDX-License-Identifier: Apache-2.0
 *
 * device_plane.h - a set's data plane for a device, private to ext/cuda: device_paths.c chooses and opens,
 * device_data.c runs.
 */
#pragma once

#include "cuda/nccl/nccl_direct.h"
#include "cuda/staged/p2p_buffers.h"
#include "cuda/staged/staged.h"
#include "cuda/nccl/launch_order.h"

/* The path of the running batch. */
enum hc__path {
    HC__PATH_STAGED,  /* through the host */
    HC__PATH_OPENING, /* waits until communicators are open */
    HC__PATH_QUEUED,  /* waits for its turn in the order of launches */
    HC__PATH_STAGES,  /* by the stages of a hierarchy, whose node is NCCL or one rank */
    HC__PATH_ROWS     /* rows over one communicator */
};

typedef struct hc__plane {
    hc_data base;
    hc_device_data_config config;
    hc_plane_parts parts;
    hc_device *device;  /* NULL before the first batch on it */
    uint8_t borrowed;   /* the World closes the device */
    enum hc__path path; /* of the running batch */
    hc_batch *batch;    /* waits in HC__PATH_OPENING and HC__PATH_QUEUED */
    uint64_t counts[2]; /* staged, others */
    hc__launch_slot launch;
    hc__p2p_buffers p2p_buffers;
    hc__staged staged;
    hc__comms comms;
    uint8_t opened; /* hc__plane_open_comms() was called */
    hc__sums sums;  /* where MPI reads device memory */
    hc__nccl_node *node;
    hc_data *fast;
    hc__nccl_rows rows;
    int32_t *group_of;                        /* of each rank; one communicator joins a group */
    int32_t smallest, largest, nodes, groups; /* ranks of the smallest and largest node; number of nodes, groups */
    char mpi_words[512];                      /* why MPI reads device memory, or does not */
    char facts[1024], why[HC_DEVICE_WHY];
} hc__plane;

/* ---- device_paths.c: the choice --------------------------------------------------------------------------------- */

/* Sets nodes and groups from the mode and the placement of the ranks. */
void hc__plane_place(hc__plane *);
/* 1: the batch runs over NCCL, or over MPI on device memory. The answer is final once communicators are open. */
int hc__plane_suits_nccl(const hc__plane *, const hc_batch *);
/* 1: each rank gets its share of the reduced rows: a reducescatter. */
int hc__plane_has_shares(const hc_batch *);
/* 1: the stages of a hierarchy run it (HC__PATH_STAGES); 0: rows are exchanged (HC__PATH_ROWS). */
int hc__plane_has_stages(const hc__plane *, const hc_batch *);

/* ---- device_paths.c: opening, with the first batch that needs it: OK, or a status ------------------------------- */

int hc__plane_open_device(hc__plane *);
int hc__plane_open_staged(hc__plane *);
/* Starts to open communicators. The test gives IDLE, MOVED or DONE: the facts are exchanged, and the fast path is open
 * if there is one. */
void hc__plane_open_comms(hc__plane *);
int hc__plane_open_test(hc__plane *);
