/* SPDX-License-Identifier: Apache-2.0
 *
 * program.c - random programs over the C interface: all ranks draw the same calls from a seed, each checks its results.
 *
 *     program SEED STEPS [threads]       "threads": with all threads of MPI
 *
 * With ON_DEVICE the arrays of the drawn calls lie in device memory.
 */
#ifdef ON_DEVICE
#include "on_device.h"
#else
#include "ranks.h"
#endif

#include <stdlib.h>
#include <string.h>

#define MOST 4 /* calls in flight */
#define ELEMENTS 3000

static uint64_t state; /* of the numbers that all ranks draw alike */

static uint32_t draw(uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % below;
}

/* What rank r gives at place i: small, so that sums are exact in every type. */
static double value(int r, int64_t i, uint32_t salt) {
    return (double)((r * 7 + (int)(i % 1000) * 3 + (int)(salt % 11)) % 5 + 1);
}

static void put(void *data, hpccoll_dtype dtype, int64_t i, double v) {
    if (dtype == HPCCOLL_FLOAT64)
        ((double *)data)[i] = v;
    else if (dtype == HPCCOLL_FLOAT32)
        ((float *)data)[i] = (float)v;
    else if (dtype == HPCCOLL_INT32)
        ((int32_t *)data)[i] = (int32_t)v;
    else
        ((int64_t *)data)[i] = (int64_t)v;
}

static double get(const void *data, hpccoll_dtype dtype, int64_t i) {
    return dtype == HPCCOLL_FLOAT64   ? ((const double *)data)[i]
           : dtype == HPCCOLL_FLOAT32 ? ((const float *)data)[i]
           : dtype == HPCCOLL_INT32   ? ((const int32_t *)data)[i]
                                      : (double)((const int64_t *)data)[i];
}

static double combine(hpccoll_reduction op, double a, double b) {
    return op == HPCCOLL_MIN ? (a < b ? a : b) : op == HPCCOLL_MAX ? (a > b ? a : b) : a + b;
}

/* The reduction over ranks 0 to n - 1 at place i. */
static double reduced(hpccoll_reduction op, int n, int64_t i, uint32_t salt) {
    double result = value(0, i, salt);
    for (int r = 1; r < n; r++)
        result = combine(op, result, value(r, i, salt));
    return result;
}

typedef struct call {
    hpccoll_operation operation;
    hpccoll_dtype dtype;
    hpccoll_reduction op;
    int64_t count; /* of rank 0; rank r has r more where rows differ */
    int root;
    uint32_t salt;
    char name[16];
    char *in, *out; /* what a call gets: the values here, or memory on a device */
    char given[(ELEMENTS + 8) * 8], result[(ELEMENTS + 8) * 8 * 8];
    int64_t counts[64], send[64];
    hpccoll_request *request;
} call;

static call calls[MOST];

#ifdef ON_DEVICE
static void place(call *c) {
    c->in = device_new(sizeof c->given);
    c->out = device_new(sizeof c->result);
}
#else
static void open_gpu(void) {}

static void upload(void *to, const void *from, size_t bytes) {
    if (to != from)
        memcpy(to, from, bytes);
}

static void download(void *to, const void *from, size_t bytes) {
    upload(to, from, bytes);
}

static void place(call *c) {
    c->in = c->given;
    c->out = c->result;
}
#endif

static void choose(call *c, int step, int at) {
    static const hpccoll_operation operations[] = {
        HPCCOLL_ALLREDUCE, HPCCOLL_REDUCE, HPCCOLL_SCAN,    HPCCOLL_EXSCAN,   HPCCOLL_BROADCAST, HPCCOLL_REDUCESCATTER,
        HPCCOLL_ALLGATHER, HPCCOLL_GATHER, HPCCOLL_SCATTER, HPCCOLL_ALLTOALL, HPCCOLL_BARRIER};
    static const hpccoll_dtype dtypes[] = {HPCCOLL_FLOAT64, HPCCOLL_FLOAT32, HPCCOLL_INT32, HPCCOLL_INT64};
    static const hpccoll_reduction reductions[] = {HPCCOLL_SUM, HPCCOLL_MIN, HPCCOLL_MAX};
    c->operation = operations[draw(sizeof operations / sizeof *operations)];
    c->dtype = dtypes[draw(4)];
    c->op = reductions[draw(3)];
    c->count = draw(4) ? draw(20) : draw(ELEMENTS / 8);
    c->root = (int)draw((uint32_t)size);
    c->salt = draw(1000);
    snprintf(c->name, sizeof c->name, "call %d", (step * MOST + at) % 23);
}

static int64_t count_of(const call *c, int r) {
    return c->operation == HPCCOLL_ALLGATHER || c->operation == HPCCOLL_GATHER ? c->count + r : c->count;
}

/* Rows that rank `from` sends to rank `to` in an alltoall or a scatter. */
static int64_t rows(const call *c, int from, int to) {
    return (c->salt + (uint32_t)from * 3 + (uint32_t)to) % 5;
}

static int64_t all_counts(const call *c) {
    int64_t total = 0;
    for (int r = 0; r < size; r++)
        total += count_of(c, r);
    return total;
}

static void fill(call *c) {
    int64_t n = count_of(c, rank);
    if (c->operation == HPCCOLL_ALLTOALL || c->operation == HPCCOLL_SCATTER) {
        n = 0;
        for (int r = 0; r < size; r++)
            n += c->send[r] = rows(c, rank, r);
        c->count = n;
    }
    for (int64_t i = 0; i < n; i++)
        put(c->given, c->dtype, i, value(rank, i, c->salt));
    memset(c->result, 0x55, sizeof c->result);
    for (int64_t i = 0; c->operation == HPCCOLL_BROADCAST && rank == c->root && i < n; i++)
        put(c->result, c->dtype, i, value(rank, i, c->salt));
    upload(c->in, c->given, sizeof c->given);
    upload(c->out, c->result, sizeof c->result);
}

static int64_t received(const call *c) {
    int64_t n = 0;
    for (int r = 0; r < size; r++)
        n += c->operation == HPCCOLL_SCATTER ? (r == c->root ? rows(c, r, rank) : 0) : rows(c, r, rank);
    return n;
}

static int begin_reduction(call *c, const hpccoll_args *args, hpccoll_world *world, int waits) {
    hpccoll_request **request = &c->request;
    int64_t n = c->count;
    switch ((int)c->operation) {
    case HPCCOLL_ALLREDUCE:
        return waits ? hpccoll_allreduce(c->in, c->out, n, c->dtype, c->op, args, world)
                     : hpccoll_allreduce_async(c->in, c->out, n, c->dtype, c->op, args, world, request);
    case HPCCOLL_REDUCE:
        return waits ? hpccoll_reduce(c->in, c->out, n, c->dtype, c->op, c->root, args, world)
                     : hpccoll_reduce_async(c->in, c->out, n, c->dtype, c->op, c->root, args, world, request);
    case HPCCOLL_SCAN:
        return waits ? hpccoll_scan(c->in, c->out, n, c->dtype, c->op, args, world)
                     : hpccoll_scan_async(c->in, c->out, n, c->dtype, c->op, args, world, request);
    case HPCCOLL_EXSCAN:
        return waits ? hpccoll_exscan(c->in, c->out, n, c->dtype, c->op, args, world)
                     : hpccoll_exscan_async(c->in, c->out, n, c->dtype, c->op, args, world, request);
    default:
        return waits ? hpccoll_reducescatter(c->in, c->out, n, c->dtype, c->op, args, world)
                     : hpccoll_reducescatter_async(c->in, c->out, n, c->dtype, c->op, args, world, request);
    }
}

static int begin(call *c, const hpccoll_args *args, hpccoll_world *world, int waits) {
    hpccoll_request **request = &c->request;
    int64_t n = count_of(c, rank), all = all_counts(c), came = received(c), *counts = c->counts;
    int is_root = rank == c->root;
    switch ((int)c->operation) {
    case HPCCOLL_BROADCAST:
        return waits ? hpccoll_broadcast(c->out, n, c->dtype, c->root, args, world)
                     : hpccoll_broadcast_async(c->out, n, c->dtype, c->root, args, world, request);
    case HPCCOLL_ALLGATHER:
        return waits ? hpccoll_allgather(c->in, n, c->dtype, c->out, all, counts, args, world)
                     : hpccoll_allgather_async(c->in, n, c->dtype, HPCCOLL_ALLOCATE, 0, counts, args, world, request);
    case HPCCOLL_GATHER:
        return waits ? hpccoll_gather(c->in, n, c->dtype, is_root ? c->out : NULL, is_root ? all : 0, counts, c->root,
                                      args, world)
                     : hpccoll_gather_async(c->in, n, c->dtype, c->out, all, counts, c->root, args, world, request);
    case HPCCOLL_SCATTER:
        return waits ? hpccoll_scatter(c->in, n, c->send, c->dtype, c->out, came, c->root, args, world)
                     : hpccoll_scatter_async(is_root ? c->in : NULL, is_root ? n : 0, is_root ? c->send : NULL,
                                             c->dtype, c->out, came, c->root, args, world, request);
    case HPCCOLL_ALLTOALL:
        return waits ? hpccoll_alltoall(c->in, n, c->send, c->dtype, c->out, came, counts, args, world)
                     : hpccoll_alltoall_async(c->in, n, c->send, c->dtype, c->out, came, counts, args, world, request);
    case HPCCOLL_BARRIER:
        return waits ? hpccoll_barrier(args, world) : hpccoll_barrier_async(args, world, request);
    default:
        return begin_reduction(c, args, world, waits);
    }
}

static void check_gathered(const call *c) {
    int64_t at = 0;
    for (int r = 0; r < size; r++) {
        CHECK(c->counts[r] == count_of(c, r));
        for (int64_t i = 0; i < count_of(c, r); i++)
            CHECK(get(c->result, c->dtype, at++) == value(r, i, c->salt));
    }
}

/* Rank r's values for this rank begin behind those for the ranks before it. */
static void check_exchanged(const call *c) {
    int64_t at = 0;
    for (int r = 0; r < size; r++) {
        int64_t first = 0;
        if (c->operation == HPCCOLL_SCATTER && r != c->root)
            continue;
        for (int to = 0; to < rank; to++)
            first += rows(c, r, to);
        for (int64_t i = 0; i < rows(c, r, rank); i++)
            CHECK(get(c->result, c->dtype, at++) == value(r, first + i, c->salt));
        CHECK(c->operation == HPCCOLL_SCATTER || c->counts[r] == rows(c, r, rank));
    }
}

static void check_reduction(const call *c) {
    int ranks = c->operation == HPCCOLL_SCAN ? rank + 1 : c->operation == HPCCOLL_EXSCAN ? rank : size;
    int64_t first = 0, n = c->count;
    if (c->operation == HPCCOLL_REDUCESCATTER) {
        first = hpccoll_share_begin(c->count, size, rank);
        n = hpccoll_share(c->count, size, rank);
    }
    if ((c->operation == HPCCOLL_REDUCE && rank != c->root) || ranks == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        CHECK(get(c->result, c->dtype, i) == reduced(c->op, ranks, first + i, c->salt));
}

static void check(call *c) {
    download(c->result, c->out, sizeof c->result);
    switch ((int)c->operation) {
    case HPCCOLL_BARRIER:
        return;
    case HPCCOLL_BROADCAST:
        for (int64_t i = 0; i < c->count; i++)
            CHECK(get(c->result, c->dtype, i) == value(c->root, i, c->salt));
        return;
    case HPCCOLL_GATHER:
        if (rank != c->root)
            return;
        check_gathered(c);
        return;
    case HPCCOLL_ALLGATHER:
        check_gathered(c);
        return;
    case HPCCOLL_SCATTER:
    case HPCCOLL_ALLTOALL:
        check_exchanged(c);
        return;
    default:
        check_reduction(c);
    }
}

/* Waits for a call, unless that was done before. */
static void end(call *c) {
    void *made = NULL;
    int64_t count = 0;
    if (!c->request)
        return;
    if (c->operation == HPCCOLL_ALLGATHER) {
        CHECK(hpccoll_wait_result(&c->request, &made, &count) == HPCCOLL_OK);
        CHECK(count == all_counts(c));
        size_t element = c->dtype == HPCCOLL_FLOAT32 || c->dtype == HPCCOLL_INT32 ? 4 : 8;
        download(c->result, made, (size_t)count * element);
        upload(c->out, c->result, (size_t)count * element);
        hpccoll_release(made);
    } else {
        CHECK(hpccoll_wait(&c->request) == HPCCOLL_OK);
    }
    CHECK(c->request == NULL);
    check(c);
}

/* Several at once. Named ones begin in an order of each rank's own; for the others each rank waits at other places. */
static void run_several(hpccoll_world *world, int step, int n) {
    int named = draw(2);
    for (int i = 0; i < n; i++) {
        choose(&calls[i], step, i);
        fill(&calls[i]);
    }
    for (int i = 0; i < n; i++) {
        call *c = &calls[named ? (i + rank) % n : i];
        hpccoll_args args = HPCCOLL_ARGS;
        args.name = named ? c->name : NULL;
        CHECK(begin(c, &args, world, 0) == HPCCOLL_OK);
        if (!named && (i + step + rank) % 3 == 0)
            end(&calls[(7 * i + rank) % (i + 1)]);
    }
    for (int i = n - 1; i >= 0; i--)
        end(&calls[i]);
}

static void exchange_messages(hpccoll_world *world) {
    int to = (rank + 1) % size, source = (rank + size - 1) % size, from = -1;
    int64_t received = 0;
    double mine[100], theirs[120];
    hpccoll_request *requests[2];
    for (int i = 0; i < 100; i++)
        mine[i] = rank * 1000 + i;
    CHECK(hpccoll_recv_async(theirs, 120, HPCCOLL_FLOAT64, HPCCOLL_ANY_SOURCE, 5, &from, &received, world,
                             &requests[0]) == 0);
    CHECK(hpccoll_send_async(mine, 100, HPCCOLL_FLOAT64, to, 5, world, &requests[1]) == 0);
    CHECK(hpccoll_waitall(2, requests) == 0);
    CHECK(from == source && received == 100 && theirs[99] == source * 1000 + 99);
}

/* A shift in a ring, and one in a line, whose ends have one neighbour; small, and larger than an eager message. */
static void shift(int64_t n, hpccoll_world *world) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size, from = -7;
    int64_t received = -1;
    double *mine = malloc((size_t)n * sizeof *mine), *theirs = malloc((size_t)n * sizeof *theirs);
    for (int64_t i = 0; i < n; i++)
        mine[i] = (double)(rank * n + i);
    CHECK(hpccoll_sendrecv(mine, n, HPCCOLL_FLOAT64, right, 8, theirs, n, left, 8, &from, &received, world) == 0);
    CHECK(from == left && received == n && theirs[0] == left * n && theirs[n - 1] == left * n + n - 1);
    theirs[0] = -1;
    right = rank + 1 < size ? rank + 1 : HPCCOLL_PROC_NULL;
    left = rank > 0 ? rank - 1 : HPCCOLL_PROC_NULL;
    CHECK(hpccoll_sendrecv(mine, n, HPCCOLL_FLOAT64, right, 9, theirs, n, left, HPCCOLL_ANY_TAG, &from, &received,
                           world) == 0);
    CHECK(from == left && received == (rank ? n : 0) && theirs[0] == (rank ? left * n : -1));
    received = -1; /* a message of no element shares no memory */
    CHECK(hpccoll_sendrecv(theirs + n / 2, 0, HPCCOLL_FLOAT64, right, 10, theirs, n, left, 10, &from, &received,
                           world) == 0);
    CHECK(from == left && received == 0 && theirs[0] == (rank ? left * n : -1));
    free(mine);
    free(theirs);
}

static void probe_messages(hpccoll_world *world) {
    int to = (rank + 1) % size, source = (rank + size - 1) % size, from = -1, tag = -1, there = -1;
    int64_t bytes = -1;
    float mine[3] = {1, 2, (float)rank}, theirs[3];
    CHECK(hpccoll_iprobe(HPCCOLL_ANY_SOURCE, 11, &there, &from, NULL, NULL, world) == 0 && !there && from == -1);
    CHECK(hpccoll_send(mine, 3, HPCCOLL_FLOAT32, to, 12, world) == 0);
    CHECK(hpccoll_probe(source, HPCCOLL_ANY_TAG, &from, &tag, &bytes, world) == 0);
    CHECK(from == source && tag == 12 && bytes == 12);
    CHECK(hpccoll_iprobe(HPCCOLL_ANY_SOURCE, 12, &there, NULL, NULL, &bytes, world) == 0 && there == 1 && bytes == 12);
    CHECK(hpccoll_recv(theirs, 3, HPCCOLL_FLOAT32, from, tag, NULL, NULL, world) == 0 && theirs[2] == (float)source);
    CHECK(hpccoll_iprobe(source, 12, &there, NULL, NULL, NULL, world) == 0 && !there);
    CHECK(hpccoll_probe(HPCCOLL_PROC_NULL, 0, &from, &tag, &bytes, world) == 0);
    CHECK(from == HPCCOLL_PROC_NULL && tag == HPCCOLL_ANY_TAG && bytes == 0);
    CHECK(hpccoll_send(mine, 3, HPCCOLL_FLOAT32, HPCCOLL_PROC_NULL, 12, world) == 0);
}

static void check_sets(hpccoll_world *world) {
    hpccoll_world *half, *first;
    int ranks[64], sum = 1;
    CHECK(hpccoll_split(world, rank % 2, -rank, &half) == 0 && half);
    CHECK(hpccoll_size(half) == (size + 1 - rank % 2) / 2);
    CHECK(hpccoll_rank(half) == hpccoll_size(half) - 1 - rank / 2);
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, &sum, 1, HPCCOLL_INT32, HPCCOLL_SUM, NULL, half) == 0);
    CHECK(sum == hpccoll_size(half));
    CHECK(hpccoll_world_free(&half) == 0 && !half);
    for (int i = 0; i < size; i++)
        ranks[i] = size - 1 - i;
    CHECK(hpccoll_subset(world, ranks, size - (size > 1), &first) == 0);
    CHECK((first == NULL) == (size > 1 && rank == 0));
    CHECK(!first || hpccoll_rank(first) == size - 1 - rank);
    CHECK(hpccoll_world_free(&first) == 0);
}

static void check_group(hpccoll_world *world) {
    double a[3] = {rank, 1, 2};
    int32_t b = rank;
    hpccoll_array arrays[] = {{HPCCOLL_IN_PLACE, a, 3, HPCCOLL_FLOAT64}, {HPCCOLL_IN_PLACE, &b, 1, HPCCOLL_INT32}};
    CHECK(hpccoll_group(HPCCOLL_ALLREDUCE, arrays, 2, HPCCOLL_SUM, 0, NULL, world) == 0);
    CHECK(a[0] == size * (size - 1) / 2 && a[1] == size && b == size * (size - 1) / 2);
}

/* Each rank has its number's rest by 3 of rows; each sends one to every rank. */
static void check_rows(hpccoll_world *world) {
    enum { RANKS = 64 };
    int32_t mine[RANKS], all[2 * RANKS], received[RANKS], wrong[RANKS + 1] = {-1};
    int64_t counts[RANKS], total = 0, at = 0;
    CHECK(size <= RANKS);
    for (int q = 0; q < size; q++) {
        mine[q] = rank;
        total += q % 3;
    }
    CHECK(hpccoll_allgather(mine, rank % 3, HPCCOLL_INT32, all, total, counts, NULL, world) == 0);
    for (int q = 0; q < size; at += q++ % 3)
        CHECK(counts[q] == q % 3 && (!counts[q] || (all[at] == q && all[at + counts[q] - 1] == q)));
    CHECK(hpccoll_alltoall(mine, size, NULL, HPCCOLL_INT32, received, size, counts, NULL, world) == 0);
    for (int q = 0; q < size; q++)
        CHECK(counts[q] == 1 && received[q] == q);
    CHECK(hpccoll_allgather(mine, 1, HPCCOLL_INT32, wrong, size + (rank == 0), counts, NULL, world) ==
          HPCCOLL_RESULT_SIZE);
    CHECK(wrong[0] == -1);
}

/* Small calls beside joins, calls in flight and wrong ones: all ranks take the same shortcuts. */
static void check_shortcuts(hpccoll_world *world) {
    hpccoll_args most_named = HPCCOLL_ARGS, least_named = HPCCOLL_ARGS;
    uint64_t before = 0, taken = 0, most, least; /* sets took some of their own before */
    CHECK(hpccoll_stat(world, "shortcuts", &before) == 0);
    for (int step = 0; step < 200; step++) {
        int32_t x = rank + step, y = 0, kind = (int32_t)draw(12);
        hpccoll_request *request = NULL;
        if (kind == 0)
            CHECK(hpccoll_join(NULL, world) == 0);
        else if (kind == 1)
            CHECK(hpccoll_allreduce_async(&x, &y, 1, HPCCOLL_INT32, HPCCOLL_MAX, NULL, world, &request) == 0);
        else if (kind == 2 && size > 1)
            CHECK(hpccoll_allreduce(&x, &y, 1, rank ? HPCCOLL_INT32 : HPCCOLL_UINT32, HPCCOLL_MAX, NULL, world) ==
                  HPCCOLL_MISMATCH);
        int32_t sum = rank, sent = rank == step % size ? step : -1;
        CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, &sum, 1, HPCCOLL_INT32, HPCCOLL_SUM, NULL, world) == 0);
        CHECK(hpccoll_broadcast(&sent, 1, HPCCOLL_INT32, step % size, NULL, world) == 0);
        CHECK(sum == size * (size - 1) / 2 && sent == step);
        if (kind == 3)
            check_rows(world);
        CHECK(hpccoll_wait(&request) == 0 && (kind != 1 || y == size - 1 + step));
    }
    CHECK(hpccoll_stat(world, "shortcuts", &taken) == 0);
    most = least = taken -= before;
    most_named.name = "most", least_named.name = "least";
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, &most, 1, HPCCOLL_UINT64, HPCCOLL_MAX, &most_named, world) == 0);
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, &least, 1, HPCCOLL_UINT64, HPCCOLL_MIN, &least_named, world) == 0);
    CHECK(most == taken && least == taken);
    CHECK(taken > 0 || hpccoll_node_of(world, size - 1) == 0); /* in a busy node all ranks may always be late */
}

#ifdef WITHOUT_MPI
static hpccoll_world *begin_job(int argc, char **argv) {
    hpccoll_world *world = NULL;
    (void)argc, (void)argv;
    CHECK(hpccoll_world_from_launcher(NULL, &world) == 0);
    rank = hpccoll_rank(world);
    size = hpccoll_size(world);
    return world;
}

static void end_job(void) {}
#else
static hpccoll_world *begin_job(int argc, char **argv) {
    hpccoll_world *world = NULL;
    int given;
    MPI_Init_thread(&argc, &argv, argc > 3 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(hpccoll_world_from_mpi(MPI_COMM_WORLD, NULL, &world) == 0);
    return world;
}

static void end_job(void) {
    MPI_Finalize();
}
#endif

int main(int argc, char **argv) {
    open_gpu();
    hpccoll_world *world = begin_job(argc, argv);
    for (int i = 0; i < MOST; i++)
        place(&calls[i]);
    state = strtoull(argv[1], NULL, 10);
    int steps = atoi(argv[2]);
    CHECK(hpccoll_rank(world) == rank && hpccoll_size(world) == size && hpccoll_node_of(world, 0) == 0);
    for (int step = 0; step < steps; step++) {
        if (draw(2)) {
            run_several(world, step, 1 + (int)draw(MOST));
            continue;
        }
        choose(&calls[0], step, 0);
        fill(&calls[0]);
        CHECK(begin(&calls[0], NULL, world, 1) == 0);
        check(&calls[0]);
    }
    exchange_messages(world);
    shift(3, world);
    shift(40000, world);
    probe_messages(world);
    check_sets(world);
    check_group(world);
    check_shortcuts(world);
    uint64_t requests = 0;
    CHECK(hpccoll_stat(world, "requests", &requests) == 0 && requests >= (uint64_t)steps);
    CHECK(hpccoll_world_free(&world) == 0 && !world);
    end_job();
    if (rank == 0)
        printf("fine\n");
    return 0;
}
