/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic_wrong.c - wrong calls of two ranks of an elastic job. A process that a rank has forked is no rank, and a
 * World of another kind does not change.
 */
#define WITHOUT_MPI
#include "ranks.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    hpccoll_world *world, *alone, *part;
    const int members[] = {0, 1};
    int n = -1, status = 0;
    CHECK(hpccoll_world_from_launcher("verbose=0", &world) == 0);
    rank = hpccoll_rank(world);
    size = hpccoll_size(world);
    CHECK(hpccoll_world_alone("verbose=0", &alone) == 0);
    CHECK(hpccoll_subset(world, members, size, &part) == 0);
    CHECK(hpccoll_lost_ranks(world, 0, NULL, &n) == 0 && n == 0);
    CHECK(hpccoll_world_changes(world, &n) == 0 && n == 0);
    n = -1;
    CHECK(hpccoll_world_changes(alone, &n) == 0 && n == 0);
    EXPECT(hpccoll_world_changes(part, &n), HPCCOLL_INVALID, "give the World of all ranks");
    EXPECT(hpccoll_world_changes(world, NULL), HPCCOLL_INVALID, "changes is NULL");
    EXPECT(hpccoll_lost_ranks(world, 2, NULL, &n), HPCCOLL_INVALID, "capacity is 2, ranks is NULL");
    EXPECT(hpccoll_leave(alone), HPCCOLL_UNSUPPORTED, "the job is not elastic");
    EXPECT(hpccoll_leave(NULL), HPCCOLL_INVALID, "the World is NULL");
    pid_t child = fork();
    if (child == 0) {
        hpccoll_world *own = NULL;
        EXPECT(hpccoll_world_from_launcher(NULL, &own), HPCCOLL_FORKED, "was forked by a rank of an elastic job");
        EXPECT(hpccoll_leave(world), HPCCOLL_FORKED, "");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(hpccoll_barrier(NULL, world) == 0);
    CHECK(hpccoll_world_free(&part) == 0 && hpccoll_world_free(&alone) == 0 && hpccoll_world_free(&world) == 0);
    printf("fine\n");
    return 0;
}
