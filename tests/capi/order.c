/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c - 4 ranks on 4 nodes, which Slurm's topology puts into another order: the stages of a sum follow it.
 */
#include "ranks.h"

/* Each rank's value is that of its place in the network. The stages add the first two and the last two nodes. */
static double total(const double *values, int place) {
    const char *options = "algorithm=stages";
    double mine = values[place], sum = 0;
    hpccoll_world *world = NULL;
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, options, &world) == HPCCOLL_OK);
    CHECK(hpccoll_node_of(world, rank) == rank);
    CHECK(hpccoll_allreduce(&mine, &sum, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == HPCCOLL_OK);
    hpccoll_world_free(&world);
    return sum;
}

int main(int argc, char **argv) {
    const int along[] = {2, 0, 3, 1};
    const double values[] = {1e16, -1e16, 1, 1}, others[] = {1, 1e16, -1e16, 1};
    char address[32];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size == 4);
    int place = along[rank];
    snprintf(address, sizeof address, "s%d.n%d", place / 2, place);
    setenv("SLURM_TOPOLOGY_ADDR", address, 1);
    setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.node", 1);
    CHECK(total(values, place) == (1e16 + -1e16) + (1.0 + 1.0));
    snprintf(address, sizeof address, "s%d.n%d", (place + 1) / 2, place); /* s1 is whole: places 1, 2, then 0, 3 */
    setenv("SLURM_TOPOLOGY_ADDR", address, 1);
    CHECK(total(others, place) == (1e16 + -1e16) + (1.0 + 1.0));
    snprintf(address, sizeof address, "s%d.n%d", place / 2, place);
    setenv("SLURM_TOPOLOGY_ADDR", address, 1);
    if (rank == 2)
        unsetenv("SLURM_TOPOLOGY_ADDR");
    CHECK(total(values, place) == (1.0 + 1e16) + (1.0 + -1e16)); /* one host: by the ranks */
    if (rank == 0)
        printf("fine\n");
    MPI_Finalize();
    return 0;
}
