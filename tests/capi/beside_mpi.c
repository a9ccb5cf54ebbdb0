/* SPDX-License-Identifier: Apache-2.0
 *
 * beside_mpi.c - 2 ranks of one node: a large send of MPI ends while its receiver waits in a barrier of hpccoll.
 */
#include "ranks.h"

int main(int argc, char **argv) {
    static double values[1 << 18];
    hpccoll_world *world = NULL;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size == 2);
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, "stall_limit=30", &world) == HPCCOLL_OK);
    values[0] = rank + 1;
    if (rank == 1)
        MPI_Irecv(values, 1 << 18, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, &request);
    else
        MPI_Send(values, 1 << 18, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
    CHECK(hpccoll_barrier(NULL, world) == HPCCOLL_OK);
    if (rank == 1)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(values[0] == 1);
    hpccoll_world_free(&world);
    if (rank == 0)
        printf("fine\n");
    MPI_Finalize();
    return 0;
}
