/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_f08.c - the procedures of mpi_f08.f90, over the MPI of the process.
 */
#include <mpi.h>

void fortran_begin(MPI_Fint *world, MPI_Fint *no_comm, MPI_Fint *no_request) {
    MPI_Init(NULL, NULL);
    *world = MPI_Comm_c2f(MPI_COMM_WORLD);
    *no_comm = MPI_Comm_c2f(MPI_COMM_NULL);
    *no_request = MPI_Request_c2f(MPI_REQUEST_NULL);
}

void fortran_finalize(void) {
    MPI_Finalize();
}

void fortran_rank(MPI_Fint comm, int *rank) {
    MPI_Comm_rank(MPI_Comm_f2c(comm), rank);
}

void fortran_size(MPI_Fint comm, int *size) {
    MPI_Comm_size(MPI_Comm_f2c(comm), size);
}

void fortran_allreduce(int in_place, void *x, int count, int dtype, int op, MPI_Fint comm) {
    (void)in_place, (void)dtype;
    MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_DOUBLE, op == 1 ? MPI_SUM : MPI_MAX, MPI_Comm_f2c(comm));
}

void fortran_isend(void *x, int count, int dtype, int peer, int tag, MPI_Fint comm, MPI_Fint *request) {
    MPI_Request made;
    (void)dtype;
    MPI_Isend(x, count, MPI_DOUBLE, peer, tag, MPI_Comm_f2c(comm), &made);
    *request = MPI_Request_c2f(made);
}

void fortran_irecv(void *x, int count, int dtype, int peer, int tag, MPI_Fint comm, MPI_Fint *request) {
    MPI_Request made;
    (void)dtype;
    MPI_Irecv(x, count, MPI_DOUBLE, peer, tag, MPI_Comm_f2c(comm), &made);
    *request = MPI_Request_c2f(made);
}

void fortran_waitall(int n, MPI_Fint *requests, int statuses) {
    (void)statuses;
    for (int i = 0; i < n; i++) {
        MPI_Request one = MPI_Request_f2c(requests[i]);
        MPI_Wait(&one, MPI_STATUS_IGNORE);
        requests[i] = MPI_Request_c2f(one);
    }
}
