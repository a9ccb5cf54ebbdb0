/* SPDX-License-Identifier: Apache-2.0
 *
 * completions.c - threads begin requests and go on; functions that are called when these are done check each sum, count
 * that they are called once, and begin the next request by themselves.
 *
 * usage: completions RANKS NODES THREADS ROUNDS NS
 * Run under a thread sanitizer it is the test of completion.c.
 */
#include "worlds.h"

#define CHAINS 6 /* of each thread: requests that begin one another */
#define N 40

typedef struct worker worker;

/* One request after another under one name. */
typedef struct chain {
    worker *of;
    int number, round;
    int64_t values[N];
    atomic_int open; /* the request of this round was begun, and its function not called */
} chain;

struct worker {
    worlds *w;
    int32_t rank, thread;
    chain chains[CHAINS];
    atomic_int ended;
};

static int rounds;
static uint64_t ns;

static void summed(hc_handle *handle, void *context);

static void begin(chain *c) {
    char name[32];
    snprintf(name, sizeof name, "%d.%d", c->of->thread, c->number);
    for (int i = 0; i < N; i++)
        c->values[i] = c->of->rank + c->round * c->number;
    hc_handle *handle = sum_of(name, c->values, N);
    handle->on_done = summed;
    handle->context = c;
    CHECK(atomic_exchange(&c->open, 1) == 0);
    hc_loop_begin(c->of->w->loops[c->of->rank], handle, ns);
    hc_handle_release(handle);
}

static void summed(hc_handle *handle, void *context) {
    chain *c = context;
    int64_t ranks = c->of->w->size, sum = ranks * (ranks - 1) / 2;
    CHECK(hc_handle_done(handle) && handle->status == HC_OK);
    CHECK(atomic_exchange(&c->open, 0) == 1);
    for (int i = 0; i < N; i++)
        CHECK(c->values[i] == sum + ranks * c->round * c->number);
    if (++c->round < rounds)
        begin(c);
    else
        atomic_fetch_add(&c->of->ended, 1);
}

static void *work(void *argument) {
    worker *me = argument;
    for (int i = 0; i < CHAINS; i++) {
        me->chains[i].of = me;
        me->chains[i].number = i;
        begin(&me->chains[i]);
    }
    while (atomic_load(&me->ended) < CHAINS)
        usleep(200);
    return NULL;
}

static atomic_int refused;

static void refuse(hc_handle *handle, void *context) {
    CHECK(context == &refused && handle->status == HC_SHUT_DOWN && handle->text);
    atomic_fetch_add(&refused, 1);
}

/* A request of rank 0 that nobody shares, from before the end of the World. */
static hc_handle *lonely(hc_loop *loop, int64_t *value) {
    hc_handle *handle = sum_of("lonely", value, 1);
    handle->on_done = refuse;
    handle->context = &refused;
    hc_loop_begin(loop, handle, ns);
    return handle;
}

static int nthreads;

static void *rank_main(void *argument) {
    worker *first = argument;
    static worker workers[MOST][MOST];
    pthread_t threads[MOST];
    hc_loop *loop = worlds_join(first->w, first->rank);
    CHECK(hc_loop_start_completions(loop) == HC_OK);
    for (int t = 0; t < nthreads; t++) {
        workers[first->rank][t] = (worker){.w = first->w, .rank = first->rank, .thread = t};
        pthread_create(&threads[t], NULL, work, &workers[first->rank][t]);
    }
    for (int t = 0; t < nthreads; t++)
        pthread_join(threads[t], NULL);
    int64_t last = 1, alone = 1;
    hc_handle *end = sum_of("end", &last, 1), *left = first->rank ? NULL : lonely(loop, &alone);
    hc_loop_submit(loop, end, 1);
    CHECK(finish(loop, end) == HC_OK);
    worlds_leave(first->w, first->rank);
    hc_handle_release(left);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 6);
    worlds w = {
        .knobs = {
            .engine = {.cache_capacity = 1024, .fusion_threshold = 4096, .raise_bytes = 4096, .raise_window = 10000000},
            .wire = HC_WIRE_SAME,
            .background = 1}};
    nthreads = atoi(argv[3]);
    rounds = atoi(argv[4]);
    ns = (uint64_t)atoll(argv[5]);
    worlds_prepare(&w, atoi(argv[1]), atoi(argv[2]));
    worker ranks[MOST];
    pthread_t threads[MOST];
    for (int32_t r = 0; r < w.size; r++) {
        ranks[r] = (worker){.w = &w, .rank = r};
        pthread_create(&threads[r], NULL, rank_main, &ranks[r]);
    }
    for (int32_t r = 0; r < w.size; r++)
        pthread_join(threads[r], NULL);
    CHECK(refused == 1);
    worlds_end(&w);
    puts("fine");
    return 0;
}
