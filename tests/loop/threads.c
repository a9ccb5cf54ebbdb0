/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.c - several threads per rank submit, wait, poll and drop in random orders; every sum and every message is
 * checked.
 *
 * usage: threads RANKS NODES THREADS ROUNDS BACKGROUND
 * Run under a thread sanitizer it is the test of inbox, handle, the driver's place, the trace and the figures.
 */
#include "worlds.h"

#define NAMES 12

typedef struct worker {
    worlds *w;
    int32_t rank, thread;
    int rounds;
    uint64_t seed;
} worker;

static uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void shuffle(int *order, uint64_t *seed) {
    for (int i = 0; i < NAMES; i++)
        order[i] = i;
    for (int i = NAMES - 1; i > 0; i--) {
        int j = (int)(next_random(seed) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void wait_somehow(hc_loop *loop, hc_handle *const *handles, size_t n, uint64_t *seed) {
    if (next_random(seed) % 2)
        for (int i = 0; i < 20 && !hc_handle_done(handles[n - 1]); i++)
            hc_loop_progress(loop);
    while (!hc_loop_wait(loop, handles, n, next_random(seed) % 3 ? 50000000 : 1000)) {}
    for (size_t i = 0; i < n; i++)
        CHECK(hc_handle_done(handles[i]));
}

/* A message to the next rank, and one from the last; the tag is the thread's. */
static hc_handle *op(const worker *me, int receives, int64_t *data, size_t n) {
    int32_t size = me->w->size, peer = (me->rank + (receives ? size - 1 : 1)) % size;
    hc_p2p_op l = {.receives = (uint8_t)receives,
                   .tag = (uint32_t)me->thread,
                   .peer = peer,
                   .data = data,
                   .bytes = n * sizeof *data};
    hc_handle *handle = hc_handle_of_p2p(0, &l, HC_MEMORY_HOST);
    hc_loop_submit(me->w->loops[me->rank], handle, 0);
    return handle;
}

static void exchange(const worker *me, hc_loop *loop, int round, uint64_t *seed) {
    static const size_t counts[] = {1, 1000, 1500, 20000};
    size_t n = counts[round % 4];
    int64_t *out = calloc(n, sizeof *out), *in = calloc(n, sizeof *in);
    for (size_t i = 0; i < n; i++)
        out[i] = me->rank * 1000 + round + (int64_t)i;
    hc_handle *handles[2];
    for (int k = 0; k < 2; k++)
        handles[k] = op(me, (k + round) % 2, (k + round) % 2 ? in : out, n);
    for (int k = 0; k < 2; k++) {
        wait_somehow(loop, &handles[k], 1, seed);
        CHECK(handles[k]->status == HC_OK);
        hc_handle_release(handles[k]);
    }
    int64_t from = (me->rank + me->w->size - 1) % me->w->size;
    for (size_t i = 0; i < n; i++)
        CHECK(in[i] == from * 1000 + round + (int64_t)i);
    free(out);
    free(in);
}

static void one_round(const worker *me, hc_loop *loop, int round, uint64_t *seed) {
    int64_t values[NAMES][40];
    hc_handle *handles[NAMES];
    int order[NAMES];
    shuffle(order, seed);
    for (int i = 0; i < NAMES; i++) {
        int k = order[i];
        char name[32];
        snprintf(name, sizeof name, "%d.%d", me->thread, k);
        for (int j = 0; j < 40; j++)
            values[k][j] = me->rank + round * k;
        handles[k] = sum_of(name, values[k], 40);
        hc_loop_submit(loop, handles[k], 0);
    }
    shuffle(order, seed);
    int64_t ranks = me->w->size, sum = ranks * (ranks - 1) / 2;
    if (next_random(seed) % 2)
        wait_somehow(loop, handles, NAMES, seed);
    for (int i = 0; i < NAMES; i++) {
        int k = order[i];
        wait_somehow(loop, &handles[k], 1, seed);
        CHECK(handles[k]->status == HC_OK);
        for (int j = 0; j < 40; j++)
            CHECK(values[k][j] == sum + ranks * round * k);
        hc_handle_release(handles[k]);
    }
}

static void *work(void *argument) {
    worker *me = argument;
    uint64_t seed = me->seed;
    for (int round = 0; round < me->rounds; round++) {
        one_round(me, me->w->loops[me->rank], round, &seed);
        exchange(me, me->w->loops[me->rank], round, &seed);
    }
    return NULL;
}

/* What an observer does, beside all that. */
static void *observe(void *argument) {
    hc_loop *loop = argument;
    hc_trace_record records[64];
    hc_loop_stats stats, before = {0};
    uint64_t next = 0, last = 0;
    for (int i = 0; i < 200; i++) {
        hc_loop_get_stats(loop, &stats);
        CHECK(stats.requests >= before.requests && stats.engine.entries >= before.engine.entries &&
              stats.packed_bytes >= before.packed_bytes && stats.net_sent_bytes >= before.net_sent_bytes &&
              stats.control_messages_local >= before.control_messages_local);
        before = stats;
        size_t n = hc_loop_trace_read(loop, &next, records, 64);
        for (size_t r = 0; r < n; r++) {
            CHECK(records[r].time >= last && records[r].kind <= HC_TRACE_BREAK);
            last = records[r].time;
        }
        usleep(200);
    }
    return NULL;
}

static int nthreads, rounds;

static void *rank_main(void *argument) {
    worker *first = argument;
    worker workers[MOST];
    pthread_t threads[MOST], observer;
    hc_loop *loop = worlds_join(first->w, first->rank);
    pthread_create(&observer, NULL, observe, loop);
    for (int t = 0; t < nthreads; t++) {
        workers[t] = (worker){first->w, first->rank, t, rounds,
                              (uint64_t)(first->rank * 100 + t + 1) * 0x9E3779B97F4A7C15u};
        pthread_create(&threads[t], NULL, work, &workers[t]);
    }
    for (int t = 0; t < nthreads; t++)
        pthread_join(threads[t], NULL);
    pthread_join(observer, NULL);
    hc_loop_stats stats;
    hc_loop_get_stats(loop, &stats);
    CHECK(stats.p2p_ops == (uint64_t)(nthreads * rounds * 2));
    CHECK(stats.requests == (uint64_t)(nthreads * rounds * NAMES));
    CHECK(stats.engine.cached_commits + stats.engine.first_commits >= stats.requests);
    int64_t last = 1;
    hc_handle *end = sum_of("end", &last, 1); /* whoever stops ends the others' messages */
    hc_loop_submit(loop, end, 1);
    CHECK(finish(loop, end) == HC_OK);
    worlds_leave(first->w, first->rank);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 6);
    worlds w = {
        .knobs = {
            .engine = {.cache_capacity = 1024, .fusion_threshold = 4096, .raise_bytes = 4096, .raise_window = 200000},
            .wire = HC_WIRE_SAME,
            .background = (uint8_t)atoi(argv[5])}};
    nthreads = atoi(argv[3]);
    rounds = atoi(argv[4]);
    worlds_prepare(&w, atoi(argv[1]), atoi(argv[2]));
    worker ranks[MOST];
    pthread_t threads[MOST];
    for (int32_t r = 0; r < w.size; r++) {
        ranks[r] = (worker){.w = &w, .rank = r};
        pthread_create(&threads[r], NULL, rank_main, &ranks[r]);
    }
    for (int32_t r = 0; r < w.size; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
    puts("fine");
    return 0;
}
