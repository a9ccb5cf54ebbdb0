/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_contract.c - what is counted on of NCCL, between processes: results, splits, groups, errors, abort.
 *
 *     nccl_contract DRIVER NCCL RANKS all|failing|in_order|crossed
 * failing: FAKE_NCCL_FAIL plants a failure in rank 1; every rank must get out of it by abort.
 * in_order: two communicators, called in one order everywhere, also on the device. crossed: the odd ranks call them in
 * the other order, which must be found.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "cuda/nccl/nccl.h"

enum { N = 30000, SECONDS = 30, PATIENCE = 3 }; /* more than a chunk of the fake, and not a multiple of one */
static hc_driver d;
static hc_nccl n;
static hc_nccl_comm comm;
static hc_gpu_stream stream;
static int rank, size;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Asks until a non-blocking communicator is through, or for so many seconds; its status. */
static int settled_in(hc_nccl_comm c, double seconds) {
    int status = HC_NCCL_IN_PROGRESS;
    for (double end = now() + seconds; status == HC_NCCL_IN_PROGRESS && now() < end;)
        CHECK(n.get_async_error(c, &status) == 0);
    return status;
}

static int settled(hc_nccl_comm c) {
    return settled_in(c, SECONDS);
}

static hc_gpu_address memory(size_t bytes) {
    hc_gpu_address a;
    CHECK(d.memory_new(&a, bytes) == 0);
    return a;
}

static void *at(hc_gpu_address a) {
    return (void *)(uintptr_t)a;
}

static void put(hc_gpu_address to, const float *values, size_t count) {
    CHECK(d.to_device(to, values, count * 4, stream) == 0 && d.stream_wait(stream) == 0);
}

static const float *get(hc_gpu_address from, size_t count) {
    static float values[8 * N];
    CHECK(d.to_host(values, from, count * 4, stream) == 0 && d.stream_wait(stream) == 0);
    return values;
}

/* A call with a non-blocking communicator is done, or goes on; group_end says the latter. */
static int is_begun(int status) {
    return status == 0 || status == HC_NCCL_IN_PROGRESS;
}

static float mine[8 * N];
static hc_gpu_address in, out;

static void fill(size_t count) {
    for (size_t i = 0; i < count; i++)
        mine[i] = (float)(rank + 1) * (float)(i % 100);
    put(in, mine, count);
}

static void reductions(void) {
    float ranks = (float)(size * (size + 1) / 2);
    const struct {
        int op;
        float times;
    } cases[] = {
        {HC_NCCL_SUM, ranks}, {HC_NCCL_MAX, (float)size}, {HC_NCCL_MIN, 1}, {HC_NCCL_AVERAGE, ranks / (float)size}};
    fill(N);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        CHECK(is_begun(n.all_reduce(at(in), at(out), N, HC_NCCL_FLOAT32, cases[k].op, comm, stream)));
        CHECK(settled(comm) == 0);
        const float *got = get(out, N);
        for (int i = 0; i < N; i++)
            CHECK(got[i] == cases[k].times * (float)(i % 100));
    }
}

static void pieces(void) {
    fill((size_t)size * N);
    CHECK(is_begun(n.reduce_scatter(at(in), at(out), N, HC_NCCL_FLOAT32, HC_NCCL_SUM, comm, stream)) &&
          settled(comm) == 0);
    const float *got = get(out, N);
    for (int i = 0; i < N; i++)
        CHECK(got[i] == (float)(size * (size + 1) / 2) * (float)((rank * N + i) % 100));
    CHECK(is_begun(n.reduce(at(in), at(out), N, HC_NCCL_FLOAT32, HC_NCCL_SUM, size - 1, comm, stream)) &&
          settled(comm) == 0);
    got = get(out, N);
    for (int i = 0; i < N && rank == size - 1; i++)
        CHECK(got[i] == (float)(size * (size + 1) / 2) * (float)(i % 100));
    CHECK(is_begun(n.all_gather(at(in), at(out), N, HC_NCCL_FLOAT32, comm, stream)) && settled(comm) == 0);
    got = get(out, (size_t)size * N);
    for (int i = 0; i < size * N; i++)
        CHECK(got[i] == (float)(i / N + 1) * (float)(i % N % 100));
    CHECK(is_begun(n.broadcast(at(in), at(out), N, HC_NCCL_FLOAT32, size - 1, comm, stream)) && settled(comm) == 0);
    got = get(out, N);
    for (int i = 0; i < N; i++)
        CHECK(got[i] == (float)size * (float)(i % 100));
}

/* A ring: all send before they receive, which only a group allows. */
static void p2p_ops(void) {
    fill(N);
    CHECK(n.group_start() == 0);
    CHECK(n.send(at(in), N, HC_NCCL_FLOAT32, (rank + 1) % size, comm, stream) == 0);
    CHECK(n.recv(at(out), N, HC_NCCL_FLOAT32, (rank + size - 1) % size, comm, stream) == 0);
    CHECK(is_begun(n.group_end()) && settled(comm) == 0);
    const float *got = get(out, N);
    for (int i = 0; i < N; i++)
        CHECK(got[i] == (float)((rank + size - 1) % size + 1) * (float)(i % 100));
}

static void groups(void) {
    fill(N);
    CHECK(n.group_start() == 0);
    for (int k = 0; k < 5; k++)
        CHECK(n.all_reduce((char *)at(in) + 4 * k, (char *)at(out) + 400 * k, 100, HC_NCCL_FLOAT32, HC_NCCL_MAX, comm,
                           stream) == 0);
    CHECK(is_begun(n.group_end()) && settled(comm) == 0);
    const float *got = get(out, 500);
    for (int i = 0; i < 500; i++)
        CHECK(got[i] == (float)size * (float)((i % 100 + i / 100) % 100));
}

/* Rank 1 gets no communicator and says why; the others wait for it, and give up after a while. */
static int fails_to_begin(int begun) {
    if (begun && begun != HC_NCCL_IN_PROGRESS) {
        printf("init: status %d (%s)\n", begun, n.error_text(begun));
        return 1;
    }
    int status = settled_in(comm, PATIENCE);
    if (!status)
        return 0;
    CHECK(status == HC_NCCL_IN_PROGRESS && n.abort(comm) == 0);
    return 1;
}

/* Calls until something fails or a while passes, then aborts: the stream must come to its end. */
static void failing(int begun) {
    int status = 0, calls = 0;
    if (fails_to_begin(begun))
        return;
    for (double end = now() + 0.2; !status && now() < end;) {
        if (d.stream_query(stream) == 0 && calls < 5) {
            status = n.all_reduce(at(in), at(out), N, HC_NCCL_FLOAT32, HC_NCCL_SUM, comm, stream);
            calls++;
        }
        if (!status)
            CHECK(n.get_async_error(comm, &status) == 0);
    }
    int stuck = d.stream_query(stream) == HC_DRIVER_NOT_READY;
    CHECK(n.abort(comm) == 0 && d.stream_wait(stream) == 0);
    if (rank == 1)
        printf("status %d (%s), calls %d, stuck %d\n", status, n.error_text(status), calls, stuck);
}

/* Two communicators of the same ranks, each with a stream of its own; in_order: on the device, too. */
static void two(const hc_nccl_id *id, int crossed) {
    hc_nccl_config config = HC_NCCL_CONFIG;
    hc_nccl_comm comms[] = {comm, NULL};
    hc_gpu_stream streams[] = {stream, NULL};
    hc_gpu_event called;
    config.blocking = 0;
    int status = n.init(&comms[1], size, *id, rank, &config), first = crossed && rank % 2;
    CHECK(is_begun(status) && settled(comms[1]) == 0);
    CHECK(d.stream_new(&streams[1], HC_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(d.event_new(&called, HC_EVENT_DISABLE_TIMING) == 0);
    for (int k = 0; k < 20; k++)
        for (int j = 0; j < 2; j++) {
            int at_hand = first ^ j;
            CHECK(crossed || d.stream_wait_event(streams[at_hand], called, 0) == 0);
            CHECK(n.all_reduce(at(in), at(out), N, HC_NCCL_FLOAT32, HC_NCCL_SUM, comms[at_hand], streams[at_hand]) ==
                  0);
            CHECK(d.event_record(called, streams[at_hand]) == 0);
        }
    CHECK(d.stream_wait(streams[0]) == 0 && d.stream_wait(streams[1]) == 0);
    CHECK(n.destroy(comms[1]) == 0);
}

static void run(char **argv, const hc_nccl_id *id) {
    hc_nccl_config config = HC_NCCL_CONFIG;
    config.blocking = 0;
    open_driver(&d, argv[1]);
    if (hc_nccl_open(&n, argv[2], NULL) < 0) {
        fprintf(stderr, "%s (%s)\n", n.library.text, n.library.remedy);
        exit(1);
    }
    CHECK(d.stream_new(&stream, HC_STREAM_NON_BLOCKING, 0) == 0);
    in = memory(sizeof mine);
    out = memory(sizeof mine);
    int status = n.init(&comm, size, id[0], rank, &config);
    if (strcmp(argv[4], "failing") == 0) {
        failing(status);
        return;
    }
    CHECK(is_begun(status));
    CHECK(settled(comm) == 0);
    if (strcmp(argv[4], "all") == 0) {
        reductions();
        pieces();
        p2p_ops();
        groups();
    } else {
        two(&id[1], strcmp(argv[4], "crossed") == 0);
    }
    CHECK(n.finalize(comm) == 0 && settled(comm) == 0 && n.destroy(comm) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    size = atoi(argv[3]);
    CHECK(size >= 1 && size <= 8);
    if (hc_nccl_open(&n, argv[2], NULL) < 0) {
        fprintf(stderr, "%s (%s)\n", n.library.text, n.library.remedy);
        return 1;
    }
    hc_nccl_id ids[2];
    CHECK(n.get_id(&ids[0]) == 0 && n.get_id(&ids[1]) == 0);
    for (rank = 0; rank < size; rank++)
        if (fork() == 0) { /* the driver is opened by the child */
            alarm(SECONDS);
            run(argv, ids);
            fflush(stdout);
            _exit(0);
        }
    int failed = 0, status;
    for (int q = 0; q < size; q++) {
        CHECK(wait(&status) > 0);
        failed += status != 0;
    }
    return failed;
}
