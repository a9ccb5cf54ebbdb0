/* SPDX-License-Identifier: Apache-2.0
 *
 * node_control_contract.c - doorbells that lose no wake-up, who is lost, segments that say what is missing.
 *
 *     node_control_contract ping threads|processes SIZE TURNS     a token goes round; everybody sleeps meanwhile
 *     node_control_contract alone                                 time-outs; rings before the sleep
 *     node_control_contract leave threads|processes               who leaves in order is not lost; who is marked, is
 *     node_control_contract kill SIZE                             one kills itself: the others say who
 *     node_control_contract stay SIZE                             prints "up" and waits to be killed
 *     node_control_contract segment NAME BYTES                    creates it, writes all of it; or prints why not
 *     node_control_contract hold NAME                             creates it, prints "up" and waits to be killed
 */
#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "transport/ranks.h"

#define BYTES (64 << 10)

static int turns;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The node's segment serves as the memory that a ring announces. */
static _Atomic uint64_t *word_of(rank_place *place, int i) {
    return (_Atomic uint64_t *)place->segment.base + 16 * i;
}

static void wait_until(rank_place *place, _Atomic uint64_t *word, uint64_t value) {
    for (;;) {
        uint32_t seen = hc_doorbell_listen(place->node_control);
        if (atomic_load_explicit(word, memory_order_acquire) >= value)
            return;
        CHECK(hc_doorbell_sleep(place->node_control, seen, 20000000000u), "rank %d: nobody rang for 20 s", place->rank);
    }
}

static void ping(rank_place *place) {
    int next = (place->rank + 1) % place->size;
    for (int turn = 1; turn <= turns; turn++) {
        if (place->rank > 0 || turn > 1)
            wait_until(place, word_of(place, place->rank), (uint64_t)turn - (place->rank == 0));
        atomic_store_explicit(word_of(place, next), (uint64_t)turn, memory_order_release);
        if (turn % 3 == 0)
            hc_doorbell_ring_all(place->node_control);
        else
            hc_doorbell_ring(place->node_control, next);
    }
}

static void alone(rank_place *place) {
    for (uint64_t ns = 0; ns <= 20000000; ns += 5000000) {
        double start = now();
        CHECK(hc_doorbell_sleep(place->node_control, hc_doorbell_listen(place->node_control), ns) == 0,
              "rung by nobody");
        double took = now() - start;
        CHECK(took >= (double)ns * 1e-9 && took < (double)ns * 1e-9 + 20, "slept %g s instead of %g", took,
              (double)ns * 1e-9);
    }
    uint32_t seen = hc_doorbell_listen(place->node_control);
    hc_doorbell_ring(place->node_control, 0);
    CHECK(hc_doorbell_sleep(place->node_control, seen, 20000000000u) == 1, "a ring before the sleep was lost");
    hc_doorbell_ring_all(place->node_control); /* all but me */
    CHECK(hc_doorbell_sleep(place->node_control, hc_doorbell_listen(place->node_control), 1000000) == 0,
          "rung by myself");
    CHECK(hc_node_control_lost(place->node_control) == -1, "I am here");
}

static void leave(rank_place *place) {
    if (place->rank == 1)
        return;
    CHECK(hc_node_control_lost(place->node_control) == -1, "nobody is lost");
    if (place->rank == 0)
        hc_node_control_mark_lost(place->node_control, 2);
    while (place->rank == 0 && hc_node_control_lost(place->node_control) == -1)
        sched_yield();
    if (place->rank == 0)
        CHECK(hc_node_control_lost(place->node_control) == 2, "%d is said to be lost",
              hc_node_control_lost(place->node_control));
}

static void kill_one(rank_place *place) {
    _Atomic uint64_t *when = word_of(place, 0);
    atomic_fetch_add(word_of(place, 1), 1);
    if (place->rank == rank_killed) {
        while (atomic_load(word_of(place, 1)) < (uint64_t)place->size) /* all are there, and nobody is lost */
            sched_yield();
        CHECK(hc_node_control_lost(place->node_control) == -1, "somebody is lost");
        atomic_store(when, (uint64_t)(now() * 1e9));
        kill(getpid(), SIGKILL);
    }
    struct timespec pause = {0, 1000000};
    while (hc_node_control_lost(place->node_control) == -1)
        nanosleep(&pause, NULL);
    double took = now() - (double)atomic_load(when) * 1e-9;
    CHECK(hc_node_control_lost(place->node_control) == rank_killed, "rank %d says that %d is lost", place->rank,
          hc_node_control_lost(place->node_control));
    CHECK(took < 20, "it took %g s to see it", took); /* or it hangs */
    atomic_fetch_add(word_of(place, 2), 1);
    while (atomic_load(word_of(place, 2)) < (uint64_t)place->size - 1) /* nobody leaves before all have looked */
        sched_yield();
}

static void stay(rank_place *place) {
    if (atomic_fetch_add(word_of(place, 0), 1) + 1 == (uint64_t)place->size) {
        printf("up\n");
        fflush(stdout);
    }
    for (;;)
        pause();
}

static int try_segment(const char *name, size_t bytes) {
    hc_segment segment, again;
    char why[300] = "";
    int status = hc_segment_create(&segment, name, bytes, why, sizeof why);
    if (status != HC_OK) {
        printf("%s: %s\n", hc_status_name(status), why);
        return 0;
    }
    memset(segment.base, 1, bytes);
    CHECK(hc_segment_create(&again, name, bytes, why, sizeof why) == HC_TRANSPORT, "made twice");
    CHECK(hc_segment_attach(&again, name, bytes + 1, why, sizeof why) == HC_TRANSPORT && strstr(why, "expected"), "%s",
          why);
    CHECK(hc_segment_attach(&again, name, bytes, why, sizeof why) == HC_OK, "%s", why);
    CHECK(((char *)again.base)[bytes - 1] == 1, "other memory");
    hc_segment_close(&again);
    CHECK(hc_segment_unlink(name) == HC_OK, "unlink");
    CHECK(hc_segment_attach(&again, name, bytes, why, sizeof why) == HC_TRANSPORT && strstr(why, name), "%s", why);
    hc_segment_close(&segment);
    return 0;
}

/* Make a segment, and do not unlink it. */
static int hold_segment(const char *name) {
    hc_segment segment;
    char why[300] = "";
    CHECK(hc_segment_create(&segment, name, 4096, why, sizeof why) == HC_OK, "%s", why);
    printf("up\n");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    CHECK(argc >= 2, "see the head of node_control_contract.c");
    const char *what = argv[1];
    if (strcmp(what, "ping") == 0) {
        turns = atoi(argv[4]);
        ranks_run(argv[2], atoi(argv[3]), BYTES, ping);
    } else if (strcmp(what, "alone") == 0) {
        ranks_run("threads", 1, BYTES, alone);
        ranks_run("processes", 1, BYTES, alone);
    } else if (strcmp(what, "leave") == 0) {
        ranks_run(argv[2], 3, BYTES, leave);
    } else if (strcmp(what, "kill") == 0) {
        rank_killed = atoi(argv[2]) - 1;
        ranks_run("processes", atoi(argv[2]), BYTES, kill_one);
    } else if (strcmp(what, "stay") == 0) {
        ranks_run("processes", atoi(argv[2]), BYTES, stay);
    } else if (strcmp(what, "segment") == 0) {
        return try_segment(argv[2], strtoull(argv[3], NULL, 10));
    } else if (strcmp(what, "hold") == 0) {
        return hold_segment(argv[2]);
    }
    return 0;
}
