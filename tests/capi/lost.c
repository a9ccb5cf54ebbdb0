/* SPDX-License-Identifier: Apache-2.0
 *
 * lost.c - a rank is killed while another one waits for it in hpccoll_world_free(), which returns the loss.
 */
#include "ranks.h"

#include <signal.h>
#include <string.h>

int main(int argc, char **argv) {
    hpccoll_world *world;
    signal(SIGTERM, SIG_IGN); /* mpirun ends the others; this rank needs a moment to print */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world) == 0);
    CHECK(hpccoll_barrier(NULL, world) == 0);
    if (rank == 1)
        raise(SIGKILL);
    CHECK(hpccoll_world_free(&world) == HPCCOLL_PEER_LOST && !world);
    CHECK(strstr(hpccoll_last_error(), "rank 1 ") && strstr(hpccoll_last_error(), "was lost: its process is gone"));
    printf("fine\n");
    fflush(stdout);
    return 0;
}
