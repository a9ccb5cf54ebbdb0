/* SPDX-License-Identifier: Apache-2.0
 *
 * hello.c - a first program of C: the mean of a value over all ranks, and sums that run while something else is done.
 */
#include <hpccoll.h>
#include <mpi.h>
#include <stdio.h>

static void check(int status) {
    if (status < 0) {
        fprintf(stderr, "hello: %s\n", hpccoll_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    hpccoll_world *world;
    MPI_Init(&argc, &argv);
    check(hpccoll_world_from_mpi(MPI_COMM_WORLD, NULL, &world));
    int rank = hpccoll_rank(world), size = hpccoll_size(world);

    double mean = rank;
    check(hpccoll_allreduce(HPCCOLL_IN_PLACE, &mean, 1, HPCCOLL_FLOAT64, HPCCOLL_AVERAGE, NULL, world));

    float gradients[2][1000];
    const char *names[2] = {"layer 1", "layer 2"};
    hpccoll_request *requests[2];
    for (int i = 0; i < 2; i++) {
        hpccoll_args args = HPCCOLL_ARGS;
        int layer = rank % 2 ? 1 - i : i; /* the ranks ask in different orders: calls with a name match by it */
        for (int k = 0; k < 1000; k++)
            gradients[layer][k] = (float)(rank + layer);
        args.name = names[layer];
        check(hpccoll_allreduce_async(HPCCOLL_IN_PLACE, gradients[layer], 1000, HPCCOLL_FLOAT32, HPCCOLL_SUM, &args,
                                      world, &requests[i]));
    }
    /* ... compute something else here ... */
    check(hpccoll_waitall(2, requests));

    if (rank == 0)
        printf("%d ranks: the mean is %g, the sums are %g and %g\n", size, mean, gradients[0][0], gradients[1][0]);
    check(hpccoll_world_free(&world));
    MPI_Finalize();
    return 0;
}
