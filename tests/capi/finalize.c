/* SPDX-License-Identifier: Apache-2.0
 *
 * finalize.c - MPI_Finalize ends Worlds that threads have made at once, so in another order on each rank.
 *
 * usage: finalize [OPTIONS OF THE WORLDS]
 */
#include "ranks.h"

#include <pthread.h>
#include <time.h>

#define WORLDS 12
#define SECONDS 3 /* HPCCOLL_STOP_TIMEOUT: so long a rank waits for another one that does not end the World */

static const char *options;

typedef struct making {
    MPI_Comm comm;
    hpccoll_world *world;
} making;

static void *make(void *of) {
    making *one = of;
    CHECK(hpccoll_world_from_mpi(one->comm, options, &one->world) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    int level;
    pthread_t threads[WORLDS];
    making made[WORLDS];
    char text[256];
    snprintf(text, sizeof text, "verbose=0 stop_timeout=%d %s", SECONDS, argc > 1 ? argv[1] : "");
    options = text;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(level == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < WORLDS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &made[i].comm);
    for (int i = 0; i < WORLDS; i++)
        CHECK(!pthread_create(&threads[i], NULL, make, &made[i]));
    for (int i = 0; i < WORLDS; i++)
        pthread_join(threads[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    const time_t began = time(NULL);
    MPI_Finalize();
    if (time(NULL) - began >= SECONDS) {
        fprintf(stderr, "rank %d: MPI_Finalize took %d s\n", rank, (int)(time(NULL) - began));
        return 1;
    }
    if (rank == 0)
        printf("fine\n");
    return 0;
}
