/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.h - exchanges between the ranks at the start.
 */
#ifndef HC_API_RENDEZVOUS_H
#define HC_API_RENDEZVOUS_H

#include "core/hc.h"
#include "transport/net/mpi_net.h"

#define HC__WHY_BYTES 512

/* State of the exchanges at the start. `net` NULL: this rank is alone. */
typedef struct hc__rendezvous {
    hc_net *net;
    int32_t rank, size;
    uint64_t timeout; /* ns for each exchange */
    uint32_t number;  /* exchanges so far */
    const hc_processes *processes;
    char why[HC__WHY_BYTES]; /* text of the last failure, the same on all ranks that take part */
} hc__rendezvous;

/* An allgather of `bytes` per rank. OK, or a status with `why`. */
int hc__rendezvous_allgather(hc__rendezvous *, const void *mine, size_t bytes, void *all);
/* `status` below 0: this rank has failed, for the reason `why`. All ranks get the status of the lowest rank that has
 * failed. */
int hc__rendezvous_agree(hc__rendezvous *, int status, const char *why);

#endif
