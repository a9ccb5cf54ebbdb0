/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated.h - ranks of several nodes as threads of one process: each with node control segment, node, net and
 * hierarchy.
 */
#ifndef HC_EMULATED_H
#define HC_EMULATED_H

#include "transport/net_threads.h"
#ifdef ON_DEVICE
#include "cuda/on_device.h"
#endif

/* The job: set by main, read by all ranks. */
static int32_t size, nodes, node_of[MAX_RANKS], ranks_on[MAX_RANKS];
static hc_segment node_controls[MAX_RANKS], segments[MAX_RANKS]; /* by node */
static hc_net *nets[MAX_RANKS];
static hc_hierarchy_config knobs; /* rails, chunk_bytes, alpha, beta, algorithm */

typedef struct rank_state {
    int32_t rank;
    uint64_t noise; /* random delays between the driver's turns; 0: none */
    hc_node_control *node_control;
    hc_node *node;
    hc_data *data;
#ifdef ON_DEVICE
    on_device device;
#endif
} rank_state;

/* LAYOUT: the node of each rank, as in 0,0,1,1. */
static inline void make_job(const char *layout) {
    for (char *at = (char *)(uintptr_t)layout; *at; at += *at == ',') {
        node_of[size] = (int32_t)strtol(at, &at, 10);
        ranks_on[node_of[size]]++;
        nodes = node_of[size] + 1 > nodes ? node_of[size] + 1 : nodes;
        size++;
    }
    for (int32_t i = 0; i < nodes; i++) {
        CHECK(hc_segment_private(&node_controls[i], hc_node_control_bytes(ranks_on[i])) == HC_OK,
              "node control segment");
        CHECK(hc_segment_private(&segments[i], hc_shm_bytes(ranks_on[i])) == HC_OK, "segment");
    }
    CHECK(hc_local_net_new(size, nets) == HC_OK, "net");
}

static inline void drop_job(void) {
    for (int32_t r = 0; r < size; r++)
        nets[r]->ops->free(nets[r]);
    for (int32_t i = 0; i < nodes; i++)
        hc_segment_close(&node_controls[i]); /* the others went with their nodes */
}

static inline void make_rank(rank_state *s, int32_t rank, uint64_t noise, hc_net *net) {
    int32_t world[MAX_RANKS], locals[MAX_RANKS], members[MAX_RANKS], local_rank = 0, n = 0, node = node_of[rank];
    for (int32_t r = 0; r < size; r++) {
        members[r] = r;
        if (node_of[r] != node)
            continue;
        local_rank = r == rank ? n : local_rank;
        locals[n] = n;
        world[n++] = r;
    }
    *s = (rank_state){.rank = rank, .noise = noise};
    CHECK(hc_node_control_new(&node_controls[node], local_rank, n, world, &s->node_control) == HC_OK,
          "node control segment");
    CHECK(hc_shm_node_new(segments[node], s->node_control, locals, local_rank, n, &s->node) == HC_OK, "node");
    hc_hierarchy_config config = knobs;
    config.set_rank = rank;
    config.set_size = size;
    config.members = members;
    config.node_of = node_of;
    int status = hc_hierarchy_new(&config, s->node, nodes > 1 ? net : NULL, &s->data);
    CHECK(status == HC_OK, "hierarchy: %s", hc_status_name(status));
#ifdef ON_DEVICE
    s->data = device_open(&s->device, &config, s->data, net);
#endif
}

static inline void drop_rank(rank_state *s) {
#ifdef ON_DEVICE
    device_close(&s->device);
#else
    s->data->ops->free(s->data);
#endif
    hc_node_control_free(s->node_control);
}

#define STUCK_SECONDS 30 /* in one batch. Turns tell nothing: a rank alone on a core takes millions while others wait */

static inline int run_here(hc_data *data, hc_batch *batch, void *context) {
    rank_state *s = context;
    int64_t begin = own_seconds();
    int status = data->ops->start(data, batch);
    for (int64_t turn = 0; status >= 0 && status != HC_DONE; turn++) {
        if (s->noise)
            dawdle(&s->noise);
        else if (status == HC_IDLE)
            sched_yield();
        status = data->ops->test(data);
        CHECK(turn % 4096 || own_seconds() - begin < STUCK_SECONDS, "stuck in a batch of %s",
              hc_operation_name(batch->operation));
    }
    return status;
}

/* HC_DONE, or a status. */
static inline int run_batch(rank_state *s, hc_batch *batch) {
#ifdef ON_DEVICE
    return run_on_device(&s->device, batch, run_here, s);
#else
    return run_here(s->data, batch, s);
#endif
}

/* A float32 sum in place. */
static inline hc_batch sum_of(hc_piece *piece, float *data, int64_t count) {
    *piece = (hc_piece){.in = data, .out = data, .count = count, .row = 1, .scale = 1.0};
    return (hc_batch){.operation = HC_ALLREDUCE,
                      .reduction = HC_SUM,
                      .dtype = HC_FLOAT32,
                      .wire_dtype = HC_FLOAT32,
                      .root = -1,
                      .divisor = 1,
                      .count = count,
                      .npieces = 1,
                      .pieces = piece};
}

/* The same, scattered: `count` rows of one element, this rank's share in new memory. */
static inline hc_batch scattered_sum_of(hc_piece *piece, float *data, int64_t count) {
    hc_batch batch = sum_of(piece, data, count);
    batch.operation = HC_REDUCESCATTER;
    piece->out = NULL;
    piece->rows = count;
    return batch;
}

/* Another operation on `count` rows of one element; alltoall: `splits` has room for two numbers a rank. */
static inline hc_batch rows_of(int operation, hc_piece *piece, float *data, int64_t count, int64_t *splits) {
    hc_batch batch = scattered_sum_of(piece, data, count);
    batch.operation = (uint8_t)operation;
    batch.root = hc_operation_has(operation, HC_OP_ROOTED) ? 0 : -1;
    if (operation != HC_REDUCESCATTER && !hc_operation_has(operation, HC_OP_RESULT_ALLOCATED))
        piece->out = data;
    for (int32_t r = 0; r < size; r++)
        splits[r] = hc_share(count, size, r);
    piece->send_rows = splits;
    piece->recv_rows = splits + size;
    return batch;
}

/* Its number by its name; -1: none has it. */
static inline int operation_named(const char *name) {
    int found = -1;
    for (int i = 0; i < HC_OPERATION_COUNT; i++)
        found = strcmp(name, hc_operation_name(i)) == 0 ? i : found;
    return found;
}

#endif
