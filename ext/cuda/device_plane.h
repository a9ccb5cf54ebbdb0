/* SPDX-License-Identifier: Apache-2.0
 *
 * device_plane.h - a set's data plane for a device, as its files see it: device_paths.c chooses and opens,
 * device_data.c runs.
 */
#ifndef HC_DEVICE_PLANE_H
#define HC_DEVICE_PLANE_H

#include "cuda/nccl/nccl_direct.h"
#include "cuda/staged/p2p_buffers.h"
#include "cuda/staged/staged.h"
#include "cuda/nccl/launch_order.h"

/* How the batch that runs is moved. */
enum hc__path {
    HC__PATH_STAGED,  /* through the host */
    HC__PATH_OPENING, /* waits until communicators are open */
    HC__PATH_QUEUED,  /* waits for its place in the order of launches */
    HC__PATH_STAGES,  /* by the stages of a hierarchy, whose node is NCCL or one rank */
    HC__PATH_ROWS,    /* rows over one communicator */
    HC__PATH_FLAT     /* by `flat` */
};

typedef struct hc__plane {
    hc_data base;
    hc_device_data_config config;
    hc_plane_parts parts;
    /* What is large: NULL, or a plane over the same host, whose communicator joins all ranks. */
    struct hc__plane *flat;
    uint8_t is_for_large;      /* this is another one's `flat` */
    hc_launch_order own_order; /* between the two, where no other set is in one order with this one */
    hc_device *device;         /* NULL before the first batch on it */
    uint8_t borrowed;          /* the World's */
    enum hc__path path;        /* of the batch that runs */
    hc_batch *batch;           /* HC__PATH_OPENING, HC__PATH_QUEUED: waits */
    uint64_t counts[2];        /* staged, others */
    hc__launch_slot launch;
    hc__p2p_buffers p2p_buffers;
    hc__staged staged;
    hc__comms comms;
    uint8_t opened; /* comms: begun */
    hc__sums sums;  /* where MPI is given the device's memory */
    hc__nccl_node *node;
    hc_data *fast;
    hc__nccl_rows rows;
    int32_t *group_of;                        /* of each rank: who is joined by one communicator */
    int32_t smallest, largest, nodes, groups; /* ranks of the smallest and the largest node; how many of each */
    char mpi_words[512];                      /* whether MPI gets the device's memory, and why */
    char facts[1024], why[HC_DEVICE_WHY];
} hc__plane;

/* ---- device_paths.c: the choice --------------------------------------------------------------------------------- */

/* What follows from the mode and from where the ranks are: nodes, groups. */
void hc__plane_place(hc__plane *);
/* 1: by NCCL, or by MPI on the device's memory. What communicators can do is known once they are open. */
int hc__plane_suits_nccl(const hc__plane *, const hc_batch *);
/* 1: it is for `flat`. */
int hc__plane_suits_flat(const hc__plane *, const hc_batch *);
/* 1: each rank gets its share of the reduced rows: a reducescatter. */
int hc__plane_has_shares(const hc_batch *);
/* 1: it has the stages of a hierarchy (HC__PATH_STAGES); 0: rows are exchanged (HC__PATH_ROWS). */
int hc__plane_has_stages(const hc__plane *, const hc_batch *);

/* ---- device_paths.c: opening, with the first batch that needs it: OK, or a status ------------------------------- */

int hc__plane_open_device(hc__plane *);
int hc__plane_open_staged(hc__plane *);
/* Begin; then IDLE, MOVED, or DONE: the ranks know what they have in common, and what can be fast is open. */
void hc__plane_open_comms(hc__plane *);
int hc__plane_open_test(hc__plane *);

#endif
