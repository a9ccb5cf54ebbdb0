/* SPDX-License-Identifier: Apache-2.0
 *
 * comms.h - a communicator of NCCL for some ranks of a set, from what all ranks say about themselves to its end.
 *
 *     facts   each rank tells its version of NCCL, its GPU, and whether MPI may have that one's memory, to all others
 *             through the host's data plane
 *     ids     the first rank of each group makes an id and tells it
 *     init    NCCL connects the ranks, while it is asked how far it is
 *
 * None of it blocks. Where the facts forbid NCCL, all ranks learn the same sentence. Ids are told rather than made by
 * ncclCommSplit(): a split is a collective of all ranks of another communicator (docs/decisions/0021, 0024).
 */
#ifndef HC_COMMS_H
#define HC_COMMS_H

#include "cuda/driver/device_own.h"
#include "cuda/nccl/nccl.h"

typedef struct hc__comms {
    /* set by the maker */
    hc_device *device;
    hc_data *host;      /* of the whole set; idle until this is open */
    int32_t rank, size; /* in the set */
    const int32_t *node_of;
    const int32_t *group_of; /* ranks of one group get a communicator together */
    uint8_t shares;          /* ranks may be on one GPU: a test's business */
    uint8_t alone;           /* all groups have one rank: facts are told, NCCL is not opened, and there is no comm */
    uint8_t gpu_aware;       /* what this rank says */
    uint64_t patience;       /* ns without progress until it is given up; 0: never */

    int32_t against; /* the first rank that says MPI may not have its GPU's memory; -1: none does */
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
/* Whether what was asked of NCCL has been taken in: HC_DONE, HC_IDLE: not yet; else a status with text. `status`: what
 * the call itself answered, or HC_NCCL_IN_PROGRESS to ask again. */
int hc__comms_settle(hc__comms *, const char *call, int status);
/* HC_IDLE while patience lasts, counted from the last move; then a status with text. */
int hc__comms_wait(hc__comms *, const char *what);
/* Ends what is under way: its streams come to their end, with any values. */
void hc__comms_abort(hc__comms *);
void hc__comms_close(hc__comms *); /* waits a little for the others; then aborts */

uint64_t hc__comms_now(void); /* ns */

#endif
