/* SPDX-License-Identifier: Apache-2.0
 *
 * nodes.c - scenarios of a node: the small path, chunks with and without rails, rounds; chunks of a broadcast; streams
 * that are read where they lie.
 */
#include "memory_model/nodes.h"

#include <string.h>

#include "memory_model/scenarios.h"
#include "transport/shm/shm.h"

#define PAGE_INTS 1024

hc_node_control *mm_controls[MM_THREADS];
const int32_t mm_ranks[MM_THREADS] = {0, 1, 2};
static hc_node *nodes[MM_THREADS];
static int size;

void mm_make_controls(int ranks) {
    hc_segment segment = {
        .base = mm_shared(hc_node_control_bytes(ranks)), .bytes = hc_node_control_bytes(ranks), .fd = -1};
    size = ranks;
    for (int q = 0; q < ranks; q++)
        mm_check(hc_node_control_new(&segment, q, ranks, mm_ranks, &mm_controls[q]) == HC_OK, "a control segment");
}

void mm_free_controls(void) {
    for (int q = 0; q < size; q++)
        hc_node_control_free(mm_controls[q]);
}

static void make_nodes(int ranks, size_t bytes) {
    hc_segment segment = {.base = mm_shared(bytes), .bytes = bytes, .fd = -1};
    mm_make_controls(ranks);
    for (int q = 0; q < ranks; q++)
        mm_check(hc_shm_node_new(segment, mm_controls[q], mm_ranks, q, ranks, &nodes[q]) == HC_OK, "a node");
}

static void small_node(int ranks, int64_t chunk_bytes) {
    make_nodes(ranks, hc_shm_bytes_for(ranks, &chunk_bytes));
}

static void node_of_two(void) {
    small_node(2, 4096);
}

static void node_of_three(void) {
    small_node(3, 4096);
}

static void tear_down(void) {
    for (int q = 0; q < size; q++)
        nodes[q]->ops->free(nodes[q]);
    mm_free_controls();
}

/* ---- sums ------------------------------------------------------------------------------------------------ */

enum { INTS_MOST = 8 * PAGE_INTS, STEP = 100 };

static int32_t in[MM_THREADS][INTS_MOST], out[MM_THREADS][INTS_MOST];

typedef struct job {
    int64_t count, chunk;
    int rails, sleeps;
    int turns, ahead; /* ahead: more chunks under way than one; 0: each is spread before the next one is reduced */
} job;

/* Filled once: each call begins elsewhere. */
static int32_t given(int rank, int call, int64_t i) {
    return (rank + 1) * 1000000 + call * STEP + (int32_t)i;
}

static void fill(int32_t *ints, int rank) {
    for (int64_t i = 0; ints[0] == 0 && i < INTS_MOST; i++)
        ints[INTS_MOST - 1 - i] = given(rank, 0, INTS_MOST - 1 - i);
}

static int32_t sum_of(int call, int64_t i) {
    int32_t sum = 0;
    for (int q = 0; q < size; q++)
        sum += given(q, call, i);
    return sum;
}

static int test_chunk(hc_node *node, int64_t chunk) {
    return node->ops->reduce(node, chunk);
}

/* The net between nodes, of which there is one, so it changes the shard in place and back. */
static void pass_net(hc_node *node, int64_t chunk) {
    int64_t bounds[2];
    void *shard = NULL;
    mm_check(node->ops->shard(node, chunk, &shard, bounds) == HC_DONE, "a shard");
    volatile int32_t *first = shard;
    if (bounds[1] > 0) {
        *first += 1;
        *first -= 1;
    }
    mm_check(node->ops->publish(node, chunk) == HC_OK, "published");
}

/* What the stubs of kernels do not copy has no values. */
static void check_sums(const job *job, int rank, int call) {
    for (int64_t at = 0; at < job->count; at += job->chunk) {
        int64_t last = at + job->chunk < job->count ? at + job->chunk : job->count;
        mm_check(out[rank][at] == sum_of(call, at), "the first sum of a chunk");
        mm_check(out[rank][last - 1] == sum_of(call, last - 1), "the last sum of a chunk");
    }
}

static void allreduce(const job *job, int rank, int call) {
    hc_node *node = nodes[rank];
    hc_piece piece = {.in = in[rank] + call * STEP, .out = out[rank], .count = job->count, .row = 1, .scale = 1.0};
    hc_batch batch = {.operation = HC_ALLREDUCE,
                      .reduction = HC_SUM,
                      .dtype = HC_INT32,
                      .wire_dtype = HC_INT32,
                      .divisor = 1,
                      .node_divisor = 1,
                      .count = job->count,
                      .npieces = 1,
                      .pieces = &piece};
    hc_rails rails = {job->rails, job->turns, 4};
    int64_t nchunks, reduced = 0;
    fill(in[rank], rank);
    mm_check(node->ops->open(node, &batch, NULL, &rails, job->chunk, &nchunks) == HC_OK, "open");
    for (int64_t chunk = 0; chunk < nchunks; chunk++) {
        for (; reduced < nchunks && reduced <= chunk + job->ahead; reduced++) {
            MM_UNTIL_DONE(rank, job->sleeps, test_chunk(node, reduced));
            if (hc_rail_driven(&rails, rank, reduced) >= 0)
                pass_net(node, reduced);
        }
        MM_UNTIL_DONE(rank, job->sleeps, node->ops->spread(node, chunk));
    }
    mm_check(node->ops->close(node) == HC_OK, "close");
    check_sums(job, rank, call);
}

static void allreduces(const job *jobs, int n, int rank) {
    for (int call = 0; call < n; call++)
        allreduce(&jobs[call], rank, call);
}

/* Two slots: each is written again, and again. */
static void run_small(int rank) {
    static const job jobs[] = {
        {1, 1, 0, 0, 0, 0}, {2, 2, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0}};
    allreduces(jobs, 5, rank);
}

static void run_small_asleep(int rank) {
    static const job jobs[] = {{1, 1, 0, 1, 0, 0}, {1, 1, 0, 1, 0, 0}, {1, 1, 0, 1, 0, 0}, {1, 1, 0, 1, 0, 0}};
    allreduces(jobs, 4, rank);
}

/* Three slots, and a second batch with another layout. */
static void run_chunks(int rank) {
    static const job jobs[] = {{5 * PAGE_INTS, PAGE_INTS, 0, 0, 0, 0}, {4200, 700, 0, 0, 0, 0}};
    allreduces(jobs, 2, rank);
}

static void run_chunks_asleep(int rank) {
    static const job jobs[] = {{5 * PAGE_INTS, PAGE_INTS, 0, 1, 0, 0}};
    allreduces(jobs, 1, rank);
}

/* Three slots, four results. Two rails of a line each, so both ranks of two drive one. */
static void run_rails(int rank) {
    static const job jobs[] = {{6 * 32, 32, 2, 0, 0, 0}, {3 * 16, 16, 1, 0, 0, 0}};
    allreduces(jobs, 2, rank);
}

/* A slot is written again while the chunk's result is under way. */
static void run_turns(int rank) {
    static const job jobs[] = {{6 * PAGE_INTS, PAGE_INTS, 2, 0, 1, 3}, {3 * 16, 16, 2, 0, 1, 1}};
    allreduces(jobs, 2, rank);
}

/* ---- broadcasts in chunks --------------------------------------------------------------------------------------- */

/* One chunk more than there are results. `root`: a local rank; OTHER_NODE: the net brings the data. */
enum { CHUNK = 32, CHUNKS = 5, OTHER_NODE = -1 };

/* The net between nodes sees all elements of the root's shard, or writes those of a shard from another node. */
static void carry(hc_node *node, int root, int64_t chunk, int rails, int call) {
    int64_t bounds[2], rail = node->local_rank % rails, at = chunk * CHUNK + rail * (CHUNK / rails);
    void *shard = NULL;
    mm_check(node->ops->shard(node, chunk, &shard, bounds) == HC_DONE, "a shard");
    volatile int32_t *ints = shard;
    for (int64_t i = 0; i < bounds[1]; i += bounds[1] - 1)
        if (root == OTHER_NODE)
            ints[i] = given(root, call, at + i);
        else
            mm_check(ints[i] == given(root, call, at + i), "the root's shard");
    mm_check(node->ops->publish(node, chunk) == HC_OK, "published");
}

static void broadcast(int root, int turns, int rank, int call) {
    hc_node *node = nodes[rank];
    hc_piece piece = {.in = in[rank] + call * STEP, .out = out[rank], .count = CHUNKS * CHUNK, .row = 1, .scale = 1.0};
    hc_batch batch = {.operation = HC_BROADCAST,
                      .dtype = HC_INT32,
                      .wire_dtype = HC_INT32,
                      .local_root = root,
                      .count = piece.count,
                      .npieces = 1,
                      .pieces = &piece};
    hc_rails rails = {2, turns, 4};
    int64_t nchunks, reduced = 0;
    fill(in[rank], rank);
    mm_check(node->ops->open(node, &batch, NULL, &rails, CHUNK, &nchunks) == HC_OK, "open");
    for (int64_t chunk = 0; chunk < nchunks; chunk++) {
        for (; reduced < nchunks && reduced <= chunk + 1; reduced++) {
            MM_UNTIL_DONE(rank, 0, test_chunk(node, reduced));
            if (hc_rail_driven(&rails, rank, reduced) >= 0)
                carry(node, root, reduced, turns ? 1 : 2, call);
        }
        MM_UNTIL_DONE(rank, 0, node->ops->spread(node, chunk));
        mm_check(out[rank][chunk * CHUNK] == given(root, call, chunk * CHUNK), "the first element of a chunk");
        mm_check(out[rank][chunk * CHUNK + CHUNK - 1] == given(root, call, chunk * CHUNK + CHUNK - 1), "the last");
    }
    mm_check(node->ops->close(node) == HC_OK, "close");
}

/* The last rank is the root, which of three drives no rail; then it is on another node. */
static void run_broadcasts(int rank) {
    broadcast(size - 1, 0, rank, 0);
    broadcast(OTHER_NODE, 0, rank, 1);
}

static void run_broadcasts_in_turns(int rank) {
    broadcast(OTHER_NODE, 1, rank, 0);
    broadcast(size - 1, 1, rank, 1);
}

/* ---- streams in rounds -------------------------------------------------------------------------------------- */

enum { ROUND = 256 << 10, STREAM = 3 * ROUND, STREAMS = 2 }; /* bytes; four slots, which the two exchanges share */

static uint8_t streams[MM_THREADS][STREAMS][STREAM + 64];

/* The ends of a stream and those of each round have values. */
static uint8_t streamed(int rank, int number, int64_t at) {
    return (uint8_t)(1 + rank * 50 + number * 23 + at / ROUND * 7 + at % 5);
}

static void fill_streams(int rank) {
    for (int number = 0; streams[rank][STREAMS - 1][0] == 0 && number < STREAMS; number++)
        for (int64_t at = STREAM - 1; at >= 0; at--)
            streams[rank][number][at] = streamed(rank, number, at);
}

static void full_node_of_two(void) {
    make_nodes(2, hc_shm_bytes(2));
}

static void full_node_of_three(void) {
    make_nodes(3, hc_shm_bytes(3));
}

/* Each rank reads all of the next rank's stream; then only the first one's is read, which runs ahead. */
static void run_rounds(int rank) {
    static uint8_t taken[MM_THREADS][STREAM];
    fill_streams(rank);
    for (int number = 0; number < STREAMS; number++) {
        int from = number ? 0 : (rank + 1) % size, reads_it = from != rank;
        hc_stream_part stream = {streams[rank][number], STREAM};
        hc_stream_read reads[MM_THREADS] = {{NULL, 0, 0}, {NULL, 0, 0}, {NULL, 0, 0}};
        int64_t lengths[MM_THREADS] = {STREAM, number ? 0 : STREAM, number ? 0 : STREAM};
        if (reads_it)
            reads[from] = (hc_stream_read){taken[rank], 0, STREAM};
        MM_UNTIL_DONE(rank, 0, nodes[rank]->ops->exchange(nodes[rank], &stream, lengths[rank] > 0, reads, lengths, 1));
        for (int64_t at = 0; reads_it && at < STREAM; at += ROUND) {
            mm_check(taken[rank][at] == streamed(from, number, at), "the first byte of a round");
            mm_check(taken[rank][at + ROUND - 1] == streamed(from, number, at + ROUND - 1), "the last byte of a round");
        }
    }
}

/* ---- streams that are read where they lie --------------------------------------------------------------------- */

enum { DIRECT = 128 << 10, TURNS = 3, REFUSED = 1 }; /* bytes; exchanges; the one in which a rank cannot read */

static int reads_memory, turns[MM_THREADS];

/* In place of the kernel: the threads read each other's memory. */
int __wrap_hc__node_control_reads(hc_node_control *node_control, int32_t local_rank);
int __wrap_hc__node_control_read(hc_node_control *node_control, int32_t local_rank, void *into, uint64_t address,
                                 size_t n);

int __wrap_hc__node_control_reads(hc_node_control *node_control, int32_t local_rank) {
    (void)local_rank;
    return node_control != mm_controls[0] || turns[0] != REFUSED;
}

int __wrap_hc__node_control_read(hc_node_control *node_control, int32_t local_rank, void *into, uint64_t address,
                                 size_t n) {
    (void)node_control, (void)local_rank;
    hc_host_copy(into, (const void *)(uintptr_t)address, n);
    return 1;
}

int hc_host_copies_strings(void) {
    return reads_memory;
}

int hc_host_rewrites_fast(void) {
    return 0;
}

static void direct_of_two(void) {
    reads_memory = 1;
    full_node_of_two();
}

static void direct_of_three(void) {
    reads_memory = 1;
    full_node_of_three();
}

static void direct_tear_down(void) {
    reads_memory = 0;
    tear_down();
}

/* Each rank reads all of the next rank's stream, and writes its own anew after each exchange. */
static void run_direct(int rank) {
    static uint8_t taken[MM_THREADS][DIRECT], given[MM_THREADS][DIRECT];
    int from = (rank + 1) % size;
    for (int turn = 0; turn < TURNS; turn++) {
        const uint8_t first = (uint8_t)(1 + 50 * rank + turn), expected = (uint8_t)(1 + 50 * from + turn);
        const int64_t lengths[MM_THREADS] = {DIRECT, DIRECT, DIRECT};
        hc_stream_part stream = {given[rank], DIRECT};
        hc_stream_read reads[MM_THREADS] = {{NULL, 0, 0}, {NULL, 0, 0}, {NULL, 0, 0}};
        turns[rank] = turn;
        given[rank][0] = given[rank][DIRECT - 1] = first;
        reads[from] = (hc_stream_read){taken[rank], 0, DIRECT};
        MM_UNTIL_DONE(rank, 0, nodes[rank]->ops->exchange(nodes[rank], &stream, 1, reads, lengths, 1));
        mm_check(taken[rank][0] == expected && taken[rank][DIRECT - 1] == expected, "the ends of the next stream");
    }
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* The last one to leave closes the segment. */
static void run_leaving(int rank) {
    static const job jobs[] = {{1, 1, 0, 0, 0, 0}};
    allreduces(jobs, 1, rank);
    nodes[rank]->ops->free(nodes[rank]);
}

const mm_scenario mm_rounds_of_two = {"rounds-2", 2, full_node_of_two, run_rounds, tear_down, 1, 1};
const mm_scenario mm_rounds_of_three = {"rounds-3", 3, full_node_of_three, run_rounds, tear_down, 1, 1};
const mm_scenario mm_direct_of_two = {"direct-2", 2, direct_of_two, run_direct, direct_tear_down, 1, 1};
const mm_scenario mm_direct_of_three = {"direct-3", 3, direct_of_three, run_direct, direct_tear_down, 1, 1};
const mm_scenario mm_leaving = {"leaving", 3, node_of_three, run_leaving, mm_free_controls, 2, 2};

const mm_scenario mm_small_of_two = {"small-2", 2, node_of_two, run_small, tear_down, 2, 1};
const mm_scenario mm_small_of_three = {"small-3", 3, node_of_three, run_small, tear_down, 1, 1};
const mm_scenario mm_small_asleep = {"small-asleep", 2, node_of_two, run_small_asleep, tear_down, 2, 1};
const mm_scenario mm_chunks_of_two = {"chunks-2", 2, node_of_two, run_chunks, tear_down, 1, 1};
const mm_scenario mm_chunks_of_three = {"chunks-3", 3, node_of_three, run_chunks, tear_down, 1, 1};
const mm_scenario mm_chunks_asleep = {"chunks-asleep", 2, node_of_two, run_chunks_asleep, tear_down, 1, 1};
const mm_scenario mm_rails_of_two = {"rails-2", 2, node_of_two, run_rails, tear_down, 1, 1};
const mm_scenario mm_rails_of_three = {"rails-3", 3, node_of_three, run_rails, tear_down, 1, 1};
const mm_scenario mm_turns_of_two = {"turns-2", 2, node_of_two, run_turns, tear_down, 1, 1};
const mm_scenario mm_turns_of_three = {"turns-3", 3, node_of_three, run_turns, tear_down, 1, 1};
const mm_scenario mm_broadcasts_of_two = {"broadcasts-2", 2, node_of_two, run_broadcasts, tear_down, 1, 1};
const mm_scenario mm_broadcasts_of_three = {"broadcasts-3", 3, node_of_three, run_broadcasts, tear_down, 1, 1};
const mm_scenario mm_broadcasts_in_turns = {
    "broadcasts-turns", 3, node_of_three, run_broadcasts_in_turns, tear_down, 1, 1};
