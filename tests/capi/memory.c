/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - the last rank has no memory for a result, by a real limit on its address space: all ranks are refused the
 * result with the same words, the World goes on, and the same call succeeds when the limit is lifted.
 */
#include "ranks.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB (1l << 20)
#define COUNT (32 * MIB / (int64_t)sizeof(double)) /* elements of one rank */

/* The last rank may have `left` more bytes; 0: as many as it wants. */
static void limit(long left) {
    struct rlimit space = {RLIM_INFINITY, RLIM_INFINITY};
    long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    if (left)
        space.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + left);
    if (rank == size - 1)
        CHECK(!setrlimit(RLIMIT_AS, &space));
}

static int gather(hpccoll_world *world, const double *x, double **all) {
    hpccoll_request *request;
    int64_t count = 0;
    int status = hpccoll_allgather_async(x, COUNT, HPCCOLL_FLOAT64, HPCCOLL_ALLOCATE, 0, NULL, NULL, world, &request);
    status = status ? status : hpccoll_wait_result(&request, (void **)all, &count);
    CHECK(status || count == size * COUNT);
    return status;
}

int main(int argc, char **argv) {
    hpccoll_world *world;
    double one = 1, sum, *all, *x = malloc((size_t)COUNT * sizeof *x);
    char words[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(x && !hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world));
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = rank;
    snprintf(words, sizeof words, "rank %d ", size - 1);
    CHECK(!hpccoll_barrier(NULL, world));
    limit(24 * MIB);
    for (int i = 0; i < 2; i++) {
        CHECK(gather(world, x, &all) == HPCCOLL_NO_MEMORY);
        CHECK(strstr(hpccoll_last_error(), words) && strstr(hpccoll_last_error(), "has no memory for its result of"));
        CHECK(!hpccoll_allreduce(&one, &sum, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) && sum == size);
    }
    limit(0);
    CHECK(!gather(world, x, &all) && all[0] == 0 && all[size * COUNT - 1] == size - 1);
    hpccoll_release(all);
    CHECK(!hpccoll_world_free(&world));
    free(x);
    MPI_Finalize();
    if (rank == 0)
        printf("fine\n");
    return 0;
}
