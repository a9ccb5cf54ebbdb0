/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcuts.c - blocking calls without a name: ranks that come together, late, or not, or ask for something else; every
 * result is checked, and a mismatch is one on all ranks.
 *
 * usage: shortcuts RANKS ROUNDS BACKGROUND NODES
 */
#include "worlds.h"

#define LONGEST 120

enum kind { ALL_COME, ONE_IS_LATE, ONE_STAYS_AWAY, ONE_DIFFERS, ONE_DECLINES, KINDS };

#define TRIES 200 /* times `rounds` */

static int rounds;
static pthread_barrier_t all;
static atomic_int taken, taken_without_caller;

static uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* OPEN: the caller waits no longer. */
static int vote(worlds *w, int32_t rank, hc_shortcut_call *call, int leaves) {
    hc_votes *votes = w->votes_of[rank];
    if (call->is_large)
        return HC_SHORTCUT_LARGE;
    int state = hc_loop_vote(w->loops[rank], 0, votes, call, leaves ? 0 : 20000);
    while (state == HC_SHORTCUT_OPEN && !leaves)
        state = hc_loop_vote_wait(w->loops[rank], votes, 20000);
    return state;
}

static int come(worlds *w, int32_t rank, hc_shortcut *shortcut, int64_t *values, int64_t n, int declines, int leaves) {
    hc_shortcut_call call = {.in = values, .out = values, .count = n, .bytes = (size_t)n * sizeof *values};
    call.rank = rank;
    call.size = w->size;
    call.traits = hc_operation_traits[HC_ALLREDUCE];
    call.is_large = (uint8_t)declines;
    call.agreed = (hc_shortcut_agreed){.operation = HC_ALLREDUCE, .dtype = HC_INT64, .ndim = 1, .root = -1};
    call.agreed.reduction = HC_SUM;
    call.agreed.prescale = call.agreed.postscale = 1.0;
    call.agreed.dims[0] = n;
    int state = w->nodes > 1 ? vote(w, rank, &call, leaves) : hc_loop_shortcut(w->loops[rank], 0, shortcut, &call);
    if (w->nodes == 1 && state == HC_SHORTCUT_OPEN)
        state = hc_loop_shortcut_wait(w->loops[rank], shortcut, &call);
    if (state == HC_SHORTCUT_TAKEN)
        hc_loop_shortcut_end(w->loops[rank], shortcut, &call);
    return state;
}

/* A rank that has too much counts its request; the others try the call, so the count is off. */
static void count(worlds *w, int32_t rank, hc_shortcut *shortcut, hc_handle *handle) {
    const hc_counting by = {shortcut, w->votes_of[rank], rank, w->size};
    int state = hc_loop_count(w->loops[rank], &by, handle, 20000);
    while (state == HC_SHORTCUT_OPEN)
        state = hc_loop_count_wait(w->loops[rank], &by, handle, 20000);
    CHECK(state == HC_SHORTCUT_OFF);
}

/* After the call was not taken. OPEN: this rank has left a vote on it, so it may also end with the votes. */
static int agree(worlds *w, int32_t rank, hc_shortcut *shortcut, int64_t *values, int64_t n, int state) {
    hc_handle *handle = sum_of("unnamed", values, n);
    int is_voted = state == HC_SHORTCUT_OPEN;
    if (state == HC_SHORTCUT_LARGE)
        count(w, rank, shortcut, handle);
    if (is_voted)
        handle->kind = HC_HANDLE_VOTED;
    hc_handle_retain(handle);
    hc_loop_submit(w->loops[rank], handle, !is_voted);
    int status = finish(w->loops[rank], handle);
    CHECK(handle->position > 0 || is_voted);
    taken_without_caller += is_voted && !handle->position;
    if (shortcut && handle->position)
        hc_shortcut_renumber(shortcut, handle->position);
    hc_handle_release(handle);
    return status;
}

static void one_round(worlds *w, int32_t rank, hc_shortcut *shortcut, int round, uint64_t *seed) {
    uint64_t common = (uint64_t)(round + 1) * 0x9E3779B97F4A7C15u;
    next_random(&common);
    enum kind kind = next_random(&common) % 2 ? ALL_COME : (enum kind)(next_random(&common) % KINDS);
    int is_odd = rank == (int32_t)(next_random(&common) % (uint64_t)w->size);
    int64_t values[LONGEST + 1], n = 1 + (int64_t)(next_random(&common) % LONGEST), size = w->size;
    for (int64_t i = 0; i <= n; i++)
        values[i] = rank * 7 + round + i;
    if (is_odd && kind == ONE_IS_LATE)
        usleep((unsigned)(next_random(seed) % 300));
    if (is_odd && kind == ONE_DIFFERS)
        n++;
    int away = (is_odd && kind == ONE_STAYS_AWAY) || next_random(seed) % 32 == 0;
    int status = HC_OK, leaves = next_random(seed) % 4 == 0;
    int state = away ? HC_SHORTCUT_OFF : come(w, rank, shortcut, values, n, is_odd && kind == ONE_DECLINES, leaves);
    taken += state == HC_SHORTCUT_TAKEN;
    if (state != HC_SHORTCUT_TAKEN)
        status = agree(w, rank, shortcut, values, n, state);
    if (kind == ONE_DIFFERS && size > 1) {
        CHECK(status == HC_MISMATCH);
        return;
    }
    CHECK(status == HC_OK);
    for (int64_t i = 0; i < n; i++)
        CHECK(values[i] == size * (round + i) + 7 * size * (size - 1) / 2);
}

/* On a busy machine some rank is late for nearly every call. The ranks go on until one was taken; and between nodes,
 * until a vote has ended without its caller. */
static int none_taken(const worlds *w) {
    pthread_barrier_wait(&all);
    int none = taken == 0 || (w->nodes > 1 && taken_without_caller == 0);
    pthread_barrier_wait(&all);
    return none;
}

static void *rank_main(void *argument) {
    worlds *w = ((void **)argument)[0];
    int32_t rank = (int32_t)(intptr_t)((void **)argument)[1];
    uint64_t seed = (uint64_t)(rank + 1) * 0x9E3779B97F4A7C15u;
    worlds_join(w, rank);
    hc_shortcut *shortcut = w->nodes > 1 ? hc_shm_count(w->nodes_of[rank]) : hc_shm_shortcut(w->nodes_of[rank]);
    CHECK((shortcut != NULL) == (w->size > 1));
    int round = 0;
    do
        for (int end = round + rounds; round < end; round++)
            one_round(w, rank, shortcut, round, &seed);
    while (round < TRIES * rounds && none_taken(w));
    hc_loop_stats stats;
    hc_loop_get_stats(w->loops[rank], &stats);
    CHECK(stats.requests == (uint64_t)round && stats.shortcuts > 0);
    worlds_leave(w, rank);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    static worlds w;
    pthread_t threads[MOST];
    void *arguments[MOST][2];
    rounds = atoi(argv[2]);
    /* Yields: on a busy machine two ranks that spin may never run at the same time, and none would take it. */
    w.knobs = (hc_loop_config){.background = (uint8_t)atoi(argv[3]), .wait = HC_WAIT_YIELD, .wire = HC_WIRE_SAME};
    w.knobs.engine = (hc_engine_config){.cache_capacity = 64, .fusion_threshold = 1 << 16, .raise_window = 100000};
    w.knobs.heartbeat = w.knobs.background;
    worlds_prepare(&w, atoi(argv[1]), atoi(argv[4]));
    pthread_barrier_init(&all, NULL, (unsigned)w.size);
    for (int32_t r = 0; r < w.size; r++) {
        arguments[r][0] = &w;
        arguments[r][1] = (void *)(intptr_t)r;
        pthread_create(&threads[r], NULL, rank_main, arguments[r]);
    }
    for (int32_t r = 0; r < w.size; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
    CHECK(w.nodes == 1 || taken_without_caller > 0);
    printf("fine\n");
    return 0;
}
