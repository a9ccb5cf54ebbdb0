/* SPDX-License-Identifier: Apache-2.0
 *
 * comms.h - an NCCL communicator for some ranks of a set: its setup, use and end.
 *
 *     facts   the ranks exchange, on the host, their NCCL version, their GPU, and whether MPI may read its memory
 *     ids     the first rank of each group makes an id and sends it to the others
 *     init    NCCL connects the ranks; the test polls it
 *
 * Nothing here blocks. Where the facts forbid NCCL, all ranks get the same text. Ids are exchanged because
 * ncclCommSplit() would need all ranks of another communicator (docs/decisions/0021, 0024).
 */
#pragma once

#include "cuda/driver/device_own.h"
#include "cuda/nccl/nccl.h"

typedef struct hc__comms {
    /* set by the maker */
    hc_device *device;
    hc_data *host;      /* of the whole set; idle until this is open */
    int32_t rank, size; /* in the set */
    const int32_t *node_of;
    const int32_t *group_of; /* ranks of one group get a communicator together */
    uint8_t shares;          /* ranks may use one GPU: only in tests */
    uint8_t alone;           /* all groups have one rank: facts are exchanged, NCCL stays closed, no comm */
    uint8_t gpu_aware;       /* this rank's fact */
    uint64_t patience;       /* ns without progress until it fails; 0: never */

    int32_t against; /* the first rank whose device memory MPI may not read; -1: none */
    hc_nccl nccl;
    hc_nccl_comm comm; /* NULL: alone */
    int32_t group_rank, group_size;
    int stage;
    uint8_t forbidden; /* the facts do not allow NCCL: text says why, the same on all ranks */
    uint8_t ended;     /* the communicator was aborted */
    uint64_t since;    /* when it last moved */
    int64_t *facts;
    hc_nccl_id *ids;
    hc_batch batch;
    hc_piece piece;
    char text[512];
} hc__comms;

/* Opens the library: a failure is one of the facts. */
void hc__comms_begin(hc__comms *, const char *named, const char *const *files);
/* HC_DONE: usable, or forbidden; else enum hc_progress, or a status with text. */
int hc__comms_test(hc__comms *);
/* HC_DONE: NCCL has finished the call; HC_IDLE: not yet; else a status with text. `status`: the result of the call, or
 * HC_NCCL_IN_PROGRESS to ask again. */
int hc__comms_settle(hc__comms *, const char *call, int status);
/* HC_IDLE until `patience` has passed since the last progress; then a status with text. */
int hc__comms_wait(hc__comms *, const char *what);
/* Aborts running operations: their streams end, and the values are undefined. */
void hc__comms_abort(hc__comms *);
void hc__comms_close(hc__comms *); /* waits a little for the other ranks, then aborts */

uint64_t hc__comms_now(void); /* ns */
