/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.c - process sets over the C interface: many of them leave nothing behind; a rank that cannot map its part tells
 * the others; threads that make them at once get an error, the same on all ranks.
 *
 *     sets many TIMES     split and subset, in turn
 *     sets fail           with mapping.so in LD_PRELOAD
 *     sets threads        two threads of rank 0
 */
#include "ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static hpccoll_world *world;

/* ---- what a process holds ---------------------------------------------------------------------------------- */

typedef struct held {
    long fds, maps, blocks, pages; /* blocks: of files under /dev/shm; pages: resident and private */
} held;

static void count_fds(held *all) {
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300];
        struct stat file;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        all->fds++;
        char target[300] = "";
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "/hpccoll-") && stat(path, &file) == 0)
            all->blocks += (long)file.st_blocks;
    }
    closedir(folder);
}

static held count(void) {
    held all = {0, 0, 0, 0};
    char line[1000];
    long resident, shared;
    FILE *maps = fopen("/proc/self/maps", "r"), *memory = fopen("/proc/self/statm", "r");
    CHECK(maps && memory && fscanf(memory, "%*d %ld %ld", &resident, &shared) == 2);
    while (fgets(line, sizeof line, maps))
        all.maps += strstr(line, "/hpccoll-") != NULL;
    fclose(maps);
    fclose(memory);
    all.pages = resident - shared;
    count_fds(&all);
    return all;
}

/* ---- many -------------------------------------------------------------------------------------------------- */

static void use_and_free(hpccoll_world **made) {
    if (*made) {
        double one = 1, sum = 0;
        CHECK(hpccoll_allreduce(&one, &sum, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, *made) == 0);
        CHECK(sum == hpccoll_size(*made));
    }
    CHECK(hpccoll_world_free(made) == 0);
}

/* More sets than a rank can be in at once, and of numbers that keep their memory and that do not. */
static void make_one(int at) {
    hpccoll_world *part, *first;
    int ranks[1] = {at % size};
    CHECK(hpccoll_split(world, at % (rank + 1), -rank, &part) == 0);
    CHECK(hpccoll_subset(world, ranks, 1, &first) == 0);
    CHECK((first != NULL) == (rank == ranks[0]));
    use_and_free(&first);
    use_and_free(&part);
}

static void make_ten(void) {
    hpccoll_world *open[10];
    for (int i = 0; i < 10; i++)
        CHECK(hpccoll_split(world, 0, rank, &open[i]) == 0);
    for (int i = 0; i < 10; i++)
        use_and_free(&open[i]);
}

static void many(int times) {
    held before = {0, 0, 0, 0};
    for (int at = 0; at < times; at++) {
        make_one(at);
        if (at % 50 == 0)
            make_ten();
        if (at != times / 5 && at != times - 1)
            continue;
        CHECK(hpccoll_barrier(NULL, world) == 0);
        held now = count();
        CHECK(hpccoll_barrier(NULL, world) == 0);
        if (before.fds) {
            CHECK(now.fds == before.fds && now.maps == before.maps && now.blocks == before.blocks);
            printf("rank %d: %ld pages in %d sets\n", rank, now.pages - before.pages, 2 * (times - times / 5));
            /* An ended World keeps some 70 bytes, so that a call with it is an error (api/list.c). */
            CHECK(now.pages - before.pages < 128 + times / 40);
        }
        before = now;
    }
}

/* ---- fail -------------------------------------------------------------------------------------------------- */

static void fail(void) {
    hpccoll_world *part;
    double x = 1, y;
    const char *why = "the process set could not be made: cannot map shared memory of process set 1: ";
    if (rank == 1)
        setenv("STRIKE", "fail", 1);
    int status = hpccoll_split(world, 0, 0, &part);
    if (rank == 1) {
        CHECK(status == HPCCOLL_NO_MEMORY && strstr(hpccoll_last_error(), why) == hpccoll_last_error());
    } else {
        if (status == 0)
            status = hpccoll_allreduce(&x, &y, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, part);
        int came_later = strstr(hpccoll_last_error(), "the World is broken by an earlier failure: ") != NULL;
        CHECK(status == (came_later ? HPCCOLL_BROKEN : HPCCOLL_NO_MEMORY));
        CHECK(strstr(hpccoll_last_error(), "rank 1 (host ") && strstr(hpccoll_last_error(), why));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- threads ----------------------------------------------------------------------------------------------- */

static void *one_call(void *of) {
    hpccoll_world **made = of;
    if (hpccoll_split(world, 0, 0, made) < 0) {
        CHECK(strstr(hpccoll_last_error(), "split: several threads of rank ") == hpccoll_last_error());
        CHECK(*made == NULL);
    }
    return NULL;
}

/* Both threads of rank 0 are in the call before rank 1 comes, which makes its calls one after the other. */
static void threads(void) {
    pthread_t own[2];
    hpccoll_world *made[2];
    for (int i = 0; i < 2 && rank == 0; i++) {
        CHECK(pthread_create(&own[i], NULL, one_call, &made[i]) == 0);
        usleep(300000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++)
        if (rank == 0)
            CHECK(pthread_join(own[i], NULL) == 0);
        else
            one_call(&made[i]);
    CHECK(made[0] && !made[1]);
    use_and_free(&made[0]);
    CHECK(hpccoll_split(world, 0, 0, &made[0]) == 0);
    use_and_free(&made[0]);
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(argc > 1 && hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world) == 0);
    int times = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(argv[1], "many") == 0)
        many(times);
    else if (strcmp(argv[1], "threads") == 0)
        threads();
    else
        fail();
    int broken = hpccoll_world_free(&world);
    CHECK((broken < 0) == (strcmp(argv[1], "fail") == 0));
    if (rank == 0)
        printf("fine\n");
    MPI_Finalize();
    return 0;
}
