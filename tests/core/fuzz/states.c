/* SPDX-License-Identifier: Apache-2.0
 *
 * states.c - records what each engine of a simulated run was fed, and cuts the recordings at random points.
 *
 * To be in a state an engine is made anew and fed its part of the recording: an engine cannot be copied, and
 * one rank's events are few.
 */
#include "states.h"

#include "judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 32, STATES = 4096 }; /* longer recordings would make every input slow */

static state states[STATES];
static int nstates;
static sim_arena forever; /* recordings live as long as the process */
static hc_event *recording[STATE_RANKS];
static int length[STATE_RANKS];

static const hc_request *copy_request(const hc_request *q) {
    hc_request *c = sim_copy(&forever, q, sizeof *q);
    hc_tensor *t = sim_copy(&forever, q->tensors, sizeof *t * q->ntensors);
    c->name = sim_copy(&forever, q->name, q->name_len);
    for (uint32_t i = 0; i < q->ntensors; i++)
        t[i].dims = sim_copy(&forever, t[i].dims, sizeof(int64_t) * t[i].ndim);
    c->tensors = t;
    return c;
}

static const hc_set_config *copy_config(const hc_set_config *c) {
    hc_set_config *copy = sim_copy(&forever, c, sizeof *c);
    copy->children = sim_copy(&forever, c->children, sizeof *c->children * (size_t)c->nchildren);
    return copy;
}

static void record(void *unused, int rank, const hc_event *e) {
    (void)unused;
    if (length[rank] == EVENTS)
        return;
    hc_event *c = &recording[rank][length[rank]++];
    *c = *e;
    if (e->request)
        c->request = copy_request(e->request);
    if (e->config)
        c->config = copy_config(e->config);
    if (e->bytes)
        c->bytes = sim_copy(&forever, e->bytes, e->nbytes);
    if (e->tuning)
        c->tuning = sim_copy(&forever, e->tuning, sizeof *e->tuning);
    if (e->text)
        c->text = sim_copy(&forever, e->text, strlen(e->text) + 1);
}

/* One simulated run: two states a rank, cut where chance wants them. */
static void record_run(uint64_t seed, int wanted) {
    static sim_machine m;
    static sim_program p;
    sim_arena arena = {0};
    sim_random rng = {seed};
    const sim_options o = {STATE_RANKS, STATE_RANKS, -1, -1, -1, -1, -1, -1, -1, -1};
    memset(&m, 0, sizeof m);
    m.fed = record;
    sim_program_make(&p, &arena, &rng, &o);
    for (int r = 0; r < STATE_RANKS; r++) {
        recording[r] = sim_take(&forever, sizeof **recording * EVENTS);
        length[r] = 0;
    }
    if (!sim_machine_open(&m, &p, &arena, &rng) || !sim_machine_run(&m, 4000000)) {
        fprintf(stderr, "states: program %llu: %s\n", (unsigned long long)seed, m.why);
        exit(1);
    }
    for (int i = 0; i < 2 * STATE_RANKS && nstates < wanted && nstates < STATES; i++) {
        int r = i % STATE_RANKS;
        hc_engine_config c = {.rank = r,
                              .size = STATE_RANKS,
                              .cache_capacity = p.capacity,
                              .fusion_threshold = p.threshold,
                              .raise_bytes = p.raise_bytes,
                              .raise_window = p.raise_window,
                              .stall_warning = i % 2 ? 1000 : 0};
        states[nstates++] = (state){c, recording[r], sim_between(&rng, 1, length[r]), length[r]};
    }
    sim_machine_close(&m);
    sim_arena_reset(&arena);
}

void states_make(int n) {
    for (uint64_t seed = 1; nstates < n && nstates < STATES; seed++)
        record_run(seed, n);
}

int states_count(void) {
    return nstates;
}
const state *state_at(int i) {
    return &states[i];
}

hc_engine *state_enter(const state *s) {
    const hc_action *actions;
    size_t n;
    hc_engine *e = hc_engine_new(&s->config);
    for (int i = 0; e && i < s->n; i++)
        hc_step(e, &s->events[i], &actions, &n);
    return e;
}
