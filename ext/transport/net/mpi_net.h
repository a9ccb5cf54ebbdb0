/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_net.h - a net over an MPI communicator (mpi.c): what the boundary needs of it.
 */
#ifndef HC_MPI_NET_H
#define HC_MPI_NET_H

#include "transport/net/net.h"

#include <mpi.h>

/* Makes a communicator of its own (MPI_Comm_dup: all ranks of `comm` must call this) with the errors returned.
 * `one_machine`: all ranks can share memory, which decides how long messages are best; the same on all ranks.
 * MPI must be initialised; with MPI_THREAD_MULTIPLE any one thread at a time may use the net, below that only
 * the threads that MPI allows. */
int hc_mpi_net_new(MPI_Comm comm, int one_machine, hc_net **);

#endif
