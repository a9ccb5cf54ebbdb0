/* SPDX-License-Identifier: Apache-2.0
 *
 * flats.c - scenarios of flat.c, the marks of plans inside a node: all ranks give and take, or one of them does.
 */
#include "memory_model/nodes.h"

#include "memory_model/scenarios.h"
#include "transport/shm/flat.h"

enum { STARTS = 5, ALL = -1 };

static hc_data *planes[MM_THREADS];
static hc_batch batches[MM_THREADS];
static hc_piece pieces[MM_THREADS];
static hc_stream_read reads[MM_THREADS][MM_THREADS];
static int32_t in[MM_THREADS], out[MM_THREADS][MM_THREADS];
static int size, source, target;

static void make_planes(int ranks, int gives, int takes) {
    size_t bytes = hc_flat_bytes(ranks, sizeof in[0]);
    hc_segment segment = {.base = mm_shared(bytes), .bytes = bytes, .fd = -1};
    mm_make_controls(ranks);
    size = ranks;
    source = gives;
    target = takes;
    for (int q = 0; q < ranks; q++) {
        pieces[q] = (hc_piece){.in = &in[q], .out = &out[q][0], .count = 1, .row = 1, .scale = 1.0};
        batches[q] = (hc_batch){.operation = HC_ALLREDUCE, .reduction = HC_SUM, .dtype = HC_INT32, .divisor = 1};
        batches[q].count = batches[q].npieces = 1;
        batches[q].pieces = &pieces[q];
        for (int r = 0; r < ranks; r++)
            reads[q][r] = (hc_stream_read){source == ALL || source == r ? &out[q][r] : NULL, 0, sizeof in[0]};
        hc_flat_config config = {.batch = &batches[q], .source = gives, .target = takes, .to = 1, .slot_bytes = 4};
        config.reads = gives == ALL && takes == ALL ? NULL : reads[q]; /* a sum, or each rank's part */
        mm_check(hc_flat_new(&config, segment, mm_controls[q], mm_ranks, q, ranks, &planes[q]) == HC_OK, "a plane");
    }
}

static void sums_of_two(void) {
    make_planes(2, ALL, ALL);
}

static void sums_of_three(void) {
    make_planes(3, ALL, ALL);
}

static void one_gives(void) {
    make_planes(3, 0, ALL);
}

static void one_takes(void) {
    make_planes(3, ALL, 0);
}

static void tear_down(void) {
    for (int q = 0; q < size; q++)
        planes[q]->ops->free(planes[q]);
    mm_free_controls();
}

static int32_t given(int rank, int number) {
    return 100 * rank + number;
}

static void check(int rank, int number) {
    int is_sum = source == ALL && target == ALL;
    int32_t sum = 0;
    for (int q = 0; q < size; q++) {
        sum += given(q, number);
        if (!is_sum && (source == ALL || source == q) && (target == ALL || target == rank))
            mm_check(out[rank][q] == given(q, number), "another rank's part");
    }
    mm_check(!is_sum || out[rank][0] == sum, "a sum");
}

static void start_all(int rank, int sleeps) {
    for (int number = 0; number < STARTS; number++) {
        in[rank] = given(rank, number);
        mm_check(planes[rank]->ops->start(planes[rank], &batches[rank]) == HC_OK, "a start");
        MM_UNTIL_DONE(rank, sleeps, planes[rank]->ops->test(planes[rank]));
        check(rank, number);
    }
}

static void run(int rank) {
    start_all(rank, 0);
}

static void run_asleep(int rank) {
    start_all(rank, 1);
}

const mm_scenario mm_plan_of_two = {"plan-2", 2, sums_of_two, run, tear_down, 2, 1};
const mm_scenario mm_plan_of_three = {"plan-3", 3, sums_of_three, run, tear_down, 1, 1};
const mm_scenario mm_plan_from_one = {"plan-from-one", 3, one_gives, run, tear_down, 1, 1};
const mm_scenario mm_plan_to_one = {"plan-to-one", 3, one_takes, run, tear_down, 1, 1};
const mm_scenario mm_plan_asleep = {"plan-asleep", 3, one_gives, run_asleep, tear_down, 1, 1};
