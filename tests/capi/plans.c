/* SPDX-License-Identifier: Apache-2.0
 *
 * plans.c - random programs of plans over the C interface: all ranks make the same ones from a seed, each starts them
 * in an order of its own, beside calls and messages, and checks the results. Then what is wrong with plans.
 *
 *     plans SEED STEPS
 */
#include "ranks.h"

#include <string.h>

#define PLANS 10
#define ROWS 5000 /* at most: flat exchanges and chunks */

static uint64_t state, own_state; /* of the numbers that all ranks draw alike, and of this rank's */

static uint32_t draw_from(uint64_t *from, uint32_t below) {
    *from = *from * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*from >> 33) % below;
}

static uint32_t draw(uint32_t below) {
    return draw_from(&state, below);
}

/* What rank r gives at place i in a step: small, so that sums are exact. */
static double value(int r, int64_t i, int step) {
    return (double)((r * 7 + i % 1000 * 3 + step * 5) % 11);
}

static double total(int64_t i, int step) {
    double sum = 0;
    for (int r = 0; r < size; r++)
        sum += value(r, i, step);
    return sum;
}

typedef struct one {
    int kind, root, runs; /* runs: starts so far */
    int64_t n;
    hpccoll_plan *plan;
    double *in, *out;
    int32_t whole[8];
    int64_t counts[64], send[64];
} one;

enum { ALLREDUCE, REDUCE, BROADCAST, REDUCESCATTER, ALLGATHER, ALLTOALL, BARRIER, GROUP, RING, LIST, KINDS };

static one plans[PLANS];

/* Rows that `from` sends to `to`. */
static int64_t rows(const one *p, int from, int to) {
    return p->n ? (p->n + 3 * from + to) % 50 : 0;
}

static int64_t rows_of(const one *p, int to) {
    int64_t n = 0;
    for (int from = 0; from < size; from++)
        n += p->kind == ALLGATHER ? p->n + from : rows(p, from, to);
    return n;
}

static hpccoll_plan *ring(one *p, hpccoll_world *world) {
    hpccoll_plan *both[2], *list;
    int right = (rank + 1) % size, left = (rank + size - 1) % size, tag = 10 + (int)(p - plans);
    CHECK(hpccoll_recv_init(p->out, p->n + 1, HPCCOLL_FLOAT64, left, tag, &p->root, p->counts, world, &both[0]) == 0);
    CHECK(hpccoll_send_init(p->in, p->n, HPCCOLL_FLOAT64, right, tag, world, &both[1]) == 0);
    CHECK(hpccoll_plan_list(2, both, &list) == 0 && !both[0] && !both[1]);
    return list;
}

static hpccoll_plan *group(one *p, hpccoll_world *world) {
    hpccoll_plan *plan;
    const hpccoll_array arrays[] = {{p->in, p->out, p->n, HPCCOLL_FLOAT64},
                                    {HPCCOLL_IN_PLACE, p->whole, 8, HPCCOLL_INT32},
                                    {p->in + p->n, p->out + p->n, 1, HPCCOLL_FLOAT64}};
    CHECK(hpccoll_group_init(HPCCOLL_ALLREDUCE, arrays, 3, HPCCOLL_SUM, 0, NULL, world, &plan) == 0);
    return plan;
}

static hpccoll_plan *make(one *p, hpccoll_world *world) {
    hpccoll_plan *plan = NULL, *parts[2];
    hpccoll_args args = HPCCOLL_ARGS;
    int64_t n = p->n;
    switch (p->kind) {
    case ALLREDUCE:
        CHECK(hpccoll_allreduce_init(p->in, p->out, n, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &plan) == 0);
        break;
    case REDUCE:
        CHECK(hpccoll_reduce_init(p->in, rank == p->root ? p->out : NULL, n, HPCCOLL_FLOAT64, HPCCOLL_SUM, p->root,
                                  NULL, world, &plan) == 0);
        break;
    case BROADCAST:
        CHECK(hpccoll_broadcast_init(p->out, n, HPCCOLL_FLOAT64, p->root, NULL, world, &plan) == 0);
        break;
    case REDUCESCATTER:
        CHECK(hpccoll_reducescatter_init(p->in, p->out, n, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &plan) == 0);
        break;
    case ALLGATHER:
        args.row = 2;
        CHECK(hpccoll_allgather_init(p->in, 2 * (n + rank), HPCCOLL_FLOAT64, p->out, 2 * rows_of(p, rank), p->counts,
                                     &args, world, &plan) == 0);
        break;
    case ALLTOALL:
        for (int r = n = 0; r < size; r++)
            n += p->send[r] = rows(p, rank, r);
        CHECK(hpccoll_alltoall_init(p->in, n, p->send, HPCCOLL_FLOAT64, p->out, rows_of(p, rank), p->counts, NULL,
                                    world, &plan) == 0);
        break;
    case BARRIER:
        CHECK(hpccoll_barrier_init(NULL, world, &plan) == 0);
        break;
    case GROUP:
        return group(p, world);
    case RING:
        return ring(p, world);
    default: /* LIST */
        CHECK(hpccoll_allreduce_init(p->in, p->out, n, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &parts[0]) == 0);
        CHECK(hpccoll_barrier_init(NULL, world, &parts[1]) == 0);
        CHECK(hpccoll_plan_list(2, parts, &plan) == 0);
    }
    return plan;
}

static void fill(one *p) {
    for (int64_t i = 0; i < 2 * (ROWS + size) + 1; i++)
        p->in[i] = value(rank, i, p->runs);
    memset(p->out, 0x55, ((size_t)size * 2 * (ROWS + (size_t)size) + 1) * sizeof(double));
    for (int64_t i = 0; p->kind == BROADCAST && rank == p->root && i < p->n; i++)
        p->out[i] = value(rank, i, p->runs);
    for (int i = 0; i < 8; i++)
        p->whole[i] = (int32_t)value(rank, i, p->runs);
}

static void check_rows(const one *p) {
    int64_t at = 0;
    for (int r = 0; r < size; r++) {
        int64_t first = 0, n = p->kind == ALLGATHER ? 2 * (p->n + r) : rows(p, r, rank);
        for (int to = 0; p->kind == ALLTOALL && to < rank; to++)
            first += rows(p, r, to);
        CHECK(p->counts[r] == (p->kind == ALLGATHER ? n / 2 : n));
        for (int64_t i = 0; i < n; i++)
            CHECK(p->out[at++] == value(r, first + i, p->runs));
    }
}

static void check(const one *p) {
    int64_t begin = 0, n = p->n;
    if (p->kind == REDUCESCATTER) {
        begin = hpccoll_share_begin(p->n, size, rank);
        n = hpccoll_share(p->n, size, rank);
    }
    if (p->kind == ALLGATHER || p->kind == ALLTOALL)
        check_rows(p);
    else if (p->kind == RING)
        CHECK(p->root == (rank + size - 1) % size && p->counts[0] == p->n);
    for (int64_t i = 0; i < n; i++) {
        if (p->kind == RING)
            CHECK(p->out[i] == value(p->root, i, p->runs));
        else if (p->kind == BROADCAST)
            CHECK(p->out[i] == value(p->root, i, p->runs));
        else if (p->kind <= REDUCESCATTER || p->kind >= GROUP)
            CHECK((p->kind == REDUCE && rank != p->root) || p->out[i] == total(begin + i, p->runs));
    }
    for (int i = 0; p->kind == GROUP && i < 8; i++)
        CHECK(p->whole[i] == (int32_t)total(i, p->runs));
    CHECK(p->kind != GROUP || p->out[p->n] == total(p->n, p->runs));
}

static void choose(one *p, int kind, hpccoll_world *world) {
    p->kind = kind;
    p->root = (int)draw((uint32_t)size);
    p->n = draw(3) ? draw(60) : draw(ROWS);
    p->runs = 0;
    fill(p);
    p->plan = make(p, world);
}

/* Some plans, which all ranks start in an order of their own, beside a call. */
static void step(hpccoll_world *world) {
    int chosen[PLANS], n = 0;
    for (int i = 0; i < PLANS; i++)
        if (draw(2))
            chosen[n++] = i;
    for (int i = n - 1; i > 0; i--) {
        int other = (int)draw_from(&own_state, (uint32_t)i + 1), kept = chosen[i];
        chosen[i] = chosen[other];
        chosen[other] = kept;
    }
    for (int i = 0; i < n; i++) {
        plans[chosen[i]].runs++;
        fill(&plans[chosen[i]]);
        CHECK(hpccoll_start(plans[chosen[i]].plan) == 0);
    }
    double sum = rank;
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, &sum, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == 0);
    CHECK(sum == size * (size - 1) / 2);
    for (int i = 0; i < n; i++) {
        one *p = &plans[chosen[i]];
        int done = draw_from(&own_state, 2) == 0;
        if (done)
            CHECK(hpccoll_plan_wait(p->plan) == 0);
        while (!done)
            CHECK(hpccoll_plan_test(p->plan, &done) == 0);
        check(p);
    }
}

static uint64_t stat(hpccoll_world *world, const char *name) {
    uint64_t found = 0;
    CHECK(hpccoll_stat(world, name, &found) == 0);
    return found;
}

/* Starts agree on nothing. */
static void check_silence(hpccoll_world *world) {
    static const char *const counters[] = {"messages_up", "messages_down", "control_messages_local", "requests",
                                           "entries"};
    hpccoll_plan *some[] = {plans[ALLREDUCE].plan, plans[BARRIER].plan, plans[ALLTOALL].plan};
    uint64_t before[5];
    CHECK(hpccoll_barrier(NULL, world) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 5; i++)
        before[i] = stat(world, counters[i]);
    for (int run = 0; run < 20; run++) {
        CHECK(hpccoll_startall(3, some) == 0);
        CHECK(hpccoll_plan_waitall(3, some) == 0);
    }
    for (int i = 0; i < 5; i++)
        CHECK(stat(world, counters[i]) == before[i]);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Plans with a root, and of prefixes: rank r gives r + 1 rows to the last rank, which gives them back. */
static void rows_and_prefixes(hpccoll_world *world) {
    int root = size - 1, all = size * (size + 1) / 2;
    double own[64] = {0}, back[64] = {0}, *whole = calloc((size_t)all, sizeof *whole), sum[2] = {0}, before[2] = {0};
    int64_t counts[64] = {0}, shares[64];
    hpccoll_plan *plan[4];
    hpccoll_array arrays[] = {{own, sum, 1, HPCCOLL_FLOAT64}, {own, sum + 1, 1, HPCCOLL_FLOAT64}};
    for (int r = 0; r < size; r++)
        shares[r] = r + 1;
    CHECK(hpccoll_gather_init(own, rank + 1, HPCCOLL_FLOAT64, whole, all, counts, root, NULL, world, &plan[0]) == 0);
    CHECK(hpccoll_scatter_init(whole, all, shares, HPCCOLL_FLOAT64, back, rank + 1, root, NULL, world, &plan[1]) == 0);
    CHECK(hpccoll_group_init(HPCCOLL_SCAN, arrays, 2, HPCCOLL_SUM, 0, NULL, world, &plan[2]) == 0);
    CHECK(hpccoll_exscan_init(own, before, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &plan[3]) == 0);
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i <= rank; i++)
            own[i] = 100 * run + rank;
        for (int i = 0; i < 4; i++)
            CHECK(hpccoll_start(plan[i]) == 0 && hpccoll_plan_wait(plan[i]) == 0);
        for (int i = 0; i <= rank; i++)
            CHECK(back[i] == own[i]);
        for (int r = 0, at = 0; rank == root && r < size; r++) {
            CHECK(counts[r] == r + 1);
            for (int i = 0; i <= r; i++)
                CHECK(whole[at++] == 100 * run + r);
        }
        CHECK(sum[0] == 100 * run * (rank + 1) + rank * (rank + 1) / 2 && sum[1] == sum[0]);
        CHECK(before[0] == sum[0] - own[0]);
    }
    for (int i = 0; i < 4; i++)
        CHECK(hpccoll_plan_free(&plan[i]) == 0);
    free(whole);
}

/* ---- wrong ------------------------------------------------------------------------------------------------------ */

static void wrong_together(hpccoll_world *world) {
    double x[8] = {0}, out[64];
    hpccoll_plan *plan;
    hpccoll_array arrays[] = {{x, x, 1, HPCCOLL_FLOAT64}, {x + 1, x + 1, 1, HPCCOLL_FLOAT64}};
    EXPECT(hpccoll_allreduce_init(x, x, 1 + rank, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &plan), HPCCOLL_MISMATCH,
           "rank 0 has allreduce float64[1], rank 1 has allreduce float64[2] (tensors differs)");
    CHECK(!plan);
    EXPECT(hpccoll_reduce_init(x, x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, rank ? 1 : 0, NULL, world, &plan),
           HPCCOLL_MISMATCH, "float64[1] root 0, rank 1 has reduce float64[1] root 1 (root differs)");
    EXPECT(rank ? hpccoll_barrier_init(NULL, world, &plan)
                : hpccoll_broadcast_init(x, 1, HPCCOLL_FLOAT64, 0, NULL, world, &plan),
           HPCCOLL_MISMATCH, "operation differs");
    EXPECT(hpccoll_allgather_init(x, 2, HPCCOLL_FLOAT64, out, 2 * size + (rank == 1), NULL, NULL, world, &plan),
           HPCCOLL_RESULT_SIZE, "on rank 1 out has");
    arrays[1].dtype = rank ? HPCCOLL_FLOAT64 : HPCCOLL_INT64;
    EXPECT(hpccoll_group_init(HPCCOLL_ALLREDUCE, arrays, 2, HPCCOLL_SUM, 0, NULL, world, &plan), HPCCOLL_MISMATCH,
           "float64[1] int64[1], rank 1 has allreduce float64[1] float64[1]");
}

static void wrong_alone(hpccoll_world *world) {
    double x = 1;
    int done;
    hpccoll_plan *plan, *copy, *twice[2], *list;
    EXPECT(hpccoll_allreduce_init(&x, &x, -1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &plan), HPCCOLL_INVALID,
           "negative");
    EXPECT(hpccoll_allreduce_init(&x, &x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, NULL), HPCCOLL_INVALID,
           "place for the plan");
    EXPECT(hpccoll_start(NULL), HPCCOLL_INVALID, "the plan is NULL");
    CHECK(hpccoll_recv_init(&x, 1, HPCCOLL_FLOAT64, rank, 99, NULL, NULL, world, &plan) == 0);
    CHECK(hpccoll_plan_wait(plan) == 0); /* nothing was started */
    CHECK(hpccoll_start(plan) == 0);
    EXPECT(hpccoll_start(plan), HPCCOLL_INVALID, "was started and is not over");
    EXPECT(hpccoll_plan_free(&plan), HPCCOLL_INVALID, "was started and is not over");
    twice[0] = plan;
    EXPECT(hpccoll_plan_list(1, twice, &list), HPCCOLL_INVALID, "was started and is not over");
    CHECK(hpccoll_plan_test(plan, &done) == 0 && !done);
    CHECK(hpccoll_send(&x, 1, HPCCOLL_FLOAT64, rank, 99, world) == 0 && hpccoll_plan_wait(plan) == 0);
    double two[2] = {1, 2};
    CHECK(hpccoll_start(plan) == 0 && hpccoll_send(two, 2, HPCCOLL_FLOAT64, rank, 99, world) == 0);
    EXPECT(hpccoll_plan_wait(plan), HPCCOLL_RESULT_SIZE, "a message of 16 bytes came for a receive of 8 bytes");
    twice[0] = twice[1] = copy = plan;
    EXPECT(hpccoll_plan_list(2, twice, &list), HPCCOLL_INVALID, "twice, at places 0 and 1");
    CHECK(hpccoll_plan_free(&plan) == 0 && !plan && hpccoll_plan_free(&plan) == 0);
    EXPECT(hpccoll_start(copy), HPCCOLL_INVALID, "the plan was freed");
    EXPECT(hpccoll_plan_free(&copy), HPCCOLL_INVALID, "the plan was freed");
}

/* Two plans that are started at the same time and share memory, of which one writes it. */
static void wrong_memory(hpccoll_world *world) {
    double x[4] = {1, 2, 3, 4}, y[4] = {0};
    hpccoll_plan *writes, *reads;
    CHECK(hpccoll_allreduce_init(y, x, 4, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &writes) == 0);
    CHECK(hpccoll_reduce_init(x + 3, y + 3, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, 0, NULL, world, &reads) == 0);
    for (int run = 0; run < 2; run++) {
        CHECK(hpccoll_start(writes) == 0);
        EXPECT(hpccoll_start(reads), HPCCOLL_INVALID, "the plan shares memory with allreduce 'plan ");
        CHECK(hpccoll_plan_wait(writes) == 0 && hpccoll_start(reads) == 0);
        EXPECT(hpccoll_start(writes), HPCCOLL_INVALID, "which was started and is not over: wait for that one first");
        CHECK(hpccoll_plan_wait(reads) == 0);
    }
    CHECK(hpccoll_plan_free(&reads) == 0 && hpccoll_start(writes) == 0 && hpccoll_plan_wait(writes) == 0);
    CHECK(hpccoll_plan_free(&writes) == 0);
}

/* A plan that outlives its World. */
static void wrong_order(hpccoll_world *world) {
    double x = 1;
    hpccoll_world *half;
    hpccoll_plan *plan;
    CHECK(hpccoll_split(world, rank % 2, 0, &half) == 0);
    CHECK(hpccoll_allreduce_init(&x, &x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, half, &plan) == 0);
    CHECK(hpccoll_start(plan) == 0 && hpccoll_plan_wait(plan) == 0 && x == hpccoll_size(half));
    CHECK(hpccoll_world_free(&half) == 0);
    EXPECT(hpccoll_start(plan), HPCCOLL_SHUT_DOWN, "it was freed");
    CHECK(hpccoll_plan_free(&plan) == 0 && !plan);
}

/* A list whose plans are of two Worlds: a test makes progress in both. The message is larger than an eager one. */
static void two_worlds(hpccoll_world *world) {
    enum { N = 400000, LOOKS = 100000000 };
    int to = (rank + 1) % size, from = (rank + size - 1) % size, done = 0;
    double sum = 1, *mine = malloc(N * sizeof *mine), *theirs = malloc(N * sizeof *theirs);
    hpccoll_world *other;
    hpccoll_plan *parts[3], *list;
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0 background=0", &other) == 0);
    CHECK(hpccoll_allreduce_init(&sum, &sum, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &parts[0]) == 0);
    CHECK(hpccoll_recv_init(theirs, N, HPCCOLL_FLOAT64, from, 1, NULL, NULL, other, &parts[1]) == 0);
    CHECK(hpccoll_send_init(mine, N, HPCCOLL_FLOAT64, to, 1, other, &parts[2]) == 0);
    CHECK(hpccoll_plan_list(3, parts, &list) == 0);
    for (int i = 0; i < N; i++)
        mine[i] = rank + i;
    CHECK(hpccoll_start(list) == 0);
    for (int looks = 0; looks < LOOKS && !done; looks++)
        CHECK(hpccoll_plan_test(list, &done) == 0);
    CHECK(done && sum == size && theirs[0] == from && theirs[N - 1] == from + N - 1);
    CHECK(hpccoll_plan_free(&list) == 0 && hpccoll_world_free(&other) == 0);
    free(mine);
    free(theirs);
}

int main(int argc, char **argv) {
    hpccoll_world *world;
    MPI_Comm split; /* has none of the attributes that MPI gives MPI_COMM_WORLD */
    MPI_Init(&argc, &argv);
    state = strtoull(argv[1], NULL, 10);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    own_state = state + 1 + (uint64_t)rank;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &split);
    CHECK(hpccoll_world_from_mpi(split, "verbose=0", &world) == 0);
    for (int i = 0; i < PLANS; i++) {
        plans[i].in = malloc((2 * (ROWS + (size_t)size) + 1) * sizeof(double));
        plans[i].out = malloc(((size_t)size * 2 * (ROWS + (size_t)size) + 1) * sizeof(double));
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PLANS; i++)
            choose(&plans[i], i, world);
        for (int i = 0; i < atoi(argv[2]); i++)
            step(world);
        check_silence(world);
        for (int i = 0; i < PLANS && round == 0; i++) /* those of the second round end with the World */
            CHECK(hpccoll_plan_free(&plans[i].plan) == 0);
    }
    rows_and_prefixes(world);
    two_worlds(world);
    wrong_alone(world);
    wrong_memory(world);
    if (size > 1)
        wrong_together(world);
    wrong_order(world);
    CHECK(hpccoll_world_free(&world) == 0);
    for (int i = 0; i < PLANS; i++) {
        CHECK(hpccoll_plan_free(&plans[i].plan) == 0);
        free(plans[i].in);
        free(plans[i].out);
    }
    MPI_Comm_free(&split);
    MPI_Finalize();
    if (rank == 0)
        printf("fine\n");
    return 0;
}
