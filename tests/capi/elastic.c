/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic.c - a rank of an elastic job adds up the numbers of the steps, while ranks are lost and come in.
 *
 *     elastic STEPS [STEP:RANK:DEED]...      ELASTIC_FOLDER: for the marks of deeds that were done
 *
 * A deed is done once in the job, by the rank that had this number before the step: "kill" ends it, "term" raises
 * SIGTERM, upon which it leaves, "launcher" kills the launcher, "hosts=TEXT" is what the discovery script prints from
 * now on, and "until=N" lets all ranks wait until there are N of them, "until=-N" until there are N or fewer.
 */
#define WITHOUT_MPI
#include "ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { N = 3000 };

typedef struct state {
    int64_t step;
    double total, field[N];
} state;

static volatile sig_atomic_t terminated;
static int ndeeds, repeated;
static char **deeds;

static void on_sigterm(int number) {
    (void)number;
    terminated = 1;
}

/* ---- deeds ------------------------------------------------------------------------------------------------- */

static int is_first(const char *deed) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", getenv("ELASTIC_FOLDER"), deed);
    for (char *at = strrchr(path, '/') + 1; *at; at++)
        *at = *at == ',' || *at == '=' ? '-' : *at;
    return open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) >= 0;
}

/* The process whose child is the agent, whose child this one is. */
static void kill_launcher(void) {
    char path[64];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)getppid());
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%*d (%*[^)]) %*c %d", &parent) == 1 && parent > 1);
    fclose(file);
    kill(parent, SIGKILL);
    usleep(500000); /* until the connection has ended */
}

static void write_hosts(const char *text) {
    char path[620], to[600];
    snprintf(to, sizeof to, "%s/hosts", getenv("ELASTIC_FOLDER"));
    snprintf(path, sizeof path, "%s.new", to);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0 && rename(path, to) == 0);
}

static void do_deed(const char *deed) {
    if (strcmp(deed, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(deed, "term") == 0)
        raise(SIGTERM);
    else if (strcmp(deed, "launcher") == 0)
        kill_launcher();
    else if (strncmp(deed, "hosts=", 6) == 0)
        write_hosts(deed + 6);
}

/* The number of "until" before this step; 0: none. */
static int do_deeds(int64_t step) {
    int until = 0;
    for (int i = 0; i < ndeeds; i++) {
        long long at;
        int by, length;
        CHECK(sscanf(deeds[i], "%lld:%d:%n", &at, &by, &length) == 2);
        if (at == step && strncmp(deeds[i] + length, "until=", 6) == 0)
            until = atoi(deeds[i] + length + 6);
        else if (at == step && by == rank && is_first(deeds[i]))
            do_deed(deeds[i] + length);
    }
    return until;
}

/* ---- the program ------------------------------------------------------------------------------------------- */

/* All ranks take the state of the lowest rank that has made most steps. */
static int take_newest(hpccoll_world *world, state *s) {
    int64_t newest[2] = {s->step, rank};
    int status = hpccoll_allreduce(HPCCOLL_IN_PLACE, newest, 2, HPCCOLL_INT64, HPCCOLL_MAXLOC, NULL, world);
    if (status >= 0)
        status = hpccoll_broadcast(s, sizeof *s, HPCCOLL_UINT8, (int)newest[1], NULL, world);
    return status;
}

/* A step: adds its number, as the mean of what all ranks give, and a field with large messages. */
static int make_step(hpccoll_world *world, state *s) {
    static double field[N];
    double mean = (double)s->step;
    for (int i = 0; i < N; i++)
        field[i] = (double)(s->step + i);
    int status = hpccoll_allreduce(HPCCOLL_IN_PLACE, field, N, HPCCOLL_FLOAT64, HPCCOLL_MAX, NULL, world);
    if (status >= 0)
        status = hpccoll_allreduce(HPCCOLL_IN_PLACE, &mean, 1, HPCCOLL_FLOAT64, HPCCOLL_AVERAGE, NULL, world);
    if (status < 0)
        return status;
    for (int i = 0; i < N; i++)
        s->field[i] += field[i];
    s->total += mean;
    s->step++;
    return HPCCOLL_OK;
}

/* 1: the steps are made; 0: the ranks are about to change; or a status. */
static int make_steps(hpccoll_world *world, state *s, int64_t steps) {
    int status = take_newest(world, s), changes = 0;
    while (status >= 0 && s->step < steps) {
        int until = do_deeds(s->step);
        if (terminated)
            CHECK(hpccoll_leave(world) == HPCCOLL_OK);
        terminated = 0;
        int waits = until > 0 ? size < until : until < 0 && size > -until;
        status = waits ? hpccoll_barrier(NULL, world) : make_step(world, s);
        if (waits)
            usleep(5000);
        if (status >= 0)
            status = hpccoll_world_changes(world, &changes);
        if (changes)
            return 0;
    }
    return status < 0 ? status : 1;
}

/* The World may have broken before the call that returns the error. */
static void say_loss(const hpccoll_world *world, int status) {
    int ranks[8], count = -1;
    CHECK((status == HPCCOLL_PEER_LOST || (world && status == HPCCOLL_BROKEN)) && hpccoll_last_error()[0]);
    char text[600];
    snprintf(text, sizeof text, "%s", hpccoll_last_error());
    if (world)
        CHECK(hpccoll_lost_ranks(world, 8, ranks, &count) == HPCCOLL_OK && count >= 1);
    fprintf(stderr, "rank %d of %d lost %d of %d, first %d: %s\n", rank, size, count, size, count > 0 ? ranks[0] : -1,
            text);
    repeated++;
}

static void check_result(const state *s, int64_t steps) {
    double total = (double)(steps * (steps - 1) / 2);
    CHECK(s->step == steps && s->total == total);
    for (int i = 0; i < N; i++)
        CHECK(s->field[i] == total + (double)(steps * i));
}

int main(int argc, char **argv) {
    static state s;
    int over = 0, status;
    CHECK(argc > 1 && getenv("ELASTIC_FOLDER"));
    deeds = argv + 2;
    ndeeds = argc - 2;
    signal(SIGTERM, on_sigterm);
    while (!over) {
        hpccoll_world *world = NULL;
        status = hpccoll_world_from_launcher("verbose=0", &world);
        if (status == HPCCOLL_SHUT_DOWN) {
            fprintf(stderr, "released: %s\n", hpccoll_last_error());
            return 0;
        }
        if (status >= 0) {
            rank = hpccoll_rank(world);
            size = hpccoll_size(world);
            fprintf(stderr, "rank %d of %d begins at step %lld\n", rank, size, (long long)s.step);
            status = make_steps(world, &s, atoll(argv[1]));
            over = status > 0;
        } else if (status != HPCCOLL_PEER_LOST) {
            fprintf(stderr, "it ends: %s\n", hpccoll_last_error());
            return 1;
        }
        if (status < 0)
            say_loss(world, status);
        status = hpccoll_world_free(&world);
        CHECK(status == HPCCOLL_OK || (status == HPCCOLL_PEER_LOST && !over));
    }
    check_result(&s, atoll(argv[1]));
    printf("fine: rank %d of %d, %d losses\n", rank, size, repeated);
    return 0;
}
