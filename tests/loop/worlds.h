/* SPDX-License-Identifier: Apache-2.0
 *
 * worlds.h - Worlds of threads for the loop's tests: the real engine, loop and data plane in one process.
 */
#ifndef HC_TEST_WORLDS_H
#define HC_TEST_WORLDS_H

#include "transport/net/local.h"
#include "loop/loop.h"
#include "loop/place.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16

typedef struct worlds {
    int32_t size, nodes;
    int32_t node_of[MOST], members[MOST];
    hc_segment node_controls[MOST];
    hc_net *nets[MOST];
    hc_loop *loops[MOST];
    hc_node_control *node_controls_of[MOST]; /* of each rank: its node control segment */
    hc_node *nodes_of[MOST];                 /* likewise: the set's node, which the loop owns */
    hc_votes *votes_of[MOST];                /* likewise: the set's votes, or NULL */
    pthread_barrier_t meet;
    hc_loop_config knobs;
    hc_plane_maker *maker; /* of all ranks, for other memory than the host's; or NULL */
} worlds;

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

/* Ranks of `rank`'s node, and this rank's place among them. */
static inline int32_t neighbours(const worlds *w, int32_t rank, int32_t *locals, int32_t *own) {
    int32_t n = 0;
    for (int32_t r = 0; r < w->size; r++) {
        if (w->node_of[r] != w->node_of[rank])
            continue;
        if (r == rank)
            *own = n;
        locals[n++] = r;
    }
    return n;
}

static inline void worlds_prepare(worlds *w, int32_t size, int32_t nodes) {
    int32_t ranks[MOST] = {0}; /* of each node */
    w->size = size;
    w->nodes = nodes;
    for (int32_t r = 0; r < size; r++) {
        w->members[r] = r;
        w->node_of[r] = r * nodes / size;
        ranks[w->node_of[r]]++;
    }
    for (int32_t n = 0; n < nodes; n++)
        CHECK(hc_segment_private(&w->node_controls[n], hc_node_control_bytes(ranks[n])) == HC_OK);
    CHECK(hc_local_net_new(size, w->nets) == HC_OK);
    pthread_barrier_init(&w->meet, NULL, (unsigned)size);
}

static inline hc_loop *make_loop(worlds *w, int32_t rank, hc_node_control **node_control) {
    int32_t locals[MOST], local_of[MOST], own = 0, n = neighbours(w, rank, locals, &own);
    for (int32_t r = 0; r < w->size; r++)
        local_of[r] = -1;
    for (int32_t i = 0; i < n; i++)
        local_of[locals[i]] = i;
    hc_loop_parts parts = {.net = w->nodes > 1 ? w->nets[rank] : NULL};
    CHECK(hc_node_control_new(&w->node_controls[w->node_of[rank]], own, n, locals, &parts.node_control) == HC_OK);
    CHECK(hc_control_new(parts.node_control, parts.net, local_of, w->size, &parts.control) == HC_OK);
    CHECK(hc_p2p_new(parts.node_control, parts.net, parts.control, local_of, rank, w->size, &parts.p2p) == HC_OK);
    hc_loop_config config = w->knobs;
    config.engine.rank = rank;
    config.engine.size = w->size;
    config.node_of = w->node_of;
    config.local_rank = own;
    config.local_size = n;
    config.locals = locals;
    *node_control = w->node_controls_of[rank] = parts.node_control;
    hc_loop *loop;
    CHECK(hc_loop_new(&config, &parts, &loop) == HC_OK);
    return loop;
}

static inline hc_node *make_node(worlds *w, int32_t rank, hc_node_control *node_control) {
    int32_t locals[MOST], own = 0, n = neighbours(w, rank, locals, &own);
    char name[64], why[256] = "";
    snprintf(name, sizeof name, "/hpccoll-test-%d-%d", (int)getpid(), w->node_of[rank]);
    hc_segment segment;
    if (own == 0)
        CHECK(hc_segment_create(&segment, name, hc_shm_bytes(n), why, sizeof why) == HC_OK);
    pthread_barrier_wait(&w->meet);
    if (own > 0)
        CHECK(hc_segment_attach(&segment, name, hc_shm_bytes(n), why, sizeof why) == HC_OK);
    pthread_barrier_wait(&w->meet);
    if (own == 0)
        hc_segment_unlink(name);
    for (int32_t i = 0; i < n; i++)
        locals[i] = i;
    hc_node *node;
    CHECK(hc_shm_node_new(segment, node_control, locals, own, n, &node) == HC_OK);
    return node;
}

static inline int finish(hc_loop *loop, hc_handle *handle) {
    while (!hc_loop_wait(loop, &handle, 1, 50000000)) {}
    int status = handle->status;
    hc_handle_release(handle);
    return status;
}

/* The calling thread makes its rank's part of the World. */
static inline hc_loop *worlds_join(worlds *w, int32_t rank) {
    hc_node_control *node_control;
    hc_loop *loop = w->loops[rank] = make_loop(w, rank, &node_control);
    hc_hierarchy_config config = {
        .set_rank = rank, .set_size = w->size, .members = w->members, .node_of = w->node_of, .algorithm = "auto"};
    hc_child children[2 * MOST];
    hc_set_config place = {.children = children};
    hc_tree_index *index = hc_tree_index_new(w->members, w->node_of, w->size, 2);
    hc_tree_place(index, rank, &place, children, 2 * MOST);
    hc_node *node = w->nodes_of[rank] = make_node(w, rank, node_control);
    hc_set_parts parts = {.place = &place, .node = node, .maker = w->maker};
    const hc_votes_members all = {.ranks = w->members, .nodes = w->node_of, .size = w->size, .own = rank};
    parts.votes = w->votes_of[rank] = w->nodes > 1 ? hc_loop_votes_new(loop, 0, hc_shm_count(node), &all) : NULL;
    CHECK(hc_hierarchy_new(&config, node, w->nets[rank], &parts.host) == HC_OK);
    hc_handle *add = hc_handle_new(HC_EV_ADD_SET, 0, 0, 0, NULL, 0, 0);
    add->parts = &parts;
    hc_loop_submit(loop, add, 1);
    CHECK(finish(loop, add) == HC_OK);
    hc_tree_index_free(index);
    pthread_barrier_wait(&w->meet);
    return loop;
}

static inline void worlds_leave(worlds *w, int32_t rank) {
    hc_handle *stop = hc_handle_new(HC_EV_STOP, 0, 0, 0, NULL, 0, 0);
    hc_loop_submit(w->loops[rank], stop, 1);
    CHECK(finish(w->loops[rank], stop) == HC_OK);
    pthread_barrier_wait(&w->meet); /* the segments of the node control segments are this process's */
    hc_loop_free(w->loops[rank]);
}

static inline void worlds_end(worlds *w) {
    for (int32_t n = 0; n < w->nodes; n++)
        hc_segment_close(&w->node_controls[n]);
    for (int32_t r = 0; r < w->size; r++)
        w->nets[r]->ops->free(w->nets[r]);
    pthread_barrier_destroy(&w->meet);
}

/* ---- a World whose ranks the calling thread drives turn by turn, so that nothing depends on time ---------------- */

typedef struct worlds_joining {
    worlds *w;
    int32_t rank;
} worlds_joining;

static inline void *worlds_join_thread(void *argument) {
    const worlds_joining *own = argument;
    worlds_join(own->w, own->rank);
    return NULL;
}

static inline void worlds_make_driven(worlds *w, int32_t size, int32_t nodes) {
    pthread_t threads[MOST];
    worlds_joining joinings[MOST];
    worlds_prepare(w, size, nodes);
    for (int32_t r = 0; r < size; r++) {
        joinings[r] = (worlds_joining){w, r};
        CHECK(!pthread_create(&threads[r], NULL, worlds_join_thread, &joinings[r]));
    }
    for (int32_t r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
        CHECK(hc__driver_try(w->loops[r])); /* ours from here on */
    }
}

static inline void worlds_end_driven(worlds *w) {
    for (int32_t r = 0; r < w->size; r++) {
        hc__driver_vacate(w->loops[r]);
        hc_loop_free(w->loops[r]);
    }
    worlds_end(w);
}

/* Submits a command to the set, which has no arrays: a stop, a removal. */
static inline hc_handle *submit_command(hc_loop *loop, int kind, uint32_t set) {
    hc_handle *handle = hc_handle_new(kind, set, 0, 0, NULL, 0, 0);
    hc_loop_submit(loop, handle, 1);
    return handle;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* An allreduce of int64 values in place. */
static inline hc_handle *sum_of(const char *name, int64_t *values, int64_t n) {
    hc_handle *handle = hc_handle_new(HC_EV_ENQUEUE, 0, 1, 1, name, strlen(name), 0);
    handle->request.operation = HC_ALLREDUCE;
    handle->dims[0] = n;
    handle->tensors[0] = (hc_tensor){.dtype = HC_INT64, .ndim = 1, .dims = handle->dims};
    handle->pieces[0].in = handle->pieces[0].out = values;
    handle->pieces[0].count = n;
    handle->pieces[0].row = 1;
    return handle;
}

#endif
