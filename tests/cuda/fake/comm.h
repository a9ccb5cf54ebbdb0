/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h - a communicator of the fake NCCL, and what its calls need of it.
 */
#ifndef FAKE_COMM_H
#define FAKE_COMM_H

#include "cuda/nccl/nccl.h"
#include "segment.h"

#define X(member, name, arguments) int fake_##member arguments __asm__(name);
HC_NCCL_FUNCTIONS(X)
#undef X
const char *fake_error_text(int status) __asm__("ncclGetErrorString");
const char *fake_last_error(hc_nccl_comm) __asm__("ncclGetLastError");

typedef struct comm {
    segment *segment;
    char name[64];
    int rank, size, blocking, status;
    atomic_int aborted, users; /* ranks may be threads: whoever runs a stream ends a call */
    int calls, failing;        /* failing: the number of the call that never ends */
    uint32_t chunk;            /* chunks of collectives so far, the same on all ranks when they are done */
    uint32_t sent[MAX_RANKS], received[MAX_RANKS];
    struct bundle *late; /* calls that have not been launched yet */
    hc_gpu_stream late_stream;
    int late_asks;
} comm;

void comm_let_go(comm *);
/* The status that a test plants for this rank there, or -1: see nccl.c. */
int comm_planted(const comm *, const char *where, int number);
int bundle_run(void *bundle); /* work in a stream */

#endif
