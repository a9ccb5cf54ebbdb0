/* SPDX-License-Identifier: Apache-2.0
 *
 * count_fails.c - rank 0 awaits the vote of rank 1, on another node, on a request, and rank 1 gives no sign of life: the
 * request ends with what has broken the World.
 */
#include "worlds.h"

#include "loop/progress.h"

#define MS 1000000ull

static worlds w;

/* The number of a request that all ranks have made is where they begin to count. */
static void agree_on_a_number(hc_loop *loop, int32_t rank) {
    int64_t value = 1;
    hc_handle *handle = sum_of("first", &value, 1);
    hc_handle_retain(handle);
    hc_loop_submit(loop, handle, 1);
    CHECK(finish(loop, handle) == HC_OK);
    hc_shortcut_renumber(hc_shm_count(w.nodes_of[rank]), handle->position);
    hc_handle_release(handle);
}

static void await_in_vain(hc_loop *loop) {
    const hc_counting by = {hc_shm_count(w.nodes_of[0]), w.votes_of[0], 0, w.size};
    int64_t value = 1;
    hc_handle *handle = sum_of("unnamed", &value, 1);
    int state = hc_loop_count(loop, &by, handle, MS);
    CHECK(state == HC_SHORTCUT_OPEN);
    while (state == HC_SHORTCUT_OPEN)
        state = hc_loop_count_wait(loop, &by, handle, MS);
    CHECK(state == HC_SHORTCUT_OFF);
    hc_handle_retain(handle);
    hc_loop_submit(loop, handle, 1);
    CHECK(finish(loop, handle) == HC_PEER_LOST);
    CHECK(handle->text && !strncmp(handle->text, "rank 1 was lost", 15));
    hc_handle_release(handle);
}

static void *rank_main(void *argument) {
    const int32_t rank = *(int32_t *)argument;
    hc_loop *loop = worlds_join(&w, rank);
    agree_on_a_number(loop, rank);
    while (rank == 1 && !hc__driver_try(loop)) /* it answers no more */
        usleep(100);
    pthread_barrier_wait(&w.meet);
    if (rank == 0)
        await_in_vain(loop);
    pthread_barrier_wait(&w.meet);
    if (rank == 1)
        hc__driver_vacate(loop);
    hc_loop_free(loop);
    return NULL;
}

int main(void) {
    int32_t ranks[2] = {0, 1};
    pthread_t threads[2];
    w.knobs = (hc_loop_config){.background = 1, .heartbeat = 1, .wait = HC_WAIT_YIELD, .wire = HC_WIRE_SAME};
    w.knobs.peer_timeout = 300 * MS;
    w.knobs.engine = (hc_engine_config){.cache_capacity = 4, .fusion_threshold = 4096, .raise_bytes = 4096};
    worlds_prepare(&w, 2, 2);
    for (int32_t r = 0; r < 2; r++)
        CHECK(!pthread_create(&threads[r], NULL, rank_main, &ranks[r]));
    for (int32_t r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
    puts("fine");
    return 0;
}
