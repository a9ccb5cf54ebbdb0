/* SPDX-License-Identifier: Apache-2.0
 *
 * count_fails.c - two ranks on two nodes count a request, and rank 1 leaves rank 0 alone with it.
 *
 * usage: count_fails lost|stalls     rank 1 gives no sign of life instead of its vote: the request ends with what has
 *                                    broken the World; rank 1 does not run the request: a stall, reported before
 */
#include "worlds.h"

#include "loop/progress.h"

#define MS 1000000ull
#define TRIES 1000

static worlds w;
static int is_lost;

/* The number of a request that all ranks have made is where they begin to count. */
static void run(hc_loop *loop, int32_t rank, hc_handle *handle, int expected) {
    hc_handle_retain(handle);
    hc_loop_submit(loop, handle, 1);
    CHECK(finish(loop, handle) == expected);
    if (expected == HC_OK)
        hc_shortcut_renumber(hc_shm_count(w.nodes_of[rank]), handle->position);
}

static int count(hc_loop *loop, int32_t rank, hc_handle *handle) {
    const hc_counting by = {hc_shm_count(w.nodes_of[rank]), w.votes_of[rank], rank, w.size};
    int state = hc_loop_count(loop, &by, handle, MS);
    while (state == HC_SHORTCUT_OPEN)
        state = hc_loop_count_wait(loop, &by, handle, MS);
    return state;
}

/* Rank 1 answers no more, and rank 0 learns it while it counts. */
static void lose(hc_loop *loop, int32_t rank, hc_handle *handle) {
    while (rank == 1 && !hc__driver_try(loop))
        usleep(100);
    pthread_barrier_wait(&w.meet);
    if (rank == 0) {
        CHECK(count(loop, rank, handle) == HC_SHORTCUT_OFF);
        run(loop, rank, handle, HC_PEER_LOST);
        CHECK(handle->text && !strncmp(handle->text, "rank 1 was lost", 15));
    }
    pthread_barrier_wait(&w.meet);
    if (rank == 1)
        hc__driver_vacate(loop);
}

/* Both count until they come at about the same time; then rank 1 does not submit the request. */
static void stall(hc_loop *loop, int32_t rank, hc_handle *handle, int64_t *value) {
    for (int i = 0; count(loop, rank, handle) != HC_SHORTCUT_TAKEN; i++) {
        CHECK(i < TRIES);
        run(loop, rank, handle, HC_OK);
        hc_handle_release(handle);
        handle = sum_of("unnamed", value, 1);
        pthread_barrier_wait(&w.meet);
    }
    if (rank == 0) {
        run(loop, rank, handle, HC_STALLED);
        CHECK(handle->text && strstr(handle->text, "its data has waited 0.3"));
    }
    pthread_barrier_wait(&w.meet);
    hc_handle_release(handle);
}

static void *rank_main(void *argument) {
    const int32_t rank = *(int32_t *)argument;
    hc_loop *loop = worlds_join(&w, rank);
    int64_t value = 1;
    hc_handle *first = sum_of("first", &value, 1), *handle = sum_of("unnamed", &value, 1);
    run(loop, rank, first, HC_OK);
    hc_handle_release(first);
    if (is_lost) {
        lose(loop, rank, handle);
        hc_handle_release(handle);
    } else {
        stall(loop, rank, handle, &value);
    }
    pthread_barrier_wait(&w.meet);
    hc_loop_free(loop);
    return NULL;
}

int main(int argc, char **argv) {
    int32_t ranks[2] = {0, 1};
    pthread_t threads[2];
    CHECK(argc == 2);
    is_lost = !strcmp(argv[1], "lost");
    w.knobs = (hc_loop_config){.background = 1, .heartbeat = 1, .wait = HC_WAIT_YIELD, .wire = HC_WIRE_SAME};
    w.knobs.engine = (hc_engine_config){.cache_capacity = 4, .fusion_threshold = 4096, .raise_bytes = 4096};
    w.knobs.peer_timeout = is_lost ? 300 * MS : 0;
    w.knobs.engine.stall_warning = is_lost ? 0 : 100 * MS;
    w.knobs.engine.stall_limit = is_lost ? 0 : 300 * MS;
    worlds_prepare(&w, 2, 2);
    for (int32_t r = 0; r < 2; r++)
        CHECK(!pthread_create(&threads[r], NULL, rank_main, &ranks[r]));
    for (int32_t r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
    puts("fine");
    return 0;
}
