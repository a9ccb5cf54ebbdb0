/* SPDX-License-Identifier: Apache-2.0
 *
 * reductions.c - reductions of the program's own, MINLOC and MAXLOC: every operation in every form, small and large,
 * and what is wrong with them.
 */
#include "ranks.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MOST 40000 /* elements: above and below the size from which a blocking call divides the work */
#define PRIME 10007

static hpccoll_world *world;
static hpccoll_reduction compose;

/* Pairs (a, b) stand for x -> a * x + b: to apply one behind the other is associative, and not commutative. */
static void compose_maps(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context) {
    const int64_t *first = in;
    int64_t *second = inout;
    CHECK(dtype == HPCCOLL_INT64 && count % 2 == 0 && context == &rank);
    for (int64_t i = 0; i < count; i += 2) {
        second[i + 1] = (second[i] * first[i + 1] + second[i + 1]) % PRIME;
        second[i] = first[i] * second[i] % PRIME;
    }
}

static int64_t given(int r, int64_t i) {
    return (r * 31 + i * 7 + 2) % PRIME;
}

/* The composition of ranks 0 to n - 1 at place i, which is even. */
static void expected(int n, int64_t i, int64_t pair[2]) {
    int64_t next[2];
    for (int r = 0; r < n; r++) {
        next[0] = given(r, i);
        next[1] = given(r, i + 1);
        if (r)
            compose_maps(pair, next, 2, HPCCOLL_INT64, &rank);
        memcpy(pair, next, sizeof next);
    }
}

static int64_t x[MOST], y[MOST];

static void fill(int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = given(rank, i);
    memset(y, 0x55, sizeof y);
}

/* `count` elements of `found` are the composition of `ranks` ranks from place `first` on. */
static void verify(const int64_t *found, int64_t first, int64_t count, int ranks) {
    int64_t pair[2] = {0};
    for (int64_t i = 0; i < count; i += 2) {
        expected(ranks, first + i, pair);
        CHECK(found[i] == pair[0] && found[i + 1] == pair[1]);
    }
}

static void untouched(int64_t count) {
    for (int64_t i = 0; i < count; i++)
        CHECK(y[i] == 0x5555555555555555);
}

/* ---- forms ------------------------------------------------------------------------------------------------------ */

enum { BLOCKING, ASYNCHRONOUS, PERSISTENT, FORMS };

#define RUN(form, name, ...)                                           \
    do {                                                               \
        hpccoll_request *request;                                      \
        hpccoll_plan *plan;                                            \
        if ((form) == BLOCKING) {                                      \
            CHECK(hpccoll_##name(__VA_ARGS__) == 0);                   \
        } else if ((form) == ASYNCHRONOUS) {                           \
            CHECK(hpccoll_##name##_async(__VA_ARGS__, &request) == 0); \
            CHECK(hpccoll_wait(&request) == 0);                        \
        } else {                                                       \
            CHECK(hpccoll_##name##_init(__VA_ARGS__, &plan) == 0);     \
            for (int start = 0; start < 3; start++) {                  \
                fill(MOST);                                            \
                CHECK(hpccoll_start(plan) == 0);                       \
                CHECK(hpccoll_plan_wait(plan) == 0);                   \
            }                                                          \
            CHECK(hpccoll_plan_free(&plan) == 0);                      \
        }                                                              \
    } while (0)

static void every_operation(int form, int64_t n) {
    const hpccoll_dtype dtype = HPCCOLL_INT64;
    hpccoll_args args = HPCCOLL_ARGS;
    int root = size - 1;
    fill(n);
    RUN(form, allreduce, x, y, n, dtype, compose, NULL, world);
    verify(y, 0, n, size);
    fill(n);
    RUN(form, reduce, x, y, n, dtype, compose, root, NULL, world);
    if (rank == root)
        verify(y, 0, n, size);
    else
        untouched(n);
    fill(n);
    RUN(form, scan, x, y, n, dtype, compose, NULL, world);
    verify(y, 0, n, rank + 1);
    fill(n);
    RUN(form, exscan, x, y, n, dtype, compose, NULL, world);
    if (rank)
        verify(y, 0, n, rank);
    else
        untouched(n);
    args.row = 2;
    fill(n);
    RUN(form, reducescatter, x, y, n, dtype, compose, &args, world);
    verify(y, 2 * hpccoll_share_begin(n / 2, size, rank), 2 * hpccoll_share(n / 2, size, rank), size);
}

static void in_place_and_named(int64_t n) {
    hpccoll_args args = HPCCOLL_ARGS;
    hpccoll_request *requests[2];
    int64_t *half = x + MOST / 2;
    fill(MOST);
    args.name = rank % 2 ? "second" : "first"; /* ranks begin them in different orders */
    int64_t *data = rank % 2 ? half : x;
    CHECK(!hpccoll_allreduce_async(HPCCOLL_IN_PLACE, data, n, HPCCOLL_INT64, compose, &args, world, &requests[0]));
    args.name = rank % 2 ? "first" : "second";
    data = rank % 2 ? x : half;
    CHECK(!hpccoll_allreduce_async(HPCCOLL_IN_PLACE, data, n, HPCCOLL_INT64, compose, &args, world, &requests[1]));
    CHECK(hpccoll_waitall(2, requests) == 0);
    verify(x, 0, n, size);
    verify(half, MOST / 2, n, size);
    fill(MOST);
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, x, MOST, HPCCOLL_INT64, compose, NULL, world) == 0);
    verify(x, 0, MOST, size);
}

/* A rank that has joined gives nothing. */
static void joined(void) {
    fill(MOST);
    for (int64_t n = 10; n <= MOST && rank < size - 1; n *= 4000) {
        CHECK(hpccoll_allreduce(x, y, n, HPCCOLL_INT64, compose, NULL, world) == 0);
        verify(y, 0, n, size - 1);
    }
    CHECK(hpccoll_join(NULL, world) == 0);
}

/* ---- MINLOC and MAXLOC ------------------------------------------------------------------------------------------ */

/* What the exscan of rank 0 gives: each pair precedes it, or it. */
static void before_rank_0(void) {
    int64_t in[] = {rank + 5, rank}, out[2];
    float small[] = {(float)rank, (float)rank}, least[2];
    for (int form = 0; form < FORMS; form++) {
        RUN(form, exscan, in, out, 2, HPCCOLL_INT64, HPCCOLL_MINLOC, NULL, world);
        CHECK(out[0] == (rank ? 5 : INT64_MAX) && out[1] == (rank ? 0 : INT64_MAX));
        RUN(form, exscan, in, out, 2, HPCCOLL_INT64, HPCCOLL_MAXLOC, NULL, world);
        CHECK(out[0] == (rank ? rank + 4 : INT64_MIN) && out[1] == (rank ? rank - 1 : INT64_MAX));
        RUN(form, exscan, small, least, 2, HPCCOLL_FLOAT32, HPCCOLL_MAXLOC, NULL, world);
        CHECK(rank ? least[0] == (float)(rank - 1) : isinf(least[0]) && least[0] < 0 && isinf(least[1]));
    }
    int64_t own[] = {rank + 5, rank};
    CHECK(hpccoll_exscan(own, own, 2, HPCCOLL_INT64, HPCCOLL_MINLOC, NULL, world) == 0);
    CHECK(own[0] == (rank ? 5 : INT64_MAX));
}

static void value_and_index(void) {
    float f[] = {(float)(rank % 2), (float)rank, (float)-rank, (float)rank, rank == 1 ? NAN : 1.0f, (float)rank};
    hpccoll_plan *plan;
    int32_t i[] = {100 - rank, rank};
    double d[2];
    CHECK(hpccoll_allreduce(f, f, 6, HPCCOLL_FLOAT32, HPCCOLL_MINLOC, NULL, world) == 0);
    CHECK(f[0] == 0 && f[1] == 0); /* the first of several */
    CHECK(f[2] == (float)(1 - size) && f[3] == (float)(size - 1));
    CHECK(size == 1 ? f[4] == 1 : isnan(f[4]) && f[5] == 1);
    CHECK(hpccoll_allreduce(i, i, 2, HPCCOLL_INT32, HPCCOLL_MAXLOC, NULL, world) == 0);
    CHECK(i[0] == 100 && i[1] == 0);
    before_rank_0();
    CHECK(hpccoll_allreduce_init(HPCCOLL_IN_PLACE, d, 2, HPCCOLL_FLOAT64, HPCCOLL_MAXLOC, NULL, world, &plan) == 0);
    for (int step = 0; step < 5; step++) {
        d[0] = (rank + step) % size;
        d[1] = rank;
        CHECK(hpccoll_start(plan) == 0 && hpccoll_plan_wait(plan) == 0);
        CHECK(d[0] == size - 1 && ((int)d[1] + step) % size == size - 1);
    }
    CHECK(hpccoll_plan_free(&plan) == 0);
}

/* ---- structures and wrong calls --------------------------------------------------------------------------------- */

typedef struct extremes {
    double least, most;
    int32_t ranks;
} extremes;

static void join_extremes(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context) {
    const extremes *a = in;
    extremes *b = inout;
    (void)context;
    CHECK(dtype == HPCCOLL_UINT8 && count % (int64_t)sizeof *a == 0);
    for (int64_t i = 0; i < count / (int64_t)sizeof *a; i++) {
        b[i].least = fmin(a[i].least, b[i].least);
        b[i].most = fmax(a[i].most, b[i].most);
        b[i].ranks += a[i].ranks;
    }
}

static void structures(void) {
    extremes e[3] = {{rank, rank, 1}, {-rank, 2 * rank, 1}, {0, 0, 1}};
    hpccoll_reduction op;
    CHECK(hpccoll_op_create(join_extremes, NULL, sizeof *e, "extremes", &op) == 0);
    CHECK(hpccoll_allreduce(e, e, sizeof e, HPCCOLL_UINT8, op, NULL, world) == 0);
    CHECK(e[0].least == 0 && e[0].most == size - 1 && e[1].least == 1 - size && e[2].ranks == size);
    CHECK(hpccoll_op_free(&op) == 0 && op == HPCCOLL_OP_NULL);
    CHECK(hpccoll_op_free(&op) == 0);
}

/* The largest values of two arrays in ascending order, in this order: it needs whole arrays, which are one block. */
static void keep_largest(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context) {
    static int64_t made[MOST];
    const int64_t *a = in;
    int64_t *b = inout, left = count, right = count;
    (void)context;
    CHECK(dtype == HPCCOLL_INT64 && count == MOST);
    for (int64_t i = count - 1; i >= 0; i--)
        made[i] = !right || (left && a[left - 1] > b[right - 1]) ? a[--left] : b[--right];
    memcpy(b, made, sizeof made);
}

static void whole_arrays(int64_t block) {
    hpccoll_reduction op;
    hpccoll_request *request;
    hpccoll_plan *plan;
    CHECK(hpccoll_op_create(keep_largest, NULL, block, "largest", &op) == 0);
    for (int64_t i = 0; i < MOST; i++)
        x[i] = i * size + rank;
    for (int form = 0; form < 4; form++) {
        memset(y, 0x55, sizeof y);
        if (form == 0)
            CHECK(hpccoll_allreduce(x, y, MOST, HPCCOLL_INT64, op, NULL, world) == 0);
        if (form == 1)
            CHECK(hpccoll_allreduce_async(x, y, MOST, HPCCOLL_INT64, op, NULL, world, &request) == 0 &&
                  hpccoll_wait(&request) == 0);
        if (form == 2)
            CHECK(hpccoll_allreduce_init(x, y, MOST, HPCCOLL_INT64, op, NULL, world, &plan) == 0 &&
                  hpccoll_start(plan) == 0 && hpccoll_plan_wait(plan) == 0 && hpccoll_plan_free(&plan) == 0);
        if (form == 3)
            CHECK(hpccoll_scan(x, y, MOST, HPCCOLL_INT64, op, NULL, world) == 0);
        for (int64_t i = 0; i < MOST && (form < 3 || rank == size - 1); i++)
            CHECK(y[i] == (int64_t)MOST * (size - 1) + i);
    }
    int64_t first = hpccoll_share_begin(MOST, size, rank), rows = hpccoll_share(MOST, size, rank);
    if (block)
        EXPECT(hpccoll_reducescatter(x, y, MOST, HPCCOLL_INT64, op, NULL, world), HPCCOLL_INVALID, "multiples of");
    else
        CHECK(hpccoll_reducescatter(x, y, MOST, HPCCOLL_INT64, op, NULL, world) == 0);
    for (int64_t i = 0; i < rows && !block; i++)
        CHECK(y[i] == (int64_t)MOST * (size - 1) + first + i);
    CHECK(hpccoll_op_free(&op) == 0);
}

static void add_or_fail(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context) {
    const int64_t *a = in;
    int64_t *b = inout;
    (void)dtype;
    for (int64_t i = 0; i < count; i++)
        b[i] += a[i];
    if (rank == *(int *)context)
        hpccoll_op_fail("it is too large");
}

/* The function fails on rank 1 alone. Where the work is divided, the others wait for its share. */
static void failing(void) {
    int which = 1;
    hpccoll_args args = HPCCOLL_ARGS;
    hpccoll_reduction op;
    hpccoll_request *request;
    const char *said = "the function of sums has failed: it is too large";
    CHECK(hpccoll_op_create(add_or_fail, &which, 1, "sums", &op) == 0);
    for (int named = 0; named < 2; named++) {
        args.name = named ? "sums" : NULL;
        fill(MOST);
        EXPECT(hpccoll_allreduce(x, y, MOST, HPCCOLL_INT64, op, &args, world),
               rank == 1 ? HPCCOLL_UNSUPPORTED : HPCCOLL_MISMATCH, said);
        untouched(MOST);
        CHECK(hpccoll_allreduce_async(x, y, 2, HPCCOLL_INT64, op, &args, world, &request) == 0);
        if (rank == 1)
            EXPECT(hpccoll_wait(&request), HPCCOLL_UNSUPPORTED, said);
        else
            CHECK(hpccoll_wait(&request) == 0 && y[1] != 0x5555555555555555);
    }
    which = -1;
    fill(MOST);
    CHECK(hpccoll_allreduce(x, y, MOST, HPCCOLL_INT64, op, NULL, world) == 0);
    CHECK(hpccoll_op_free(&op) == 0);
}

/* Ranks that differ in a plan, or in the form of a call. */
static void different_forms(void) {
    const hpccoll_dtype dtype = HPCCOLL_INT64;
    hpccoll_request *request;
    hpccoll_plan *plan;
    EXPECT(hpccoll_allreduce_init(x, y, 2, rank ? HPCCOLL_INT64 : HPCCOLL_UINT64, compose, NULL, world, &plan),
           HPCCOLL_MISMATCH, "rank 1 has allreduce int64[2] with compose");
    CHECK(!plan);
    EXPECT(hpccoll_allreduce_init(x, y, 2, dtype, rank ? compose : HPCCOLL_MINLOC, NULL, world, &plan),
           HPCCOLL_MISMATCH, "int64[2] with MINLOC, rank 1 has allreduce int64[2] with compose (reduction differs)");
    EXPECT(hpccoll_allreduce_init(x, y, rank ? 2 : 3, dtype, compose, NULL, world, &plan),
           rank ? HPCCOLL_MISMATCH : HPCCOLL_INVALID, "multiples of 2 elements, not 3"); /* rank 0 alone refuses */
    if (rank) {
        CHECK(hpccoll_allreduce_async(x, y, MOST, dtype, compose, NULL, world, &request) == 0);
        EXPECT(hpccoll_wait(&request), HPCCOLL_MISMATCH, "rank 0 waits for it in the call, rank 1 does not");
    } else {
        EXPECT(hpccoll_allreduce(x, y, MOST, dtype, compose, NULL, world), HPCCOLL_MISMATCH,
               "rank 0 waits for it in the call, rank 1 does not");
    }
}

static void wrong(void) {
    const hpccoll_dtype dtype = HPCCOLL_INT64;
    hpccoll_reduction op, freed;
    hpccoll_request *request, *other;
    hpccoll_args args = HPCCOLL_ARGS;
    const hpccoll_array arrays[] = {{x, y, 2, dtype}};
    fill(MOST);
    EXPECT(hpccoll_op_create(NULL, NULL, 1, NULL, &op), HPCCOLL_INVALID, "the function is NULL");
    EXPECT(hpccoll_op_create(join_extremes, NULL, -1, NULL, &op), HPCCOLL_INVALID, "block is -1");
    EXPECT(hpccoll_allreduce(x, y, 2, dtype, op, NULL, world), HPCCOLL_INVALID, "no hpccoll_reduction");
    EXPECT(hpccoll_allreduce(x, y, 3, dtype, compose, NULL, world), HPCCOLL_INVALID, "multiples of 2 elements, not 3");
    EXPECT(hpccoll_reducescatter(x, y, 4, dtype, compose, NULL, world), HPCCOLL_INVALID, "multiples of 2");
    EXPECT(hpccoll_group(HPCCOLL_ALLREDUCE, arrays, 1, compose, 0, NULL, world), HPCCOLL_UNSUPPORTED, "not a group");
    EXPECT(hpccoll_allreduce(x, y, 2, HPCCOLL_COMPLEX64, HPCCOLL_MINLOC, NULL, world), HPCCOLL_UNSUPPORTED,
           "MINLOC of complex64 is not defined");
    args.prescale = 2;
    EXPECT(hpccoll_allreduce(x, y, 2, dtype, compose, &args, world), HPCCOLL_UNSUPPORTED, "no prescale");
    args.prescale = 1;
    args.compression = HPCCOLL_FLOAT16;
    EXPECT(hpccoll_allreduce(x, y, 2, dtype, compose, &args, world), HPCCOLL_UNSUPPORTED, "no compression");
    op = HPCCOLL_MINLOC;
    EXPECT(hpccoll_op_free(&op), HPCCOLL_INVALID, "none that hpccoll_op_create()");
    CHECK(hpccoll_op_create(compose_maps, &rank, 2, "freed", &op) == 0);
    freed = op;
    CHECK(hpccoll_allreduce_async(x, y, 2, dtype, op, NULL, world, &request) == 0);
    CHECK(hpccoll_op_free(&op) == 0);
    args = (hpccoll_args)HPCCOLL_ARGS;
    args.name = "other";
    EXPECT(hpccoll_broadcast_async(y, 1, dtype, 0, &args, world, &other), HPCCOLL_INVALID,
           "shares memory with an array of allgather");
    CHECK(hpccoll_wait(&request) == 0); /* what is in flight goes on */
    verify(y, 0, 2, size);
    EXPECT(hpccoll_op_free(&freed), HPCCOLL_INVALID, "was freed");
    EXPECT(hpccoll_allreduce(x, y, 2, dtype, freed, NULL, world), HPCCOLL_INVALID, "was freed");
    if (size == 1)
        return;
    fill(MOST);
    for (int64_t n = 10; n <= MOST; n *= 4000) { /* whole, and divided */
        EXPECT(hpccoll_allreduce(x, y, n + 2 * !rank - 2, dtype, compose, NULL, world), HPCCOLL_MISMATCH,
               "rank 0 asks for allreduce with compose of int64[");
        EXPECT(hpccoll_reduce(x, y, n, dtype, compose, rank == 1, NULL, world), HPCCOLL_MISMATCH, "to rank 1");
    }
    CHECK(hpccoll_allreduce_async(x, y, 2, dtype, rank ? compose : HPCCOLL_MAXLOC, NULL, world, &request) == 0);
    EXPECT(hpccoll_wait(&request), HPCCOLL_MISMATCH, "rank 0 asks for allreduce with MAXLOC");
    untouched(MOST);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &world) == 0);
    CHECK(hpccoll_op_create(compose_maps, &rank, 2, "compose", &compose) == 0);
    for (int form = 0; form < FORMS; form++)
        for (int64_t n = 0; n <= MOST; n = n ? n * 200 : 2)
            every_operation(form, n);
    every_operation(BLOCKING, MOST);
    in_place_and_named(8);
    value_and_index();
    structures();
    whole_arrays(MOST);
    whole_arrays(0);
    wrong();
    if (size > 1) {
        failing();
        different_forms();
        joined();
    }
    CHECK(hpccoll_op_free(&compose) == 0);
    CHECK(hpccoll_world_free(&world) == 0);
    MPI_Finalize();
    if (rank == 0)
        printf("fine\n");
    return 0;
}
