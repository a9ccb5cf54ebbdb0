/* SPDX-License-Identifier: Apache-2.0
 *
 * fleet.c - a discrete-event run of many engines: one queue of messages, delivered in the order of sending.
 *
 * Only time inside the engine is charged to a rank (thread CPU time, so a busy machine does not count); the
 * harness moves bytes between pools outside it.
 */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void die(const char *what) {
    fprintf(stderr, "control_plane: %s\n", what);
    exit(1);
}

static void *must(void *p) {
    if (!p)
        die("out of memory");
    return p;
}

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void send_message(fleet *f, int from, const hc_action *a) {
    fleet_rank *k = &f->rank[from];
    if (f->tail == f->room) {
        f->room = f->room ? 2 * f->room : 1024;
        f->queue = must(realloc(f->queue, f->room * sizeof *f->queue));
    }
    if (f->used + a->nbytes > f->pool_room) {
        f->pool_room = 2 * (f->pool_room + a->nbytes);
        f->pool = must(realloc(f->pool, f->pool_room));
    }
    f->queue[f->tail++] = (fleet_message){from, a->peer, k->depth + 1, (uint32_t)a->nbytes, f->used};
    memcpy(f->pool + f->used, a->bytes, a->nbytes);
    f->used += a->nbytes;
    k->sent++;
    k->bytes += a->nbytes;
}

static void act(fleet *f, int rank, const hc_action *a) {
    fleet_rank *k = &f->rank[rank];
    switch (a->kind) {
    case HC_AC_SEND:
        send_message(f, rank, a);
        break;
    case HC_AC_RUN:
        if (k->batches++ == 0)
            k->first_batch = a->batch;
        break;
    case HC_AC_COMPLETE:
        if (a->status)
            die(a->text);
        k->ended++;
        break;
    case HC_AC_WAKE_AT:
        break;
    default:
        die("an action that no step should lead to");
    }
}

/* One event; the time of the actions' handling is not the engine's, hc_step's is. */
static void feed(fleet *f, int rank, hc_event *e) {
    const hc_action *actions;
    size_t n;
    e->now = ++f->now;
    if (hc_step(f->rank[rank].engine, e, &actions, &n))
        die("the engine refused an event");
    for (size_t i = 0; i < n; i++)
        act(f, rank, &actions[i]);
}

static void timed_feed(fleet *f, int rank, hc_event *e) {
    uint64_t start = thread_ns();
    feed(f, rank, e);
    f->rank[rank].cpu += thread_ns() - start;
}

void fleet_open(fleet *f, int nodes, int per_node, int fanout) {
    memset(f, 0, sizeof *f);
    f->nodes = nodes;
    f->per_node = per_node;
    f->fanout = fanout;
    f->ranks = nodes * per_node;
    f->rank = must(calloc((size_t)f->ranks, sizeof *f->rank));
    if (resnet50_gradients(f->gradients) != 25557032)
        die("this is not ResNet-50");
    int32_t *members = must(malloc(2 * sizeof *members * (size_t)f->ranks)), *node = members + f->ranks;
    for (int r = 0; r < f->ranks; r++)
        members[r] = r, node[r] = r / per_node;
    hc_tree_index *tree = must(hc_tree_index_new(members, node, f->ranks, fanout));
    for (int r = 0; r < f->ranks; r++) {
        hc_engine_config c = {.rank = r,
                              .size = f->ranks,
                              .cache_capacity = 1024,
                              .fusion_threshold = 64 << 20,
                              .raise_bytes = UINT64_MAX,
                              .raise_window = 1000000};
        hc_child children[128];
        hc_set_config s;
        memset(&s, 0, sizeof s);
        hc_tree_place(tree, r, &s, children, 128);
        s.children = children;
        f->rank[r].engine = must(hc_engine_new(&c));
        feed(f, r, &(hc_event){.kind = HC_EV_ADD_SET, .peer = -1, .config = &s});
    }
    hc_tree_index_free(tree);
    free(members);
}

void fleet_close(fleet *f) {
    for (int r = 0; r < f->ranks; r++)
        hc_engine_free(f->rank[r].engine);
    free(f->rank);
    free(f->queue);
    free(f->pool);
}

void fleet_begin(fleet *f) {
    f->head = f->tail = f->used = 0;
    for (int r = 0; r < f->ranks; r++) {
        hc_engine *engine = f->rank[r].engine;
        f->rank[r] = (fleet_rank){.engine = engine};
    }
}

void fleet_raise(fleet *f, int rank, const int *order, int from, int to) {
    hc_request q = {.operation = HC_ALLREDUCE,
                    .reduction = HC_AVERAGE,
                    .memory = HC_MEMORY_HOST,
                    .wire = HC_WIRE_SAME,
                    .root = -1,
                    .prescale = 1,
                    .postscale = 1,
                    .ntensors = 1};
    uint64_t start = thread_ns();
    for (int i = from; i < to; i++) {
        const gradient *g = &f->gradients[order[i]];
        hc_tensor t = {HC_FLOAT32, (uint8_t)g->ndim, g->dims};
        q.ticket = (uint64_t)order[i] + 1;
        q.name = g->name;
        q.name_len = (uint32_t)strlen(g->name);
        q.tensors = &t;
        feed(f, rank, &(hc_event){.kind = HC_EV_ENQUEUE, .peer = -1, .request = &q});
    }
    feed(f, rank, &(hc_event){.kind = HC_EV_FLUSH, .peer = -1});
    f->rank[rank].cpu += thread_ns() - start;
}

void fleet_drain(fleet *f) {
    while (f->head < f->tail) {
        fleet_message g = f->queue[f->head++];
        uint8_t bytes[1 << 16], *copy = bytes; /* the pool may move while the engine answers */
        if (g.n > sizeof bytes)
            copy = must(malloc(g.n));
        memcpy(copy, f->pool + g.at, g.n);
        fleet_rank *k = &f->rank[g.to];
        if (k->depth < g.depth)
            k->depth = g.depth;
        k->received++;
        timed_feed(f, g.from, &(hc_event){.kind = HC_EV_SENT, .peer = g.to});
        timed_feed(f, g.to, &(hc_event){.kind = HC_EV_MESSAGE, .peer = g.from, .bytes = copy, .nbytes = g.n});
        if (copy != bytes)
            free(copy);
    }
}

void fleet_chain_restarts(fleet *f) {
    for (int r = 0; r < f->ranks; r++)
        f->rank[r].depth = 0;
}

static uint32_t new_entries(fleet *f) {
    hc_counters c;
    hc_engine_counters(f->rank[0].engine, &c);
    uint32_t n = (uint32_t)(c.entries - f->entries);
    f->entries = c.entries;
    return n;
}

fleet_cost fleet_finish(fleet *f) {
    fleet_cost c = {0};
    fleet_drain(f);
    c.entries = new_entries(f);
    for (int r = 0; r < f->ranks; r++) {
        fleet_rank *k = &f->rank[r];
        for (uint32_t b = 0, n = k->batches; b < n; b++)
            timed_feed(f, r, &(hc_event){.kind = HC_EV_BATCH_DONE, .peer = -1, .batch = k->first_batch + b});
        if (k->ended != GRADIENTS || !hc_engine_quiet(k->engine))
            die("a request has not ended");
        uint64_t memory = hc_engine_memory(k->engine);
        c.messages += k->sent;
        c.bytes += k->bytes;
        c.cpu_mean += (double)k->cpu / 1e3 / f->ranks;
        c.memory_mean += memory;
        if ((uint32_t)k->depth > c.chain)
            c.chain = (uint32_t)k->depth;
        if (k->sent + k->received > c.messages_max)
            c.messages_max = k->sent + k->received;
        if (k->bytes > c.bytes_max)
            c.bytes_max = k->bytes;
        if ((double)k->cpu / 1e3 > c.cpu_max)
            c.cpu_max = (double)k->cpu / 1e3;
        if (memory > c.memory_max)
            c.memory_max = memory;
        c.batches = k->batches;
    }
    c.memory_mean /= (uint64_t)f->ranks;
    if (f->head != f->tail)
        die("a step that is over sends on");
    return c;
}
