/* SPDX-License-Identifier: Apache-2.0
 *
 * launched.c - Worlds that threads make at once, of what a launcher has started; and one in a forked process.
 *
 *     launched threads | fork
 */
#define WITHOUT_MPI
#include "ranks.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 5, N = 5000 };

static void add_ranks(hpccoll_world *world) {
    double x[N];
    for (int i = 0; i < N; i++)
        x[i] = i + hpccoll_rank(world);
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, x, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == HPCCOLL_OK);
    for (int i = 0; i < N; i++)
        CHECK(x[i] == size * (double)i + size * (size - 1) / 2.0);
}

static void *make_worlds(void *argument) {
    for (int i = 0; i < TIMES; i++) {
        hpccoll_world *world = NULL;
        CHECK(hpccoll_world_from_launcher("verbose=0", &world) == HPCCOLL_OK);
        add_ranks(world);
        CHECK(hpccoll_world_free(&world) == HPCCOLL_OK);
    }
    return argument;
}

int main(int argc, char **argv) {
    hpccoll_world *world = NULL;
    pthread_t thread;
    CHECK(argc == 2 && hpccoll_world_from_launcher("verbose=0", &world) == HPCCOLL_OK);
    rank = hpccoll_rank(world);
    size = hpccoll_size(world);
    if (strcmp(argv[1], "threads") == 0) {
        pthread_create(&thread, NULL, make_worlds, NULL);
        make_worlds(NULL);
        pthread_join(thread, NULL);
    } else {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            hpccoll_world *own = NULL;
            _exit(hpccoll_world_from_launcher("verbose=0 start_timeout=1", &own) == HPCCOLL_OK);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    add_ranks(world);
    CHECK(hpccoll_world_free(&world) == HPCCOLL_OK);
    if (rank == 0)
        printf("fine\n");
    return 0;
}
