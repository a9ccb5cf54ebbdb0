/* SPDX-License-Identifier: Apache-2.0
 *
 * cases.h - random operations, the same on all ranks, which draw them from one seed.
 */
#ifndef HC_TESTS_CASES_H
#define HC_TESTS_CASES_H

#include "transport/emulated.h"

#define MAX_PIECES 5

typedef struct shape {
    int64_t row, rows; /* elementwise operations: row 1; rows are agreed, or those of rank r below */
    int64_t rows_of[MAX_RANKS];
    int64_t send[MAX_RANKS][MAX_RANKS];
    int evenly; /* scatter: send_rows is NULL */
} shape;

typedef struct test_case {
    int operation, dtype, wire, reduction, deterministic;
    int32_t root, joined; /* joined: a rank, or -1 */
    int32_t npieces;
    double scale;
    int64_t divisor;
    uint64_t seed;
    int in_place, wrong_room; /* wrong_room: a rank whose out has another size, or -1 */
    int equal_rows;           /* known to all ranks, which all have an out */
    shape shapes[MAX_PIECES];
} test_case;

static int only = -1; /* this operation */

static int is_float(int dtype) {
    return dtype >= HC_FLOAT16 && dtype <= HC_FLOAT64;
}

static int is_scan(const test_case *c) {
    return hc_operation_has(c->operation, HC_OP_PREFIX);
}

static void choose_shape(test_case *c, shape *s, uint64_t *random) {
    static const int64_t lengths[] = {0, 1, 2, 5, 17, 64, 301, 1000, 5003, 60000};
    s->row = hc_operation_has(c->operation, HC_OP_ELEMENTWISE) ? 1
             : below(random, 4)                                ? below(random, 6) /* rows of nothing, too */
             : below(random, 4)                                ? 1 + below(random, 700)
                                                               : 1 + below(random, 20000);
    s->rows = c->operation == HC_REDUCESCATTER ? below(random, 40) : lengths[below(random, 10)];
    if (c->operation == HC_BROADCAST)
        s->row = 1;
    s->evenly = c->operation == HC_SCATTER && below(random, 3) == 0;
    for (int32_t r = 0; r < size; r++) {
        s->rows_of[r] = below(random, 4) ? below(random, 6) : 0;
        for (int32_t q = 0; q < size; q++)
            s->send[r][q] = below(random, 4) ? below(random, 4) : 0;
    }
}

/* Equal rows are those of counted requests, which are in host memory. */
static int may_be_equal(const test_case *c) {
#ifdef ON_DEVICE
    (void)c;
    return 0;
#else
    return hc_operation_has(c->operation, HC_OP_ROWS_DIFFER);
#endif
}

static void make_equal(test_case *c) {
    c->equal_rows = c->in_place = 1;
    c->joined = c->wrong_room = -1;
    for (int32_t i = 0; i < c->npieces; i++)
        for (int32_t r = 0; r < size; r++) {
            c->shapes[i].rows_of[r] = c->shapes[i].rows_of[0];
            for (int32_t q = 0; q < size; q++)
                c->shapes[i].send[r][q] = c->shapes[i].send[0][0];
        }
}

/* TEST_NCCL_ONLY: the draw is repeated until it is a reduction that NCCL can. */
static int is_wanted(const test_case *c) {
#ifdef ON_DEVICE
    if (getenv("TEST_NCCL_ONLY") && hc_device_path(c->operation, c->reduction, c->dtype) != HC_PATH_NCCL)
        return 0;
#endif
    if (is_scan(c) && c->reduction == HC_AVERAGE)
        return 0;
    int exact = is_scan(c) || !hc_operation_has(c->operation, HC_OP_REDUCES);
    return hc_reduction_defined(c->reduction, c->dtype) && (exact || c->dtype < HC_COMPLEX64);
}

static void choose_types(test_case *c, uint64_t *random) {
    do {
        c->dtype = (int)below(random, HC_DTYPE_COUNT);
        c->reduction = (int)below(random, HC_REDUCTION_COUNT);
    } while (!is_wanted(c));
    c->wire = c->dtype;
    if (!is_scan(c) && c->operation != HC_BROADCAST && (c->dtype == HC_FLOAT32 || c->dtype == HC_FLOAT64) &&
        below(random, 2))
        c->wire = HC_FLOAT16 + (int)below(random, 2);
    c->scale = is_float(c->dtype) && c->reduction <= HC_SUM && below(random, 2) ? 0.3 : 1.0;
    c->divisor = hc_operation_has(c->operation, HC_OP_REDUCES) && c->reduction == HC_AVERAGE ? size : 1;
}

/* Any of those that move tensors. */
static int choose_operation(uint64_t *random) {
    int operation;
    do
        operation = (int)below(random, HC_OPERATION_COUNT);
    while (hc_operation_has(operation, HC_OP_NO_TENSORS));
    return operation;
}

static void choose_case(test_case *c, uint64_t *random) {
    memset(c, 0, sizeof *c);
    c->operation = only >= 0 ? only : choose_operation(random);
    choose_types(c, random);
    c->deterministic = (int)below(random, 2) && !getenv("TEST_NCCL_ONLY");
    c->root = hc_operation_has(c->operation, HC_OP_ROOTED) ? (int32_t)below(random, size) : -1;
    c->joined = below(random, 6) ? -1 : (int32_t)below(random, size);
    if (c->joined == c->root)
        c->joined = -1;
    c->wrong_room = below(random, 6) ? -1 : (int32_t)below(random, size);
    c->in_place = (int)below(random, 2);
    c->npieces = 1 + (int32_t)below(random, MAX_PIECES);
    c->seed = next_random(random);
    for (int32_t i = 0; i < c->npieces; i++)
        choose_shape(c, &c->shapes[i], random);
    if (may_be_equal(c) && below(random, 3) == 0)
        make_equal(c);
}

#endif
