/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_drain.h - the end of a net over MPI: receives what is still in flight; included once in each family's file, after
 * mpi.c.
 */
#pragma once

#define END_SECONDS 10.0 /* the longest wait for other ranks at the end */

/* Receives and drops one control message whose reader has ended. 1: there was one. */
static int discard(mpi_net *net) {
    int there = 0, bytes = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, HC_TAG_CONTROL, net->comm, &there, &status) != MPI_SUCCESS || !there)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    void *unread = malloc((size_t)bytes + 1);
    if (unread)
        MPI_Recv(unread, bytes, MPI_BYTE, status.MPI_SOURCE, HC_TAG_CONTROL, net->comm, MPI_STATUS_IGNORE);
    free(unread);
    return unread != NULL;
}

/* Sends an empty message to each peer that was sent control messages; it completes when it is received. */
static int send_ends(mpi_net *net) {
    for (int32_t peer = 0; peer < net->base.size; peer++) {
        if (!(net->addressed[peer / 8] & 1 << peer % 8))
            continue;
        if (net->alive == net->room && grow(net) != HC_OK)
            return HC_NO_MEMORY;
        MPI_Request *handle = &net->handles[net->alive];
        if (MPI_Issend(NULL, 0, MPI_BYTE, peer, HC_TAG_CONTROL, net->comm, handle) != MPI_SUCCESS)
            return HC_TRANSPORT;
        net->alive++;
    }
    return HC_OK;
}

/* Waits until no control message is in flight. Ranks end at different times, so messages may arrive after a rank's end,
 * and MPICH reuses the number of a freed communicator, so the next communicator's receives would match them. Messages
 * keep their order: when a rank's last message is received, all are. Then the rank enters a barrier (non-blocking
 * consensus; Hoefler, Siebert, Lumsdaine 2010). 1; 0: a rank did not take part in time. */
static int drain(mpi_net *net) {
    MPI_Request barrier = MPI_REQUEST_NULL;
    int received = 0, all = 0;
    double limit = MPI_Wtime() + END_SECONDS;
    if (send_ends(net) != HC_OK)
        return 0;
    while (!all && MPI_Wtime() < limit) {
        int code = received ? MPI_Test(&barrier, &all, MPI_STATUS_IGNORE)
                            : MPI_Testall(net->alive, net->handles, &received, MPI_STATUSES_IGNORE);
        if (code == MPI_SUCCESS && received && !all && barrier == MPI_REQUEST_NULL)
            code = MPI_Ibarrier(net->comm, &barrier);
        if (code != MPI_SUCCESS)
            return 0;
        if (!discard(net))
            sched_yield();
    }
    return all;
}
