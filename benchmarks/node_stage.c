/* SPDX-License-Identifier: Apache-2.0
 *
 * node_stage.c - measures the node's allreduce beside memcpy by all ranks at once.
 *
 *     node_stage RANKS [DTYPE [NODE_DTYPE [MOST_BYTES [LEAST_BYTES]]]]
 *
 * The operation is SUM in place. The program prints a JSON line per size: the quartiles of the slowest rank's time over
 * all iterations, for the allreduce and for memcpy. Each rank verifies every size with a sum of random data that it
 * computes itself.
 */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transport/shm/shm.h"
#include "transport/transport.h"

#define ITERATIONS_MAX 2000

static const int64_t sizes[] = {4,         64,      1 << 10, 4 << 10, 16 << 10, 64 << 10,
                                256 << 10, 1 << 20, 4 << 20, 8 << 20, 32 << 20, 64 << 20};

typedef struct rank {
    int32_t rank, size, spin;
    int dtype;
    hc_node_control *node_control;
    hc_node *node;
    double *slowest; /* rank 0 gathers */
} rank;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits like the driver, but without its sleep: spins, and then yields the core. */
static void relax(const rank *r, int *idle) {
    if (++*idle > r->spin) {
        sched_yield();
        *idle = 0;
    } else {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

static void fail_if(int condition, const char *what) {
    if (!condition)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void gather(rank *r, int64_t own, int64_t *table) {
    int idle = 0;
    hc_stream_part stream = {&own, sizeof own};
    hc_stream_read reads[256];
    int64_t lengths[256];
    for (int32_t q = 0; q < r->size; q++) {
        reads[q] = (hc_stream_read){&table[q], 0, sizeof own};
        lengths[q] = sizeof own;
    }
    while (r->node->ops->exchange(r->node, &stream, 1, reads, lengths, r->size - 1) != HC_DONE)
        relax(r, &idle);
}

static void meet(rank *r) {
    int64_t table[256];
    gather(r, 0, table);
}

static void allreduce(rank *r, void *data, int64_t count) {
    hc_piece piece = {.in = data, .out = data, .count = count, .row = 1, .scale = 1.0};
    hc_batch batch = {.operation = HC_ALLREDUCE,
                      .reduction = HC_SUM,
                      .dtype = (uint8_t)r->dtype,
                      .divisor = 1,
                      .node_divisor = 1,
                      .count = count,
                      .npieces = 1,
                      .pieces = &piece};
    const struct hc_node_ops *ops = r->node->ops;
    int64_t nchunks, reduced = 0, spread = 0;
    fail_if(ops->open(r->node, &batch, NULL, &(hc_rails){0}, 0, &nchunks) != HC_OK, "open");
    int depth = ops->depth(r->node), idle = 0;
    while (spread < nchunks) {
        int moved = 0, status;
        if (spread < reduced) {
            status = ops->spread(r->node, spread);
            spread += status == HC_DONE;
            moved |= status;
        }
        if (reduced < nchunks && reduced < spread + depth) {
            status = ops->reduce(r->node, reduced);
            reduced += status == HC_DONE;
            moved |= status;
        }
        if (moved == HC_IDLE)
            relax(r, &idle);
        else
            idle = 0;
    }
    ops->close(r->node);
}

/* ---- data ---------------------------------------------------------------------------------------- */

static uint32_t hash(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static float sample(int32_t rank, int64_t i) {
    return (float)((double)hash((uint32_t)i * 64 + (uint32_t)rank) / 4294967296.0 - 0.5);
}

static void fill(const rank *r, void *data, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float x = sample(r->rank, i);
        hc_host_convert((char *)data + (size_t)i * hc_dtype_size(r->dtype), r->dtype, &x, HC_FLOAT32, 1, 1.0);
    }
}

static void verify(const rank *r, const void *data, int64_t count) {
    int half = r->dtype == HC_FLOAT16 || r->dtype == HC_BFLOAT16;
    double bound = half ? r->size * 1.2e-2 : r->size * 1e-6;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        float got;
        for (int32_t q = 0; q < r->size; q++)
            sum += sample(q, i);
        hc_host_convert(&got, HC_FLOAT32, (const char *)data + (size_t)i * hc_dtype_size(r->dtype), r->dtype, 1, 1.0);
        fail_if(!(fabs(got - sum) <= bound), "a result is wrong");
    }
}

/* ---- measuring ----------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void slowest(rank *r, double seconds, double *into) {
    int64_t table[256], most = 0;
    gather(r, (int64_t)(seconds * 1e9), table);
    for (int32_t q = 0; q < r->size; q++)
        most = table[q] > most ? table[q] : most;
    *into = (double)most * 1e-3;
}

static void measure(rank *r, int64_t bytes) {
    static double ours[ITERATIONS_MAX], copies[ITERATIONS_MAX];
    int64_t count = bytes / (int64_t)hc_dtype_size(r->dtype);
    int n = bytes <= 65536 ? ITERATIONS_MAX : bytes <= (8 << 20) ? 200 : 31;
    char *data = hc_result_new((size_t)bytes), *other = hc_result_new((size_t)bytes);
    memset(other, 0, (size_t)bytes);
    fill(r, data, count);
    allreduce(r, data, count);
    verify(r, data, count);
    for (int i = 0; i < n; i++) {
        meet(r);
        double start = now();
        allreduce(r, data, count);
        double took = now() - start;
        slowest(r, took, &ours[i]);
        start = now();
        memcpy(other, data, (size_t)bytes);
        took = now() - start;
        slowest(r, took, &copies[i]);
    }
    fill(r, data, count);
    allreduce(r, data, count);
    verify(r, data, count);
    qsort(ours, (size_t)n, sizeof *ours, by_value);
    qsort(copies, (size_t)n, sizeof *copies, by_value);
    if (r->rank == 0)
        printf("{\"ranks\": %d, \"dtype\": \"%s\", \"bytes\": %lld, \"us\": %.2f, "
               "\"us_quartiles\": [%.2f, %.2f], \"memcpy_us\": %.2f, \"memcpy_us_quartiles\": [%.2f, %.2f], "
               "\"ratio\": %.2f}\n",
               r->size, hc_dtype_name(r->dtype), (long long)bytes, ours[n / 2], ours[n / 4], ours[n * 3 / 4],
               copies[n / 2], copies[n / 4], copies[n * 3 / 4], ours[n / 2] / copies[n / 2]);
    fflush(stdout);
    hc_result_free(data);
    hc_result_free(other);
}

/* ---- ranks --------------------------------------------------------------------------------------- */

static hc_segment shared(size_t bytes) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fail_if(base == MAP_FAILED, "no memory");
    return (hc_segment){base, bytes, -1};
}

/* Binds ranks like a launcher: one core per rank; if there are more ranks than cores, they share cores evenly. */
static void bind_to_core(int32_t rank) {
    cpu_set_t allowed, mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    int nth = rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && nth-- == 0)
            CPU_SET(cpu, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
}

static void run(rank *r, hc_segment node_control, hc_segment segment, int64_t least, int64_t most) {
    int32_t ranks[256];
    for (int32_t q = 0; q < r->size; q++)
        ranks[q] = q;
    bind_to_core(r->rank);
    fail_if(hc_node_control_new(&node_control, r->rank, r->size, ranks, &r->node_control) != HC_OK,
            "node control segment");
    fail_if(hc_shm_node_new(segment, r->node_control, ranks, r->rank, r->size, &r->node) != HC_OK, "node");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] >= least && sizes[i] <= most)
            measure(r, sizes[i]);
    exit(0);
}

static int dtype_of(const char *name) {
    for (int d = 0; d < HC_DTYPE_COUNT; d++)
        if (strcmp(name, hc_dtype_name(d)) == 0)
            return d;
    fail_if(1, "no such dtype");
    return -1;
}

int main(int argc, char **argv) {
    fail_if(argc < 2, "usage: node_stage RANKS [DTYPE [MOST_BYTES [LEAST_BYTES]]]");
    rank r = {.size = atoi(argv[1])};
    r.dtype = dtype_of(argc > 2 ? argv[2] : "float32");
    int64_t most = argc > 3 ? atoll(argv[3]) : 64 << 20, least = argc > 4 ? atoll(argv[4]) : 4;
    r.spin = r.size <= sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 10;
    hc_segment node_control = shared(hc_node_control_bytes(r.size)), segment = shared(hc_shm_bytes(r.size));
    for (r.rank = 0; r.rank < r.size; r.rank++)
        if (fork() == 0)
            run(&r, node_control, segment, least, most);
    int worst = 0, status;
    for (int32_t q = 0; q < r.size; q++)
        if (wait(&status) > 0 && status != 0)
            worst = 1;
    return worst;
}
