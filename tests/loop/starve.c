/* SPDX-License-Identifier: Apache-2.0
 *
 * starve.c - a rank that runs out of memory, wherever that is: nothing crashes or hangs, and every handle of every rank
 * ends with a status. With the reserve of hc_loop_new(), all of them end well.
 *
 *     starve RANKS NODES once|on|reserve STRIDE [FIRST]
 *
 * A program of all operations, of messages and of a refused call runs once as it should, then again and again; in run k
 * the k-th allocation of one rank fails, alone or with all that follow it, until a run needs no k. A rank that is told
 * nothing, because the starved rank has no memory for a message to another node, ends by the stall limit, which is
 * short here.
 */
#include "../starving.h"
#include "worlds.h"

#include <time.h>

#define REQUESTS 21
#define PATIENCE 20 /* seconds */

static _Thread_local int32_t this_rank = -1; /* no thread but the ranks' own ever allocates for a loop here */
static _Thread_local int exempt;             /* what the caller allocates fails before anything is submitted */
static int32_t victim;
static long tried, count_down, allocated;
static int goes_on, has_reserve, failed;

static int fails(void) {
    if (this_rank != victim || exempt)
        return 0;
    allocated++;
    if (count_down > 0 && --count_down == 0)
        return failed = 1;
    return failed && goes_on;
}

/* ---- the program ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int operation;
    int64_t rows;
    uint32_t tensors;
} requests[REQUESTS] = {
    {"small sum", HC_ALLREDUCE, 3, 1},        {"sum", HC_ALLREDUCE, 70000, 1},
    {"group", HC_ALLREDUCE, 500, 3},          {"gather", HC_ALLGATHER, 5, 1},
    {"large gather", HC_ALLGATHER, 40000, 1}, {"root's", HC_BROADCAST, 9000, 1},
    {"shares", HC_REDUCESCATTER, 30011, 1},   {"all to all", HC_ALLTOALL, 24, 1},
    {"small sum", HC_ALLREDUCE, 3, 1},        {"gather", HC_ALLGATHER, 5, 1},
    {"all meet", HC_BARRIER, 0, 0},           {"sum", HC_ALLREDUCE, 70000, 1},
    {"shares", HC_REDUCESCATTER, 30011, 1},   {"another", HC_ALLREDUCE, 17, 1},
    {"to root", HC_REDUCE, 9000, 1},          {"rows", HC_GATHER, 7, 1},
    {"large rows", HC_GATHER, 40000, 1},      {"parts", HC_SCATTER, 10, 1},
    {"large parts", HC_SCATTER, 99999, 1},    {"prefix", HC_SCAN, 300, 1},
    {"chain", HC_EXSCAN, 40000, 1},
};
#define ROOT 1
#define WAIT_AFTER 8 /* names come again from here on: all before has ended */

static hc_handle *request(const worlds *w, int which, int64_t *data) {
    int operation = requests[which].operation;
    uint32_t n = requests[which].tensors, size = (uint32_t)w->size;
    int gathers = operation == HC_ALLGATHER || operation == HC_ALLTOALL || operation == HC_GATHER;
    int rooted = hc_operation_has(operation, HC_OP_ROOTED), is_root = this_rank == ROOT;
    int takes = hc_operation_has(operation, HC_OP_ELEMENTWISE) && (operation != HC_REDUCE || is_root);
    int64_t rows = requests[which].rows;
    hc_handle *h = hc_handle_new(HC_EV_ENQUEUE, 0, n, n, requests[which].name, strlen(requests[which].name),
                                 gathers ? 2 * size : 0);
    h->request.operation = (uint8_t)operation;
    h->request.root = rooted ? ROOT : -1;
    h->request.flags = n > 1 ? HC_REQUEST_GROUP : 0;
    for (uint32_t i = 0; i < n; i++) {
        h->dims[i] = rows;
        h->tensors[i] = (hc_tensor){.dtype = HC_INT64, .ndim = 1, .dims = &h->dims[i]};
        h->pieces[i] = (hc_piece){.in = data, .count = rows, .row = 1, .rows = rows};
        if (takes)
            h->pieces[i].out = data + i * (size_t)rows;
        if (operation == HC_REDUCESCATTER && has_reserve) { /* Python's and C's callers bring it */
            h->pieces[i].out_rows = hc_share(rows, w->size, this_rank);
            h->pieces[i].out_capacity = h->pieces[i].out_rows * (int64_t)sizeof *data;
            h->pieces[i].out = data + rows;
        }
        h->pieces[i].in = operation == HC_SCATTER && !is_root ? NULL : data + i * (size_t)rows;
    }
    if (gathers) {
        h->pieces[0].recv_rows = h->rows;
        h->pieces[0].send_rows = operation == HC_GATHER ? NULL : h->rows + size;
        for (uint32_t r = 0; r < size; r++)
            h->rows[size + r] = rows / size;
    }
    return h;
}

static hc_handle *op(const worlds *w, int32_t rank, int receives, int64_t *data, size_t n) {
    hc_p2p_op l = {.receives = (uint8_t)receives,
                   .tag = (uint32_t)n,
                   .peer = (rank + (receives ? w->size - 1 : 1)) % w->size,
                   .data = data,
                   .bytes = n * sizeof *data};
    return hc_handle_of_p2p(0, &l, HC_MEMORY_HOST);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The status it ended with. */
static int await(hc_loop *loop, hc_handle *handle, const char *what) {
    double limit = seconds() + PATIENCE;
    while (!hc_loop_wait(loop, &handle, 1, 50000000))
        if (seconds() > limit) {
            fprintf(stderr, "rank %d: %s has not ended; of rank %d allocation %ld failed\n", this_rank, what, victim,
                    tried);
            abort();
        }
    int status = handle->status;
    CHECK(status <= 0);
    if (status < 0 && status != HC_MISMATCH && has_reserve)
        fprintf(stderr, "rank %d: %s: %s (%d); of rank %d allocation %ld failed\n", this_rank, what,
                handle->text ? handle->text : "", status, victim, tried);
    hc_handle_release(handle);
    return status;
}

typedef struct rank_part {
    worlds *w;
    int32_t rank;
} rank_part;

/* One rank refuses a call: the others get an error. */
static void refuse(hc_loop *loop) {
    static const char name[] = "refused";
    if (this_rank == victim) {
        hc_loop_refuse(loop, 0, &(hc_request){.name = name, .name_len = 7, .operation = HC_BARRIER, .why = "wrong"});
        return;
    }
    hc_handle *handle = hc_handle_new(HC_EV_ENQUEUE, 0, 0, 0, name, 7, 0);
    handle->request.operation = HC_BARRIER;
    hc_loop_submit(loop, handle, 0);
    int status = await(loop, handle, "a call that another rank refuses");
    CHECK(status == HC_MISMATCH || (tried && !has_reserve));
}

static int work(worlds *w, hc_loop *loop) {
    enum { P2P_OPERATIONS = 4 };
    static const size_t lengths[P2P_OPERATIONS / 2] = {2, 60000};
    hc_handle *handles[REQUESTS], *p2p_ops[P2P_OPERATIONS];
    int64_t *data[REQUESTS], *paper[P2P_OPERATIONS];
    int wrong = 0;
    for (int i = 0; i < P2P_OPERATIONS; i++) {
        exempt = 1;
        paper[i] = calloc(lengths[i / 2], sizeof(int64_t));
        p2p_ops[i] = op(w, this_rank, i % 2, paper[i], lengths[i / 2]);
        exempt = 0;
        hc_loop_submit(loop, p2p_ops[i], 0);
    }
    for (int i = 0, awaited = 0; i < REQUESTS; i++) {
        for (; i == WAIT_AFTER && awaited < WAIT_AFTER; awaited++)
            wrong |= await(loop, handles[awaited], requests[awaited].name);
        exempt = 1;
        data[i] = calloc((size_t)requests[i].rows * (requests[i].tensors + 1) + 1, sizeof(int64_t));
        handles[i] = request(w, i, data[i]);
        exempt = 0;
        hc_loop_submit(loop, handles[i], 0);
    }
    refuse(loop);
    for (int i = 0; i < P2P_OPERATIONS; i++)
        wrong |= await(loop, p2p_ops[i], "a message");
    for (int i = WAIT_AFTER; i < REQUESTS; i++)
        wrong |= await(loop, handles[i], requests[i].name);
    for (int i = 0; i < REQUESTS; i++)
        free(data[i]);
    for (int i = 0; i < P2P_OPERATIONS; i++)
        free(paper[i]);
    return wrong;
}

static void *rank_main(void *argument) {
    const rank_part *me = argument;
    worlds *w = me->w;
    exempt = 1;
    this_rank = me->rank;
    hc_loop *loop = worlds_join(w, me->rank);
    exempt = 0;
    int wrong = work(w, loop);
    exempt = 1;
    hc_handle *stop = hc_handle_new(HC_EV_STOP, 0, 0, 0, NULL, 0, 0);
    exempt = 0;
    hc_loop_submit(loop, stop, 1);
    hc_loop_wait(loop, &stop, 1, tried ? 200000000 : PATIENCE * 1000000000ull); /* a stop has no stall limit */
    if (tried == 0 || has_reserve)
        CHECK(wrong == HC_OK && stop->status == HC_OK);
    pthread_barrier_wait(&w->meet);
    hc_loop_free(loop); /* ends what is left */
    CHECK(hc_handle_done(stop));
    hc_handle_release(stop);
    return NULL;
}

/* Whether there was a k-th allocation. k 0: none fails, and all goes well. */
static int run(int32_t ranks, int32_t nodes, long k) {
    worlds w = {.knobs = {.engine = {.cache_capacity = 4,
                                     .fusion_threshold = 4096,
                                     .raise_bytes = 4096,
                                     .raise_window = 200000,
                                     .stall_limit = k > 0 && !has_reserve ? 100000000 : 0},
                          .wire = HC_WIRE_SAME}};
    rank_part parts[MOST];
    pthread_t threads[MOST];
    tried = count_down = k;
    failed = 0;
    allocated = 0;
    worlds_prepare(&w, ranks, nodes);
    for (int32_t r = 0; r < ranks; r++) {
        parts[r] = (rank_part){&w, r};
        pthread_create(&threads[r], NULL, rank_main, &parts[r]);
    }
    for (int32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    worlds_end(&w);
    return failed;
}

int main(int argc, char **argv) {
    CHECK(argc >= 5);
    int32_t ranks = atoi(argv[1]), nodes = atoi(argv[2]);
    long stride = atol(argv[4]), runs = 0, first = argc > 5 ? atol(argv[5]) : 1;
    static _Alignas(64) char no_reserve[64]; /* a reserve without room, so that no other is made */
    has_reserve = !strcmp(argv[3], "reserve");
    goes_on = has_reserve || !strcmp(argv[3], "on");
    if (!has_reserve)
        CHECK(hc_reserve_give(no_reserve, sizeof no_reserve));
    run(ranks, nodes, 0);
    for (victim = 0; victim < ranks; victim++)
        for (long k = first; run(ranks, nodes, k); k += stride)
            runs++;
    printf("%ld allocations failed\n", runs);
    return runs == 0;
}
