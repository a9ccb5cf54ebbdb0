/* SPDX-License-Identifier: Apache-2.0
 *
 * fleet.c - a discrete-event simulation of many engines: one queue of messages, delivered in the order of sending.
 *
 * A rank is charged the thread CPU time of its engine's steps and their actions, so that other load does not count.
 */
#include "fleet/fleet.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void fail(fleet *f, const char *problem) {
    if (!f->problem)
        f->problem = problem;
}

static void *must(fleet *f, void *p) {
    if (!p)
        fail(f, "out of memory");
    return p;
}

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int grow(fleet *f, void **p, size_t bytes) {
    void *larger = must(f, realloc(*p, bytes));
    if (!larger)
        return -1;
    *p = larger;
    return 0;
}

static void send_message(fleet *f, int from, const hc_action *a) {
    fleet_rank *k = &f->rank[from];
    if (f->tail == f->room) {
        size_t room = f->room ? 2 * f->room : 1024;
        if (grow(f, (void **)&f->queue, room * sizeof *f->queue))
            return;
        f->room = room;
    }
    if (f->used + a->nbytes > f->pool_room) {
        size_t room = 2 * (f->pool_room + a->nbytes);
        if (grow(f, (void **)&f->pool, room))
            return;
        f->pool_room = room;
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
            fail(f, "a request ended with an error");
        k->ended++;
        break;
    case HC_AC_WAKE_AT:
        break;
    default:
        fail(f, "an action that no step should lead to");
    }
}

/* Handles one event and its actions; the callers charge the rank for the time. */
static void feed(fleet *f, int rank, hc_event *e) {
    const hc_action *actions;
    size_t n;
    e->now = ++f->now;
    if (f->problem)
        return;
    if (hc_step(f->rank[rank].engine, e, &actions, &n)) {
        fail(f, "the engine refused an event");
        return;
    }
    for (size_t i = 0; i < n; i++)
        act(f, rank, &actions[i]);
}

static void timed_feed(fleet *f, int rank, hc_event *e) {
    uint64_t start = thread_ns();
    feed(f, rank, e);
    f->rank[rank].cpu += thread_ns() - start;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static void add_engine(fleet *f, int r, const hc_tree_index *tree) {
    hc_engine_config c = {.rank = r,
                          .size = f->ranks,
                          .cache_capacity = 1024,
                          .fusion_threshold = 64 << 20,
                          .raise_bytes = UINT64_MAX,
                          .raise_window = 1000000};
    hc_child children[256];
    hc_set_config s;
    memset(&s, 0, sizeof s);
    hc_tree_place(tree, r, &s, children, 256);
    s.children = children;
    f->rank[r].engine = must(f, hc_engine_new(&c));
    if (f->rank[r].engine)
        feed(f, r, &(hc_event){.kind = HC_EV_ADD_SET, .peer = -1, .config = &s});
}

int fleet_open(fleet *f, int nodes, int per_node, int fanout, const fleet_request *requests, int count) {
    memset(f, 0, sizeof *f);
    *f = (fleet){.nodes = nodes,
                 .per_node = per_node,
                 .fanout = fanout,
                 .ranks = nodes * per_node,
                 .requests = requests,
                 .count = count,
                 .random = 1};
    f->rank = must(f, calloc((size_t)f->ranks, sizeof *f->rank));
    f->orders = must(f, malloc(sizeof *f->orders * (size_t)f->ranks * (size_t)count));
    int32_t *members = must(f, malloc(2 * sizeof *members * (size_t)f->ranks));
    if (f->problem) {
        free(members);
        return -1;
    }
    for (int r = 0; r < f->ranks; r++)
        members[r] = r, members[f->ranks + r] = r / per_node;
    hc_tree_index *tree = must(f, hc_tree_index_new(members, members + f->ranks, f->ranks, fanout));
    for (int r = 0; r < f->ranks && !f->problem; r++)
        add_engine(f, r, tree);
    for (int i = 0; i < f->ranks * count; i++)
        f->orders[i] = count - 1 - i % count; /* the last layer's gradients come first */
    hc_tree_index_free(tree);
    free(members);
    return f->problem ? -1 : 0;
}

void fleet_close(fleet *f) {
    for (int r = 0; f->rank && r < f->ranks; r++)
        if (f->rank[r].engine)
            hc_engine_free(f->rank[r].engine);
    free(f->rank);
    free(f->orders);
    free(f->queue);
    free(f->pool);
    memset(f, 0, sizeof *f);
}

/* ---- a step --------------------------------------------------------------------------------------------- */

static void begin(fleet *f) {
    f->head = f->tail = f->used = 0;
    for (int r = 0; r < f->ranks; r++) {
        hc_engine *engine = f->rank[r].engine;
        f->rank[r] = (fleet_rank){.engine = engine};
    }
}

/* Enqueues the requests order[from..to) of a rank, and a flush. */
static void raise(fleet *f, int rank, int from, int to) {
    const int *order = f->orders + (size_t)rank * (size_t)f->count;
    hc_request q = {.operation = HC_ALLREDUCE,
                    .reduction = HC_AVERAGE,
                    .memory = HC_MEMORY_HOST,
                    .wire = HC_WIRE_SAME,
                    .root = -1,
                    .prescale = 1,
                    .postscale = 1};
    uint64_t start = thread_ns();
    for (int i = from; i < to; i++) {
        const fleet_request *asked = &f->requests[order[i]];
        q.ticket = (uint64_t)order[i] + 1;
        q.name = asked->name;
        q.name_len = (uint32_t)strlen(asked->name);
        q.ntensors = asked->ntensors;
        q.tensors = asked->tensors;
        feed(f, rank, &(hc_event){.kind = HC_EV_ENQUEUE, .peer = -1, .request = &q});
    }
    feed(f, rank, &(hc_event){.kind = HC_EV_FLUSH, .peer = -1});
    f->rank[rank].cpu += thread_ns() - start;
}

static void deliver(fleet *f, fleet_message g) {
    uint8_t bytes[1 << 16], *copy = bytes; /* the pool may move during hc_step() */
    if (g.n > sizeof bytes && !(copy = must(f, malloc(g.n))))
        return;
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

static void drain(fleet *f) {
    while (f->head < f->tail && !f->problem)
        deliver(f, f->queue[f->head++]);
}

static uint32_t below(fleet *f, uint32_t n) { /* splitmix64 */
    uint64_t z = (f->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(((z >> 32) * n) >> 32);
}

static void shuffle(fleet *f, int *v, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)below(f, (uint32_t)i + 1), t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

static void raise_in_parts(fleet *f) {
    for (int r = 0; r < f->ranks; r++)
        shuffle(f, f->orders + (size_t)r * (size_t)f->count, f->count);
    for (int part = 0; part < 4; part++) {
        for (int r = 0; r < f->ranks; r++)
            raise(f, r, part * f->count / 4, (part + 1) * f->count / 4);
        drain(f);
    }
}

static void raise_all_but_late(fleet *f) {
    int last = (int)below(f, (uint32_t)f->ranks);
    for (int r = 0; r < f->ranks; r++)
        if (r != last)
            raise(f, r, 0, f->count);
    drain(f);
    for (int r = 0; r < f->ranks; r++)
        f->rank[r].depth = 0;
    raise(f, last, 0, f->count);
}

static void finish_rank(fleet *f, int r, fleet_cost *c) {
    fleet_rank *k = &f->rank[r];
    for (uint32_t b = 0, n = k->batches; b < n; b++)
        timed_feed(f, r, &(hc_event){.kind = HC_EV_BATCH_DONE, .peer = -1, .batch = k->first_batch + b});
    if (f->problem)
        return;
    if ((int)k->ended != f->count || !hc_engine_quiet(k->engine)) {
        fail(f, "a request has not ended");
        return;
    }
    uint64_t memory = hc_engine_memory(k->engine);
    double cpu = (double)k->cpu / 1e9;
    c->messages += k->sent;
    c->bytes += k->bytes;
    c->cpu_mean += cpu / f->ranks;
    c->memory_mean += memory;
    c->chain = (uint32_t)k->depth > c->chain ? (uint32_t)k->depth : c->chain;
    c->messages_max = k->sent + k->received > c->messages_max ? k->sent + k->received : c->messages_max;
    c->bytes_max = k->bytes > c->bytes_max ? k->bytes : c->bytes_max;
    c->cpu_max = cpu > c->cpu_max ? cpu : c->cpu_max;
    c->memory_max = memory > c->memory_max ? memory : c->memory_max;
    c->batches = k->batches;
}

static void finish(fleet *f, fleet_cost *c) {
    hc_counters counters;
    drain(f);
    if (f->problem)
        return;
    hc_engine_counters(f->rank[0].engine, &counters);
    c->entries = (uint32_t)(counters.entries - f->entries);
    f->entries = counters.entries;
    for (int r = 0; r < f->ranks && !f->problem; r++)
        finish_rank(f, r, c);
    c->memory_mean /= (uint64_t)f->ranks;
    if (f->head != f->tail)
        fail(f, "a step that is over sends on");
}

int fleet_step(fleet *f, enum fleet_arrival arrival, fleet_cost *c) {
    memset(c, 0, sizeof *c);
    if (f->problem)
        return -1;
    begin(f);
    if (arrival == FLEET_DIFFERING)
        raise_in_parts(f);
    else if (arrival == FLEET_ONE_LATE)
        raise_all_but_late(f);
    else
        for (int r = 0; r < f->ranks; r++)
            raise(f, r, 0, f->count);
    finish(f, c);
    return f->problem ? -1 : 0;
}
