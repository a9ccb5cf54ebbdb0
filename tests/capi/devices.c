/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.c - arrays in device memory over the C interface: messages, groups, sets, results that the library allocates,
 * calls without elements, and wrong calls.
 *
 *     devices        everything
 *     devices start OPTIONS        makes a World with these options: prints its error, or "fine"
 *     devices late                 everything, in a World after one that was made before the driver was in the process
 *     devices broken               calls until the device fails: prints the error
 */
#include "on_device.h"

enum { N = 500, MOST = 16 };

static double *zeros_on_device(int64_t n) {
    static const double zeros[N * MOST];
    double *made = device_new((size_t)n * sizeof *made);
    upload(made, zeros, (size_t)n * sizeof *made);
    return made;
}

/* An array on the device with first, first + 1, ... */
static double *on_device(int64_t n, double first) {
    double values[N * MOST], *made = zeros_on_device(N * MOST);
    for (int64_t i = 0; i < n; i++)
        values[i] = first + (double)i;
    upload(made, values, (size_t)n * sizeof *values);
    return made;
}

/* Whether it has these values, and other ones behind them. */
static int has(const double *device, int64_t n, double first, double step) {
    double values[N * MOST];
    download(values, device, (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        if (values[i] != first + step * (double)i)
            return 0;
    return 1;
}

static double all_ranks(void) {
    return size * (size - 1) / 2.0;
}

/* ---- what works ------------------------------------------------------------------------------------------------- */

/* Between devices, and between a device and the host. */
static void messages(hpccoll_world *world) {
    int to = (rank + 1) % size, source = (rank + size - 1) % size, from = -1;
    int64_t received = 0;
    double *mine = on_device(N, rank * 1000), *theirs = zeros_on_device(N), host[N];
    hpccoll_request *requests[2];
    CHECK(hpccoll_recv_async(theirs, N, HPCCOLL_FLOAT64, HPCCOLL_ANY_SOURCE, 5, &from, &received, world, requests) ==
          0);
    CHECK(hpccoll_send_async(mine, N, HPCCOLL_FLOAT64, to, 5, world, requests + 1) == 0);
    CHECK(hpccoll_waitall(2, requests) == 0 && from == source && received == N && has(theirs, N, source * 1000, 1));
    CHECK(hpccoll_send_async(mine, 3, HPCCOLL_FLOAT64, to, 6, world, requests) == 0);
    CHECK(hpccoll_recv(host, N, HPCCOLL_FLOAT64, source, 6, NULL, &received, world) == 0);
    CHECK(received == 3 && host[2] == source * 1000 + 2 && hpccoll_wait(requests) == 0);
    host[0] = -rank;
    CHECK(hpccoll_send_async(host, 1, HPCCOLL_FLOAT64, to, 7, world, requests) == 0);
    CHECK(hpccoll_recv(theirs, N, HPCCOLL_FLOAT64, source, 7, NULL, NULL, world) == 0 && has(theirs, 1, -source, 0));
    CHECK(hpccoll_wait(requests) == 0);
}

/* Both ways at once, also between the memories, and to nobody; a message is seen before it is received. */
static void exchanges(hpccoll_world *world) {
    int to = (rank + 1) % size, source = (rank + size - 1) % size, from = -1, tag = -1;
    int64_t received = 0, bytes = 0;
    double *mine = on_device(N, rank * 1000), *theirs = zeros_on_device(N), host[N] = {0};
    hpccoll_request *request;
    CHECK(hpccoll_sendrecv(mine, N, HPCCOLL_FLOAT64, to, 1, theirs, N, source, 1, &from, &received, world) == 0);
    CHECK(from == source && received == N && has(theirs, N, source * 1000, 1));
    CHECK(hpccoll_sendrecv(mine, 2, HPCCOLL_FLOAT64, to, 2, host, N, source, 2, NULL, NULL, world) == 0);
    CHECK(host[1] == source * 1000 + 1);
    CHECK(hpccoll_sendrecv(mine, N, HPCCOLL_FLOAT64, HPCCOLL_PROC_NULL, 3, theirs, N, HPCCOLL_PROC_NULL, 3, &from,
                           &received, world) == 0);
    CHECK(from == HPCCOLL_PROC_NULL && received == 0 && has(theirs, N, source * 1000, 1));
    EXPECT(hpccoll_sendrecv(mine, N, HPCCOLL_FLOAT64, to, 4, mine + 1, 1, source, 4, NULL, NULL, world),
           HPCCOLL_INVALID, "in and out of sendrecv share memory");
    CHECK(hpccoll_send_async(mine, 3, HPCCOLL_FLOAT64, to, 5, world, &request) == 0);
    CHECK(hpccoll_probe(source, HPCCOLL_ANY_TAG, &from, &tag, &bytes, world) == 0 && tag == 5 && bytes == 24);
    CHECK(hpccoll_recv(theirs, 3, HPCCOLL_FLOAT64, from, tag, NULL, NULL, world) == 0 && hpccoll_wait(&request) == 0);
}

static void group_and_factors(hpccoll_world *world) {
    double *a = on_device(N, rank), *b = on_device(3, 1), *c = zeros_on_device(3);
    hpccoll_args args = HPCCOLL_ARGS;
    hpccoll_array arrays[] = {{HPCCOLL_IN_PLACE, a, N, HPCCOLL_FLOAT64}, {b, c, 3, HPCCOLL_FLOAT64}};
    CHECK(hpccoll_group(HPCCOLL_ALLREDUCE, arrays, 2, HPCCOLL_SUM, 0, NULL, world) == 0);
    CHECK(has(a, N, all_ranks(), size) && has(c, 3, size, size) && has(b, 3, 1, 1));
    args.postscale = 0.5;
    args.compression = HPCCOLL_FLOAT16;
    CHECK(hpccoll_allreduce(b, c, 3, HPCCOLL_FLOAT64, HPCCOLL_SUM, &args, world) == 0 &&
          has(c, 3, size / 2.0, size / 2.0));
}

/* Named calls, in an order of each rank's own, tested until their values are there. */
static void several(hpccoll_world *world) {
    double *arrays[MOST];
    char name[16];
    hpccoll_request *requests[MOST];
    for (int k = 0; k < MOST; k++) {
        int i = (k + 5 * rank) % MOST;
        hpccoll_args args = HPCCOLL_ARGS;
        snprintf(name, sizeof name, "call %d", i);
        args.name = name;
        arrays[i] = on_device(N, i);
        CHECK(hpccoll_allreduce_async(HPCCOLL_IN_PLACE, arrays[i], N, HPCCOLL_FLOAT64, HPCCOLL_SUM, &args, world,
                                      &requests[i]) == 0);
    }
    for (int i = 0; i < MOST; i++) {
        for (int done = 0; !done;)
            CHECK(hpccoll_test(&requests[i], &done) == 0);
        CHECK(has(arrays[i], N, size * i, size));
    }
}

static void sets_and_joins(hpccoll_world *world) {
    hpccoll_world *half = NULL;
    double *x = on_device(N, 1);
    CHECK(hpccoll_split(world, rank % 2, rank, &half) == 0);
    CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, x, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, half) == 0);
    CHECK(has(x, N, hpccoll_size(half), hpccoll_size(half)) && hpccoll_world_free(&half) == 0);
    int last = -1;
    if (rank) {
        x = on_device(N, 1);
        CHECK(hpccoll_allreduce(HPCCOLL_IN_PLACE, x, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == 0);
        CHECK(has(x, N, size - 1, size - 1));
    }
    CHECK(hpccoll_join(&last, world) == 0 && last >= 0);
}

/* A result that the library has allocated outlives the World. */
static void allocated(hpccoll_world *world, void **kept) {
    int64_t count = 0, counts[MOST];
    double *x = on_device(rank + 1, 7);
    hpccoll_request *request;
    for (int k = 0; k < 2; k++) {
        CHECK(hpccoll_allgather_async(x, rank + 1, HPCCOLL_FLOAT64, HPCCOLL_ALLOCATE, 0, counts, NULL, world,
                                      &request) == 0);
        if (k)
            CHECK(hpccoll_wait(&request) == 0); /* nobody wants it */
        else
            CHECK(hpccoll_wait_result(&request, kept, &count) == 0 && count == size * (size + 1) / 2);
        CHECK(counts[size - 1] == size);
    }
    CHECK(has(*kept, 1, 7, 0) && has((double *)*kept + count - size, size, 7, 1));
}

/* The World ends before its request has been waited for. */
static void left_in_flight(hpccoll_world **world) {
    double *x = on_device(N, 1);
    hpccoll_request *request;
    CHECK(hpccoll_allreduce_async(HPCCOLL_IN_PLACE, x, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, *world, &request) == 0);
    CHECK(hpccoll_world_free(world) == 0);
    int status = hpccoll_wait(&request);
    CHECK(status == HPCCOLL_OK || status == HPCCOLL_SHUT_DOWN);
}

/* A rank without elements says by an address in which memory it takes part. */
static void nothing_to_give(hpccoll_world *world) {
    double *x = on_device(N, 3), *all = zeros_on_device(N * MOST);
    int64_t mine = rank ? 2 : 0, counts[MOST];
    CHECK(hpccoll_allgather(rank ? x : NULL, mine, HPCCOLL_FLOAT64, all, 2 * (size - 1), counts, NULL, world) == 0);
    CHECK(counts[0] == 0 && (size == 1 || has(all + 2 * (size - 2), 2, 3, 1)));
    CHECK(hpccoll_gather(x, mine, HPCCOLL_FLOAT64, rank == size - 1 ? all : NULL, 2 * (size - 1), counts, size - 1,
                         NULL, world) == 0);
    CHECK(hpccoll_reducescatter(x, all, size - 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == 0);
    CHECK(rank == size - 1 || has(all, 1, (3 + rank) * size, 0));
    CHECK(hpccoll_allreduce(x, all, 0, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == 0);
}

/* Pinned memory is the host's. */
static void pinned(hpccoll_world *world) {
    double *x = NULL, y[2] = {0};
    CHECK(gpu.pin((void **)&x, sizeof y, 0) == 0);
    x[0] = rank, x[1] = 1;
    CHECK(hpccoll_allreduce(x, y, 2, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == 0);
    CHECK(y[0] == all_ranks() && y[1] == size);
}

static void alone(void) {
    hpccoll_world *world;
    double *x = on_device(N, 1), *y = zeros_on_device(N);
    CHECK(hpccoll_world_alone("verbose=0 nodes=1", &world) == 0);
    CHECK(hpccoll_scan(x, y, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world) == 0 && has(y, N, 1, 1));
    CHECK(hpccoll_world_free(&world) == 0);
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static void combine(const void *in, void *inout, int64_t count, hpccoll_dtype dtype, void *context) {
    (void)in, (void)inout, (void)count, (void)dtype, (void)context;
}

static void wrong_memory(hpccoll_world *world) {
    double *x = on_device(N, 1), *y = zeros_on_device(N), host[N] = {0};
    hpccoll_array mixed[] = {{x, y, 2, HPCCOLL_FLOAT64}, {host, host, 2, HPCCOLL_FLOAT64}};
    EXPECT(hpccoll_allreduce(x, host, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID,
           "allreduce: out lies in host memory, the input in device memory; nothing was sent");
    EXPECT(hpccoll_allgather(host, 1, HPCCOLL_FLOAT64, y, size, NULL, NULL, world), HPCCOLL_INVALID,
           "allgather: out lies in device memory, the input in host memory; nothing was sent");
    EXPECT(hpccoll_group(HPCCOLL_ALLREDUCE, mixed, 2, HPCCOLL_SUM, 0, NULL, world), HPCCOLL_INVALID,
           "allreduce: a group lies in one memory: array 0 in device memory, array 1 in host memory; nothing was sent");
    EXPECT(hpccoll_allreduce(x, x + 1, 4, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID, "overlaps");
    if (size > 1) { /* on one rank alone, and of one rank only */
        double *mine = rank == 1 ? host : x;
        EXPECT(hpccoll_allreduce(mine, mine, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_MISMATCH,
               "device memory, rank 1 has");
        EXPECT(hpccoll_allreduce(mine, x, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world),
               rank == 1 ? HPCCOLL_INVALID : HPCCOLL_MISMATCH,
               "out lies in device memory, the input in host memory; nothing was sent");
    }
    CHECK(has(x, N, 1, 1) && has(y, N, 0, 0) && host[0] == 0);
    CHECK(hpccoll_on_device(x + N - 1, world) == 1 && hpccoll_on_device(host, world) == 0 &&
          hpccoll_on_device(NULL, world) == 0);
}

static void what_takes_host_memory(hpccoll_world *world) {
    double *x = on_device(N, 1), *y = zeros_on_device(N);
    hpccoll_reduction op;
    hpccoll_request *request = NULL;
    hpccoll_plan *plan = NULL;
    CHECK(hpccoll_op_create(combine, NULL, 1, "mine", &op) == 0);
    EXPECT(hpccoll_allreduce(x, y, N, HPCCOLL_FLOAT64, op, NULL, world), HPCCOLL_UNSUPPORTED,
           "allreduce: mine takes arrays in host memory; nothing was sent");
    EXPECT(hpccoll_scan_async(x, y, 1, HPCCOLL_FLOAT64, HPCCOLL_MINLOC, NULL, world, &request), HPCCOLL_UNSUPPORTED,
           "scan: MINLOC takes arrays in host memory; nothing was sent");
    EXPECT(hpccoll_allreduce_init(x, y, N, HPCCOLL_FLOAT64, op, NULL, world, &plan), HPCCOLL_UNSUPPORTED,
           "takes arrays in host memory");
    EXPECT(hpccoll_broadcast_init(x, N, HPCCOLL_FLOAT64, 0, NULL, world, &plan), HPCCOLL_UNSUPPORTED,
           "broadcast: an array lies in device memory: plans are for host memory, use the _async form");
    EXPECT(hpccoll_send_init(x, N, HPCCOLL_FLOAT64, 0, 0, world, &plan), HPCCOLL_UNSUPPORTED,
           "send: an array lies in device memory: plans are for host memory");
    hpccoll_world *cart;
    CHECK(hpccoll_cart_create(world, 1, &(int){0}, NULL, &cart) == 0);
    EXPECT(hpccoll_halo_exchange_init(x, HPCCOLL_FLOAT64, 1, &(int64_t){N}, NULL, &(int){1}, 0, cart, &plan),
           HPCCOLL_UNSUPPORTED, "halo_exchange: the array lies in device memory: halo exchanges are for host memory");
    CHECK(!request && !plan && hpccoll_op_free(&op) == 0 && hpccoll_world_free(&cart) == 0);
    if (size > 1) {
        double host[N], *mine = rank == 1 ? x : host;
        EXPECT(hpccoll_broadcast_init(mine, N, HPCCOLL_FLOAT64, 0, NULL, world, &plan),
               rank == 1 ? HPCCOLL_UNSUPPORTED : HPCCOLL_MISMATCH, "lies in device memory: plans are for host memory");
    }
}

static void memory_in_flight(hpccoll_world *world) {
    double *x = on_device(N, 1), *y = zeros_on_device(N);
    hpccoll_request *request;
    CHECK(hpccoll_allreduce_async(x, y, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world, &request) == 0);
    hpccoll_args args = HPCCOLL_ARGS;
    args.name = "second";
    EXPECT(hpccoll_allreduce(y, x, N, HPCCOLL_FLOAT64, HPCCOLL_SUM, &args, world), HPCCOLL_INVALID, "is in flight");
    CHECK(hpccoll_wait(&request) == 0 && has(y, N, size, size));
}

static void another_device(hpccoll_world *world) {
    use_gpu(1);
    double *x = zeros_on_device(N);
    use_gpu(0);
    EXPECT(hpccoll_allreduce(HPCCOLL_IN_PLACE, x, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, world), HPCCOLL_INVALID,
           "in lies on GPU 1, this World uses GPU 0 on rank ");
    EXPECT(hpccoll_send(x, 1, HPCCOLL_FLOAT64, rank, 0, world), HPCCOLL_INVALID, "send: data lies on GPU 1");
}

/* ---- programs --------------------------------------------------------------------------------------------------- */

static void everything(hpccoll_world *world) {
    messages(world);
    exchanges(world);
    group_and_factors(world);
    several(world);
    sets_and_joins(world);
    nothing_to_give(world);
    pinned(world);
    alone();
    wrong_memory(world);
    what_takes_host_memory(world);
    memory_in_flight(world);
    another_device(world);
    messages(world);
}

static void until_it_breaks(hpccoll_world *world) {
    double *x = on_device(N, 1);
    int status = HPCCOLL_OK;
    for (int i = 0; i < 1000 && status >= 0; i++)
        status = hpccoll_allreduce(HPCCOLL_IN_PLACE, x, N, HPCCOLL_FLOAT64, HPCCOLL_MAX, NULL, world);
    CHECK(status < 0);
    fprintf(stderr, "rank %d: %s\n", rank, hpccoll_last_error());
}

static int start(const char *options, hpccoll_world **world) {
    int status = hpccoll_world_from_mpi(MPI_COMM_WORLD, options, world);
    if (status < 0 && rank == 0)
        fprintf(stderr, "%s\n", hpccoll_last_error());
    return status;
}

int main(int argc, char **argv) {
    hpccoll_world *world = NULL;
    void *kept = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 2) {
        int status = start(argv[2], &world), first = status;
        MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
        CHECK(status == first);
    } else if (argc > 1 && strcmp(argv[1], "broken") == 0) {
        open_gpu();
        CHECK(start(NULL, &world) == 0);
        until_it_breaks(world);
        hpccoll_world_free(&world);
    } else {
        if (argc > 1)
            CHECK(start(NULL, &world) == 0 && hpccoll_world_free(&world) == 0);
        open_gpu();
        CHECK(start(NULL, &world) == 0);
        everything(world);
        allocated(world, &kept);
        left_in_flight(&world);
        CHECK(has(kept, 1, 7, 0));
        hpccoll_release(kept);
    }
    hpccoll_world_free(&world);
    MPI_Finalize();
    if (rank == 0)
        printf("fine\n");
    return 0;
}
