/* SPDX-License-Identifier: Apache-2.0
 *
 * plans.c - plans of all ranks, started in random orders, waited for and tested, beside requests; every result is
 * checked. At the end one rank starts a plan that the others never start, and the end of the set's log ends that start.
 *
 * usage: plans RANKS NODES ROUNDS BACKGROUND
 */
#include "worlds.h"

#define PLANS 5
#define LONGEST 5000

/* Elements of each; the last one is a broadcast of rank 0. */
static const int64_t counts[PLANS] = {1, 1, 40, LONGEST, 7};
static int rounds;

typedef struct one_plan {
    hc_plan *plan;
    hc_handle *handle;
    int64_t values[LONGEST], results[LONGEST];
} one_plan;

static uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Memory that the ranks of a node share. */
static hc_segment share(worlds *w, int32_t rank, int number, size_t bytes) {
    int32_t locals[MOST], own = 0;
    char name[64], why[256] = "";
    hc_segment segment;
    neighbours(w, rank, locals, &own);
    snprintf(name, sizeof name, "/hpccoll-plan-%d-%d-%d", (int)getpid(), number, w->node_of[rank]);
    if (own == 0)
        CHECK(hc_segment_create(&segment, name, bytes, why, sizeof why) == HC_OK);
    pthread_barrier_wait(&w->meet);
    if (own > 0)
        CHECK(hc_segment_attach(&segment, name, bytes, why, sizeof why) == HC_OK);
    pthread_barrier_wait(&w->meet);
    if (own == 0)
        hc_segment_unlink(name);
    return segment;
}

static hc_data *flat(worlds *w, int32_t rank, int number, one_plan *one, hc_node_control *node_control) {
    int32_t locals[MOST], own = 0, n = neighbours(w, rank, locals, &own);
    int gives_one = number == PLANS - 1;
    size_t bytes = (size_t)counts[number] * sizeof(int64_t);
    hc_stream_read reads[MOST] = {{one->results, 0, (int64_t)bytes}};
    hc_flat_config config = {.batch = hc_plan_batch(one->plan), .source = gives_one ? 0 : -1, .target = -1};
    config.reads = gives_one ? reads : NULL;
    config.to = counts[number];
    config.slot_bytes = bytes;
    for (int32_t i = 0; i < n; i++)
        locals[i] = i;
    hc_data *data;
    hc_segment segment = share(w, rank, number, hc_flat_bytes(n, bytes));
    CHECK(hc_flat_new(&config, segment, node_control, locals, own, n, &data) == HC_OK);
    return data;
}

static hc_data *hierarchy(worlds *w, int32_t rank, int number, hc_node_control *node_control) {
    int32_t locals[MOST], own = 0, n = neighbours(w, rank, locals, &own);
    int64_t chunk = 4096;
    int in_rounds = number == PLANS - 1; /* which want whole slots */
    size_t bytes = in_rounds ? hc_shm_bytes(n) : hc_shm_bytes_for(n, &chunk);
    hc_segment segment = share(w, rank, number, bytes);
    for (int32_t i = 0; i < n; i++)
        locals[i] = i;
    hc_node *node;
    hc_data *data;
    CHECK(hc_shm_node_new(segment, node_control, locals, own, n, &node) == HC_OK);
    hc_hierarchy_config config = {.set = (uint32_t)number + 1, .set_rank = rank, .set_size = w->size};
    config.members = w->members;
    config.node_of = w->node_of;
    config.algorithm = "auto";
    config.chunk_bytes = config.chunk_most = in_rounds ? 0 : chunk;
    CHECK(hc_hierarchy_new(&config, node, w->nets[rank], &data) == HC_OK);
    return data;
}

static void make_plan(worlds *w, int32_t rank, int number, one_plan *one) {
    char name[24];
    snprintf(name, sizeof name, "plan %d", number);
    one->handle = sum_of(name, one->values, counts[number]);
    one->handle->kind = HC_HANDLE_PLAN;
    one->handle->pieces[0].out = one->results;
    if (number == PLANS - 1) {
        one->handle->request.operation = HC_BROADCAST;
        one->handle->request.root = 0;
    }
    one->plan = hc_plan_new(w->loops[rank], one->handle, w->size);
    CHECK(one->plan);
    hc_node_control *node_control = w->node_controls_of[rank];
    int by_caller = w->nodes == 1 && counts[number] < LONGEST;
    hc_plan_use(one->plan,
                by_caller ? flat(w, rank, number, one, node_control) : hierarchy(w, rank, number, node_control),
                by_caller);
}

static void shuffle(int *order, uint64_t *seed) {
    for (int i = 0; i < PLANS; i++)
        order[i] = i;
    for (int i = PLANS - 1; i > 0; i--) {
        int j = (int)(next_random(seed) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void finish_plan(one_plan *one, uint64_t *seed) {
    int over = 0;
    for (uint64_t i = next_random(seed) % 4; i > 0 && !over; i--)
        over = next_random(seed) % 2 ? hc_plan_test(one->plan) : hc_plan_poll(one->plan);
    while (!over)
        over = hc_plan_wait(one->plan, next_random(seed) % 3 ? 50000000 : 1000);
    CHECK(one->handle->status == HC_OK);
}

static int64_t given(int32_t rank, int round, int number, int64_t i) {
    return rank * 7 + round + number + i;
}

static void one_round(worlds *w, int32_t rank, one_plan *plans, int round, uint64_t *seed) {
    int order[PLANS];
    int64_t size = w->size, sum = 1;
    for (int k = 0; k < PLANS; k++)
        for (int64_t i = 0; i < counts[k]; i++)
            plans[k].values[i] = given(rank, round, k, i);
    hc_handle *request = sum_of("beside", &sum, 1);
    hc_loop_submit(w->loops[rank], request, 0);
    shuffle(order, seed);
    for (int k = 0; k < PLANS; k++)
        CHECK(hc_plan_start(plans[order[k]].plan, 0) == HC_OK);
    if (next_random(seed) % 8 == 0)
        usleep(200);
    shuffle(order, seed);
    for (int k = 0; k < PLANS; k++)
        finish_plan(&plans[order[k]], seed);
    for (int k = 0; k < PLANS; k++)
        for (int64_t i = 0; i < counts[k]; i++) {
            int64_t total = size * given(0, round, k, i) + 7 * size * (size - 1) / 2;
            CHECK(plans[k].results[i] == (k == PLANS - 1 ? given(0, round, k, i) : total));
        }
    CHECK(finish(w->loops[rank], request) == HC_OK && sum == size);
}

/* The others never start it; on all nodes and paths the end of the log is the end of the start. */
static void start_alone(worlds *w, int32_t rank, one_plan *one) {
    hc_handle *stop = hc_handle_new(HC_EV_STOP, 0, 0, 0, NULL, 0, 0);
    pthread_barrier_wait(&w->meet); /* the end of the log would end the others' last starts, too */
    if (rank == 0)
        CHECK(hc_plan_start(one->plan, 1) == HC_OK);
    hc_loop_submit(w->loops[rank], stop, 1);
    CHECK(finish(w->loops[rank], stop) == HC_OK);
    if (rank == 0) {
        while (!hc_plan_wait(one->plan, 50000000)) {}
        CHECK(one->handle->status == HC_SHUT_DOWN);
    }
}

static void *rank_main(void *argument) {
    worlds *w = ((void **)argument)[0];
    int32_t rank = (int32_t)(intptr_t)((void **)argument)[1];
    uint64_t seed = (uint64_t)(rank + 1) * 0x9E3779B97F4A7C15u;
    one_plan *plans = calloc(PLANS, sizeof *plans);
    worlds_join(w, rank);
    for (int k = 0; k < PLANS; k++)
        make_plan(w, rank, k, &plans[k]);
    for (int round = 0; round < rounds; round++)
        one_round(w, rank, plans, round, &seed);
    hc_loop_stats stats;
    hc_loop_get_stats(w->loops[rank], &stats);
    CHECK(stats.plan_starts == (uint64_t)(rounds * PLANS) && stats.requests == (uint64_t)rounds);
    if (w->size > 1)
        start_alone(w, rank, &plans[2]);
    pthread_barrier_wait(&w->meet);
    hc_loop_free(w->loops[rank]);
    for (int k = 0; k < PLANS; k++) {
        hc_plan_free(plans[k].plan);
        hc_handle_release(plans[k].handle);
    }
    free(plans);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    static worlds w;
    pthread_t threads[MOST];
    void *arguments[MOST][2];
    rounds = atoi(argv[3]);
    w.knobs = (hc_loop_config){.background = (uint8_t)atoi(argv[4]), .wire = HC_WIRE_SAME};
    w.knobs.engine = (hc_engine_config){.cache_capacity = 64, .fusion_threshold = 1 << 16, .raise_window = 100000};
    worlds_prepare(&w, atoi(argv[1]), atoi(argv[2]));
    for (int32_t r = 0; r < w.size; r++) {
        arguments[r][0] = &w;
        arguments[r][1] = (void *)(intptr_t)r;
        pthread_create(&threads[r], NULL, rank_main, arguments[r]);
    }
    for (int32_t r = 0; r < w.size; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
    printf("fine\n");
    return 0;
}
