/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - the ranks of one node for a test: threads of this process over plain memory, or processes over
 * /dev/shm.
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/shm/shm.h"
#include "transport/transport.h"

#define CHECK(condition, ...)                                               \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fprintf(stderr, "\n");                                          \
            _exit(1);                                                       \
        }                                                                   \
    } while (0)

#define RANKS_MAX 320

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static int rank_killed = -1; /* the rank that a test ends by SIGKILL */

typedef struct ranks {
    int as_processes, size;
    hc_segment node_control, node; /* threads share these; a process makes its own of the names */
    size_t bytes;                  /* of node */
    char control_name[64], node_name[64];
    int ready[2], go[2]; /* pipes: the processes' barrier before the names are unlinked */
} ranks;

typedef struct rank_place {
    ranks *ranks;
    int32_t rank, size;
    hc_node_control *node_control;
    hc_segment segment; /* for a node of all ranks, which is to own it */
    void (*body)(struct rank_place *);
} rank_place;

static void ranks_make(ranks *r, const char *mode, int size, size_t bytes) {
    char why[300] = "";
    memset(r, 0, sizeof *r);
    r->as_processes = strcmp(mode, "processes") == 0;
    r->size = size;
    r->bytes = bytes;
    snprintf(r->control_name, sizeof r->control_name, "/hpccoll-test-%d-node control segment", (int)getpid());
    snprintf(r->node_name, sizeof r->node_name, "/hpccoll-test-%d-node", (int)getpid());
    if (r->as_processes) {
        CHECK(hc_segment_create(&r->node_control, r->control_name, hc_node_control_bytes(size), why, sizeof why) == 0,
              "%s", why);
        CHECK(hc_segment_create(&r->node, r->node_name, bytes, why, sizeof why) == 0, "%s", why);
        CHECK(pipe(r->ready) == 0 && pipe(r->go) == 0, "pipe");
    } else {
        CHECK(hc_segment_private(&r->node_control, hc_node_control_bytes(size)) == 0, "memory");
        CHECK(hc_segment_private(&r->node, bytes) == 0, "memory");
    }
}

static void *rank_run(void *argument) {
    rank_place *place = argument;
    ranks *r = place->ranks;
    char why[300] = "";
    int32_t world[RANKS_MAX];
    for (int q = 0; q < r->size; q++)
        world[q] = q;
    hc_segment node_control = r->node_control;
    place->segment = r->node;
    if (r->as_processes) {
        CHECK(hc_segment_attach(&node_control, r->control_name, hc_node_control_bytes(r->size), why, sizeof why) == 0,
              "%s", why);
        CHECK(hc_segment_attach(&place->segment, r->node_name, r->bytes, why, sizeof why) == 0, "%s", why);
    }
    CHECK(hc_node_control_new(&node_control, place->rank, r->size, world, &place->node_control) == 0,
          "node control segment");
    if (r->as_processes) {
        char byte = 0; /* the names go when all have attached */
        CHECK(write(r->ready[1], &byte, 1) == 1 && read(r->go[0], &byte, 1) == 1, "barrier");
    }
    place->body(place);
    hc_node_control_free(place->node_control);
    if (r->as_processes)
        hc_segment_close(&node_control);
    return NULL;
}

static void run_threads(ranks *r, void (*body)(rank_place *)) {
    pthread_t threads[RANKS_MAX];
    rank_place places[RANKS_MAX];
    for (int q = 0; q < r->size; q++) {
        places[q] = (rank_place){.ranks = r, .rank = q, .size = r->size, .body = body};
        CHECK(pthread_create(&threads[q], NULL, rank_run, &places[q]) == 0, "thread");
    }
    for (int q = 0; q < r->size; q++)
        pthread_join(threads[q], NULL);
}

static void run_processes(ranks *r, void (*body)(rank_place *)) {
    pid_t pids[RANKS_MAX];
    char bytes[RANKS_MAX] = {0};
    for (int q = 0; q < r->size; q++) {
        pids[q] = fork();
        if (pids[q] != 0)
            continue;
        rank_place place = {.ranks = r, .rank = q, .size = r->size, .body = body};
        rank_run(&place);
        _exit(0);
    }
    for (int q = 0; q < r->size; q++)
        CHECK(read(r->ready[0], bytes, 1) == 1, "a rank did not come up");
    hc_segment_unlink(r->control_name);
    hc_segment_unlink(r->node_name);
    CHECK(write(r->go[1], bytes, (size_t)r->size) == r->size, "barrier");
    for (int q = 0; q < r->size; q++) {
        int status;
        int expected = q == rank_killed ? SIGKILL : 0;
        CHECK(waitpid(pids[q], &status, 0) == pids[q] && status == expected, "rank %d: status %d", q, status);
    }
}

/* Runs body on `size` ranks that share a segment of `bytes`, for a node to own;
 * mode "threads" or "processes". Ends the program where a check fails. */
static void ranks_run(const char *mode, int size, size_t bytes, void (*body)(rank_place *)) {
    ranks r;
    ranks_make(&r, mode, size, bytes);
    (r.as_processes ? run_processes : run_threads)(&r, body);
    hc_segment_close(&r.node_control);
    if (r.as_processes)
        hc_segment_close(&r.node);
}

#endif
