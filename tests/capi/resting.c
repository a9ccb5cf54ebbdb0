/* SPDX-License-Identifier: Apache-2.0
 *
 * resting.c - 2 nodes, MPI_THREAD_FUNNELED: a thread waits for a call that the thread which made the World alone may
 * drive. It says so while that one sleeps.
 */
#include "ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static hpccoll_world *world;
static atomic_int over;

static void *call(void *unused) {
    hpccoll_args args = HPCCOLL_ARGS;
    double x = rank;
    args.name = "of another thread";
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, &x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, &args, world) == 0);
    CHECK(x == size * (size - 1) / 2);
    over = 1;
    return unused;
}

int main(int argc, char **argv) {
    pthread_t other;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(level == MPI_THREAD_FUNNELED);
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0 stall_warning=1", &world) == 0);
    CHECK(!pthread_create(&other, NULL, call, NULL));
    sleep(3);
    while (!over)
        CHECK(hpccoll_progress(world) == 0);
    pthread_join(other, NULL);
    CHECK(hpccoll_world_free(&world) == 0);
    if (rank == 0)
        printf("fine\n");
    MPI_Finalize();
    return 0;
}
