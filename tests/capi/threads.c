/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c - several threads of each rank call the C interface at once: named calls of one World, calls of a process
 * set of each thread's own, messages with tags, requests that another thread waits for.
 *
 *     threads THREADS STEPS
 */
#include "ranks.h"

#include <pthread.h>

#define COUNT 2000
#define MOST 8

static hpccoll_world *world;
static int steps;

typedef struct one {
    pthread_t thread;
    hpccoll_world *set; /* all ranks, for this thread alone */
    int number;
} one;

static void fill(double *x, int salt) {
    for (int i = 0; i < COUNT; i++)
        x[i] = rank + salt + i % 7;
}

static void check_sum(const double *x, int salt) {
    for (int i = 0; i < COUNT; i++)
        CHECK(x[i] == size * (salt + i % 7) + size * (size - 1) / 2.0);
}

/* The other thread of a request: it waits where another one has asked. */
static void *wait_for(void *request) {
    CHECK(hpccoll_wait((hpccoll_request **)request) == 0);
    return NULL;
}

static void named(const one *self, int step, double *x) {
    char name[32];
    snprintf(name, sizeof name, "thread %d step %d", self->number, step % 5);
    hpccoll_args args = HPCCOLL_ARGS;
    args.name = name;
    fill(x, step);
    hpccoll_request *request;
    CHECK(hpccoll_allreduce_async(HPCCOLL_IN_PLACE, x, COUNT, HPCCOLL_FLOAT64, HPCCOLL_SUM, &args, world, &request) ==
          0);
    if (step % 3) {
        CHECK(hpccoll_wait(&request) == 0);
    } else {
        pthread_t waiter;
        CHECK(pthread_create(&waiter, NULL, wait_for, &request) == 0);
        CHECK(pthread_join(waiter, NULL) == 0);
    }
    check_sum(x, step);
}

static void unnamed(const one *self, int step, double *x) {
    fill(x, step);
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, x, step % 2 ? COUNT : 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, self->set) ==
          0);
    if (step % 2)
        check_sum(x, step);
    CHECK(hpccoll_barrier(NULL, self->set) == 0);
}

static void messages(const one *self, double *x) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size, from;
    double y[COUNT];
    int64_t received;
    hpccoll_request *request;
    fill(x, self->number);
    CHECK(hpccoll_send_async(x, COUNT, HPCCOLL_FLOAT64, right, self->number, world, &request) == 0);
    CHECK(hpccoll_recv(y, COUNT, HPCCOLL_FLOAT64, left, self->number, &from, &received, world) == 0);
    CHECK(hpccoll_wait(&request) == 0);
    CHECK(from == left && received == COUNT && y[0] == left + self->number);
}

static void *run(void *argument) {
    const one *self = (const one *)argument;
    double x[COUNT];
    for (int step = 0; step < steps; step++) {
        named(self, step, x);
        unnamed(self, step, x);
        messages(self, x);
    }
    return NULL;
}

int main(int argc, char **argv) {
    static one all[MOST];
    int given, threads = atoi(argv[argc - 2]);
    steps = atoi(argv[argc - 1]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(given == MPI_THREAD_MULTIPLE && threads <= MOST);
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world) == 0);
    for (int i = 0; i < threads; i++) {
        all[i].number = i;
        CHECK(hpccoll_split(world, 0, 0, &all[i].set) == 0);
    }
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&all[i].thread, NULL, run, &all[i]) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(all[i].thread, NULL) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(hpccoll_world_free(&all[i].set) == 0);
    CHECK(hpccoll_world_free(&world) == 0);
    MPI_Finalize();
    if (rank == 0)
        printf("fine\n");
    return 0;
}
