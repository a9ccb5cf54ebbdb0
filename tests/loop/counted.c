/* SPDX-License-Identifier: Apache-2.0
 *
 * counted.c - a thread per rank makes blocking requests without a name, which the ranks count, while another one makes
 * named requests of the same set; every sum is checked. The batches of both must have one order on all ranks.
 *
 * usage: counted RANKS NODES ROUNDS BACKGROUND
 */
#include "worlds.h"

#define LONGEST 30000
#define TRIES 200 /* times `rounds` */

static int rounds;
static pthread_barrier_t all;
static atomic_int taken;

typedef struct rank {
    worlds *w;
    int32_t number;
    atomic_int over; /* the first thread has ended */
} rank;

static uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void fill_in(const rank *me, int64_t *values, int64_t n, int round) {
    for (int64_t i = 0; i < n; i++)
        values[i] = me->number * 7 + round + i;
}

static void check(const rank *me, const int64_t *values, int64_t n, int round) {
    int64_t size = me->w->size;
    for (int64_t i = 0; i < n; i++)
        CHECK(values[i] == size * (round + i) + 7 * size * (size - 1) / 2);
}

static int count(const rank *me, hc_shortcut *shortcut, hc_handle *handle) {
    const hc_counting by = {shortcut, me->w->votes_of[me->number], me->number, me->w->size};
    hc_loop *loop = me->w->loops[me->number];
    int state = hc_loop_count(loop, &by, handle, 20000);
    while (state == HC_SHORTCUT_OPEN)
        state = hc_loop_count_wait(loop, &by, handle, 20000);
    return state;
}

/* Blocking, without a name; some ranks do not count some calls. */
static void one_round(rank *me, hc_shortcut *shortcut, int64_t *values, int round, uint64_t *seed) {
    uint64_t common = (uint64_t)(round + 1) * 0x9E3779B97F4A7C15u;
    next_random(&common);
    int64_t n = 1 + (int64_t)(next_random(&common) % (next_random(&common) % 4 ? 100 : LONGEST));
    fill_in(me, values, n, round);
    if (next_random(seed) % 8 == 0)
        usleep((unsigned)(next_random(seed) % 300));
    hc_handle *handle = sum_of("unnamed", values, n);
    int leaves = next_random(seed) % 8 == 0;
    int state = next_random(seed) % 16 == 0 ? HC_SHORTCUT_OFF : count(me, shortcut, handle);
    taken += state == HC_SHORTCUT_TAKEN;
    CHECK((handle->kind == HC_HANDLE_COUNTED) == (state == HC_SHORTCUT_TAKEN));
    if (leaves)
        usleep(50);
    hc_handle_retain(handle);
    hc_loop_submit(me->w->loops[me->number], handle, 1);
    CHECK(finish(me->w->loops[me->number], handle) == HC_OK);
    CHECK((handle->position > 0) == (state != HC_SHORTCUT_TAKEN));
    if (handle->position)
        hc_shortcut_renumber(shortcut, handle->position);
    hc_handle_release(handle);
    check(me, values, n, round);
}

/* Named requests, until all ranks have made as many, and the first thread of each has ended. */
static void *make_named(void *argument) {
    rank *me = argument;
    hc_loop *loop = me->w->loops[me->number];
    uint64_t seed = (uint64_t)(me->number + 100) * 0x9E3779B97F4A7C15u;
    int64_t *values = malloc(LONGEST * sizeof *values), is_over = 0;
    for (int round = 0; !is_over; round++) {
        int64_t n = round % 3 ? 50 : LONGEST, over = me->over;
        if (next_random(&seed) % 2)
            usleep((unsigned)(next_random(&seed) % 2000));
        fill_in(me, values, n, round);
        hc_handle *sums[] = {sum_of("named", values, n), sum_of("over", &over, 1)};
        for (int i = 0; i < 2; i++)
            hc_loop_submit(loop, sums[i], 0);
        CHECK(finish(loop, sums[0]) == HC_OK);
        CHECK(finish(loop, sums[1]) == HC_OK);
        check(me, values, n, round);
        is_over = over == me->w->size;
    }
    free(values);
    return NULL;
}

/* On a busy machine some rank is late for nearly every call. */
static int none_taken(void) {
    pthread_barrier_wait(&all);
    int none = taken == 0;
    pthread_barrier_wait(&all);
    return none;
}

static void *rank_main(void *argument) {
    rank *me = argument;
    worlds *w = me->w;
    pthread_t second;
    uint64_t seed = (uint64_t)(me->number + 1) * 0x9E3779B97F4A7C15u;
    int64_t *values = malloc((LONGEST + 1) * sizeof *values);
    worlds_join(w, me->number);
    hc_shortcut *shortcut = hc_shm_count(w->nodes_of[me->number]);
    pthread_create(&second, NULL, make_named, me);
    int round = 0;
    do
        for (int end = round + rounds; round < end; round++)
            one_round(me, shortcut, values, round, &seed);
    while (round < TRIES * rounds && none_taken());
    me->over = 1;
    pthread_join(second, NULL);
    worlds_leave(w, me->number);
    free(values);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    static worlds w;
    w.knobs = (hc_loop_config){.background = (uint8_t)atoi(argv[4]), .wait = HC_WAIT_YIELD, .wire = HC_WIRE_SAME};
    w.knobs.engine = (hc_engine_config){
        .cache_capacity = 64, .fusion_threshold = 1 << 20, .raise_bytes = 4096, .raise_window = 100000};
    w.knobs.heartbeat = w.knobs.background;
    rounds = atoi(argv[3]);
    worlds_prepare(&w, atoi(argv[1]), atoi(argv[2]));
    pthread_barrier_init(&all, NULL, (unsigned)w.size);
    rank ranks[MOST];
    pthread_t threads[MOST];
    for (int32_t r = 0; r < w.size; r++) {
        ranks[r] = (rank){.w = &w, .number = r};
        pthread_create(&threads[r], NULL, rank_main, &ranks[r]);
    }
    for (int32_t r = 0; r < w.size; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
    CHECK(taken > 0);
    puts("fine");
    return 0;
}
