/* SPDX-License-Identifier: Apache-2.0
 *
 * program.c - random programs: mixed operations, groups, overlapping sets, joins, changed and deviating
 * signatures, differing orders, several threads per rank, waits in between, stop and preempt.
 *
 * Programs may deadlock by themselves (A waits for x before it submits y, B the other way round): the
 * oracle says so, and the engine must then hang in exactly the same place.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

typedef struct plan { /* what all ranks of a program have in common */
    int steps, phases;
    uint32_t impatience;                      /* percent: a wait before the next request */
    uint32_t refusals;                        /* percent of what a rank is to ask for */
    int join_set[2];                          /* by phase; -1: none */
    sim_signature base[SIM_SETS][SIM_NAMES];  /* as agreed in the first step */
    uint8_t variants[SIM_SETS][SIM_NAMES];    /* signatures that alternate from step to step */
    uint8_t change[8][SIM_SETS][SIM_NAMES];   /* by step: 0 none, 1 all ranks from here on, 2 some ranks */
    uint8_t deviates[8][SIM_SETS][SIM_NAMES]; /* by step: the World rank that deviates */
} plan;

/* ---- the world ----------------------------------------------------------------------------------- */

static int random_ranks(sim_random *rng, const sim_options *o) {
    int cap = o->high;
    uint32_t u = sim_below(rng, 100);
    if (u < 75 && cap > 6)
        cap = 6; /* many small worlds: short runs, many interleavings */
    else if (u < 95 && cap > 16)
        cap = 16;
    if (cap < o->low)
        cap = o->low;
    return sim_between(rng, o->low, cap);
}

static void name_set(sim_random *rng, sim_set *s, int most) {
    s->names = sim_between(rng, most == SIM_NAMES ? most / 2 : 1, most);
    for (int k = 0; k < s->names; k++) {
        int n = snprintf(s->name[k], sizeof s->name[k], k % 4 == 3 ? "gradient/\xc3\xa9tage.%d/weight" : "t%d", k);
        if (k % 5 == 4)
            n += snprintf(s->name[k] + n, sizeof s->name[k] - (size_t)n, "/%048d", k);
        s->name_len[k] = n;
    }
}

/* Their texts are all that the judge may expect of the names that the ranks give them. */
static void add_unnamed(sim_random *rng, sim_set *s) {
    for (s->unnamed = sim_between(rng, 1, SIM_UNNAMED); s->names + s->unnamed > SIM_NAMES;)
        s->names--;
    for (int k = s->names; k < s->names + s->unnamed; k++)
        s->name_len[k] = snprintf(s->name[k], sizeof s->name[k], HC_ORDER_PREFIX);
    s->names += s->unnamed;
}

static int is_unnamed(const sim_set *s, int name) {
    return name >= s->names - s->unnamed;
}

static void make_sets(sim_program *p, sim_random *rng, const sim_options *o) {
    int unnamed = o->unnamed >= 0 ? o->unnamed : o->stall <= 0 && sim_chance(rng, 30);
    p->nsets = 1 + (p->ranks > 1 ? sim_between(rng, 0, 3) : 0);
    for (int s = 0; s < p->nsets; s++) {
        sim_set *set = &p->set[s];
        int order[SIM_RANKS];
        for (int r = 0; r < p->ranks; r++)
            order[r] = r, set->set_rank[r] = -1;
        set->n = s ? sim_between(rng, 1, p->ranks) : p->ranks;
        if (s)
            sim_shuffle(rng, order, p->ranks);
        for (int i = 0; i < set->n; i++)
            set->set_rank[order[i]] = 0;
        set->n = 0;
        for (int r = 0; r < p->ranks; r++)
            if (set->set_rank[r] == 0)
                set->set_rank[r] = (int8_t)set->n, set->members[set->n++] = r;
        int most = p->ranks > 16 ? 4 : sim_chance(rng, 10) ? 12 : 5;
        if (p->ranks < 4 && sim_chance(rng, 3))
            most = SIM_NAMES; /* more than a word of slots */
        name_set(rng, set, most);
        if (unnamed && sim_chance(rng, 70))
            add_unnamed(rng, set);
    }
}

static int has_unnamed(const sim_program *p) {
    for (int s = 0; s < p->nsets; s++)
        if (p->set[s].unnamed)
            return 1;
    return 0;
}

static void make_world(sim_program *p, sim_random *rng, const sim_options *o) {
    static const int fanouts[] = {1, 2, 2, 3, 8, 16};
    static const uint32_t capacities[] = {0, 1, 2, 3, 8, 200};
    static const uint64_t thresholds[] = {1, 24, 64, 1 << 20};
    static const uint64_t raises[] = {1, 64, UINT64_MAX};
    static const uint32_t weights[] = {1, 20, 20, 80};
    static const uint32_t kinds[] = {1, 8, 8, 8, 40};
    p->fanout = fanouts[sim_below(rng, 6)];
    int per_node = sim_between(rng, 1, 5), scattered = sim_chance(rng, 20);
    for (int r = 0; r < p->ranks; r++) {
        p->node_of[r] = scattered ? sim_between(rng, 0, 4) : r / per_node;
        p->weight[r] = weights[sim_below(rng, 4)];
    }
    for (int k = 0; k < 8; k++)
        p->kind_weight[k] = kinds[sim_below(rng, 5)];
    p->capacity = capacities[sim_below(rng, 6)];
    if (o->capacity >= 0)
        p->capacity = (uint32_t)o->capacity;
    p->threshold = thresholds[sim_below(rng, 4)];
    p->raise_bytes = raises[sim_below(rng, 3)];
    p->raise_window = sim_chance(rng, 20) ? 0 : sim_chance(rng, 15) ? UINT64_MAX : 1000;
    uint32_t mode = sim_below(rng, 100); /* one of these at a time */
    p->stop = o->stop >= 0 ? o->stop : mode < 20;
    p->leave = p->stop && sim_chance(rng, 50);
    p->fail = o->fail >= 0 ? o->fail : mode >= 16 && mode < 26; /* a few stop and fail */
    p->lazy = o->lazy >= 0 ? o->lazy : !p->stop && !p->fail && mode >= 30 && mode < 45;
    p->stall = o->stall >= 0 ? o->stall
                             : !has_unnamed(p) && !p->stop && !p->fail && !p->lazy && mode >= 45 && mode < 55;
    p->one_stream = o->one_stream > 0;
    p->late_sets = !p->stop && !p->fail && sim_chance(rng, 30);
    p->victim = -1;
    if (p->fail && p->ranks > 1 && sim_chance(rng, 60))
        p->victim = sim_between(rng, 0, p->ranks - 1);
}

static void make_plan(const sim_program *p, sim_random *rng, const sim_options *o, plan *q) {
    memset(q, 0, sizeof *q);
    int joins = o->joins < 0 || o->joins;
    q->phases = sim_chance(rng, 25) ? 2 : 1;
    q->steps = sim_between(rng, 1, q->phases == 2 ? 4 : sim_chance(rng, 20) ? 8 : 6);
    uint32_t alternation = sim_chance(rng, 50) ? 0 : sim_chance(rng, 50) ? 30 : 90; /* percent of the names */
    q->impatience = sim_chance(rng, 60) ? 0 : sim_chance(rng, 50) ? 3 : 15; /* with much of it most programs hang */
    q->refusals = p->lazy || sim_chance(rng, 70) ? 0 : sim_chance(rng, 80) ? 5 : 50;
    for (int f = 0; f < 2; f++)
        q->join_set[f] = joins && sim_chance(rng, 40) ? sim_between(rng, 0, p->nsets - 1) : -1;
    for (int s = 0; s < p->nsets; s++)
        for (int k = 0; k < p->set[s].names; k++) {
            q->base[s][k] = sim_random_signature(rng, p->set[s].n);
            q->variants[s][k] = (uint8_t)(sim_chance(rng, alternation) ? sim_between(rng, 2, 4) : 1);
            for (int st = 0; st < 8; st++) {
                uint32_t u = sim_below(rng, 100);
                q->change[st][s][k] = u < 6 ? 1 : u < 10 ? 2 : 0;
                q->deviates[st][s][k] = (uint8_t)p->set[s].members[sim_below(rng, (uint32_t)p->set[s].n)];
            }
        }
}

/* ---- one rank's share ---------------------------------------------------------------------------- */

static void push(sim_program *p, sim_arena *a, int rank, int thread, int kind, int set, int handle) {
    sim_thread *t = &p->thread[rank][thread];
    t->ops = sim_grow(a, t->ops, t->n, &t->room, sizeof *t->ops);
    t->ops[t->n++] = (sim_op){(uint8_t)kind, (uint8_t)set, handle};
}

static int new_handle(sim_program *p, sim_arena *a, int rank, int set, int name, int occurrence) {
    p->handles = sim_grow(a, p->handles, p->nhandles, &p->room, sizeof *p->handles);
    sim_handle *h = &p->handles[p->nhandles];
    memset(h, 0, sizeof *h);
    h->rank = (uint8_t)rank;
    h->set = (uint8_t)set;
    h->name = (uint8_t)name;
    h->occurrence = occurrence;
    return p->nhandles++;
}

/* The signatures of a name that take turns: each has a slot of its own after a while. */
static sim_signature variant(const sim_program *p, const plan *q, int turn, int set, int name) {
    sim_signature s = q->base[set][name];
    for (int i = 0; i < turn % q->variants[set][name]; i++) {
        sim_random same = {(uint64_t)i * 1000 + (uint64_t)set * 100 + (uint64_t)name + 77};
        s = sim_deviation(&same, s, p->set[set].n);
    }
    return s;
}

/* What this rank asks for under a name in a step: the plan's signature, its own rows, its deviation. */
static sim_signature asked(sim_random *rng, const sim_program *p, const plan *q, int rank, int step, int set,
                           int name) {
    int deviates = q->change[step][set][name] == 2 && (q->deviates[step][set][name] == rank || sim_chance(rng, 10));
    int out_of_turn = deviates && q->variants[set][name] > 1 && sim_chance(rng, 70);
    sim_signature s = variant(p, q, step + out_of_turn, set, name);
    for (int st = 0; st <= step; st++)
        if (q->change[st][set][name] == 1) { /* from here on, on all ranks alike */
            sim_random same = {(uint64_t)st * 1000 + (uint64_t)set * 100 + (uint64_t)name};
            s = sim_deviation(&same, s, p->set[set].n);
        }
    if (deviates && !out_of_turn)
        s = sim_deviation(rng, s, p->set[set].n);
    for (int i = 0; i < s.ntensors && sim_own_rows(s.operation); i++)
        s.tensor[i].dims[0] = sim_between(rng, 0, 5);
    return s;
}

typedef struct share { /* one rank's share of a plan */
    sim_program *p;
    sim_arena *a;
    sim_random *rng;
    const plan *q;
    int rank, phase;
    int mine;                        /* steps of this phase in which it uses the set that is joined */
    int owner[SIM_SETS * SIM_NAMES]; /* thread that uses a name */
    int used[SIM_SETS][SIM_NAMES];   /* how often, in this phase */
    int owed[SIM_NAMES], nowed;      /* handles that are waited for after the join */
} share;

static int find_names(const share *x, int thread, int step, int *todo) {
    const sim_program *p = x->p;
    int n = 0;
    for (int s = 0; s < p->nsets; s++)
        for (int k = 0; k < p->set[s].names; k++)
            if (p->set[s].set_rank[x->rank] >= 0 && x->owner[s * SIM_NAMES + k] == thread &&
                (s != x->q->join_set[x->phase] || step < x->mine) && !is_unnamed(&p->set[s], k))
                todo[n++] = s * SIM_NAMES + k;
    return n;
}

/* The waits at the end of a step. Some are left out at the very end, and some before a join: then the results
 * must come all the same. (Not without the timer of R3: then it is the waits, R1, that must raise everything.) */
static void make_waits(share *x, int thread, int step, int *open, int n) {
    sim_program *p = x->p;
    int last = step == x->q->steps - 1 && x->phase == x->q->phases - 1;
    sim_shuffle(x->rng, open, n);
    for (int i = 0; i < n; i++) {
        int set = p->handles[open[i]].set;
        if (set == x->q->join_set[x->phase] && step == x->mine - 1 && sim_chance(x->rng, 40))
            x->owed[x->nowed++] = open[i];
        else if (!last || p->raise_window == UINT64_MAX || !sim_chance(x->rng, 20))
            push(p, x->a, x->rank, thread, SIM_WAIT, set, open[i]);
    }
}

/* Adds the calls without a name of a step, in one order on all ranks, somewhere between the others. */
static int add_calls(const share *x, int step, int *todo, int n) {
    const sim_program *p = x->p;
    int at = 0;
    for (int s = 0; s < p->nsets; s++) {
        const sim_set *set = &p->set[s];
        int calls = set->set_rank[x->rank] < 0 || (s == x->q->join_set[x->phase] && step >= x->mine) ? 0 : set->unnamed;
        for (int k = set->names - set->unnamed; calls > 0; k++, calls--) {
            at = sim_between(x->rng, at, n);
            memmove(todo + at + 1, todo + at, sizeof *todo * (size_t)(n - at));
            todo[at++] = s * SIM_NAMES + k;
            n++;
        }
    }
    return n;
}

static void make_step(share *x, int thread, int step) {
    sim_program *p = x->p;
    int todo[SIM_SETS * SIM_NAMES], open[SIM_SETS * SIM_NAMES], nopen = 0, n = find_names(x, thread, step, todo);
    if (sim_chance(x->rng, 60))
        sim_shuffle(x->rng, todo, n);
    if (thread == 0)
        n = add_calls(x, step, todo, n);
    for (int i = 0; i < n; i++) {
        int s = todo[i] / SIM_NAMES, k = todo[i] % SIM_NAMES;
        int h = new_handle(p, x->a, x->rank, s, k, x->phase * 1000 + x->used[s][k]++);
        p->handles[h].is_unnamed = (uint8_t)is_unnamed(&p->set[s], k);
        p->handles[h].signature = asked(x->rng, p, x->q, x->rank, x->phase * x->q->steps + step, s, k);
        if (sim_chance(x->rng, x->q->refusals)) {
            p->handles[h].signature = sim_refusal(p->handles[h].signature);
            push(p, x->a, x->rank, thread, SIM_REFUSE, s, h);
            continue;
        }
        int twice = !is_unnamed(&p->set[s], k) && sim_chance(x->rng, 3);
        push(p, x->a, x->rank, thread, twice ? SIM_ENQUEUE_TWICE : SIM_ENQUEUE, s, h);
        open[nopen++] = h;
        while (nopen && sim_chance(x->rng, x->q->impatience)) {
            int j = (int)sim_below(x->rng, (uint32_t)nopen), w = open[j];
            open[j] = open[--nopen];
            push(p, x->a, x->rank, thread, SIM_WAIT, p->handles[w].set, w);
        }
    }
    make_waits(x, thread, step, open, nopen);
}

static void make_join(share *x) {
    sim_program *p = x->p;
    int set = x->q->join_set[x->phase];
    if (set < 0 || p->set[set].set_rank[x->rank] < 0)
        return;
    int h = new_handle(p, x->a, x->rank, set, 0, x->phase);
    p->handles[h].is_join = 1;
    push(p, x->a, x->rank, 0, SIM_JOIN, set, h);
    while (x->nowed > 0) {
        h = x->owed[--x->nowed];
        push(p, x->a, x->rank, 0, SIM_WAIT, set, h);
    }
}

static void make_rank(sim_program *p, sim_arena *a, sim_random *rng, const plan *q, int rank) {
    share x = {.p = p, .a = a, .rng = rng, .q = q, .rank = rank};
    int threads = p->threads[rank] = sim_chance(rng, 25) ? sim_between(rng, 2, SIM_THREADS) : 1;
    for (int s = 0; s < p->nsets; s++)
        for (int k = 0; k < SIM_NAMES; k++) { /* a set that is joined belongs to the thread that joins */
            int joins = s == q->join_set[0] || s == q->join_set[1];
            x.owner[s * SIM_NAMES + k] = joins ? 0 : (int)sim_below(rng, (uint32_t)threads);
        }
    for (; x.phase < q->phases; x.phase++) {
        memset(x.used, 0, sizeof x.used);
        x.mine = q->join_set[x.phase] < 0 ? q->steps : sim_between(rng, q->steps > 2 ? q->steps - 2 : 0, q->steps);
        for (int step = 0; step < q->steps; step++)
            for (int t = 0; t < threads; t++)
                make_step(&x, t, step);
        make_join(&x);
    }
}

static void insert(sim_program *p, sim_arena *a, sim_random *rng, int rank, int kind, int set, int handle) {
    sim_thread *t = &p->thread[rank][0];
    push(p, a, rank, 0, kind, set, handle);
    int at = sim_between(rng, 0, t->n - 1);
    sim_op op = t->ops[t->n - 1];
    memmove(t->ops + at + 1, t->ops + at, sizeof op * (size_t)(t->n - 1 - at));
    t->ops[at] = op;
}

/* What ranks that leave a set ask for at last is one name of it; -1: there is no room for it. All calls are made. */
static int last_name(sim_set *s) {
    int newest = s->names - 1;
    if (!strcmp(s->name[newest], "last"))
        return newest;
    if (s->names == SIM_NAMES)
        return -1;
    s->unnamed = 0;
    strcpy(s->name[s->names], "last");
    s->name_len[s->names] = 4;
    return s->names++;
}

/* HC_REQUEST_LAST, mostly towards the end of a rank's program. What it asks for behind that is no use of the library,
 * and may end either way. */
static void make_leave(sim_program *p, sim_arena *a, sim_random *rng, int rank) {
    int set = sim_chance(rng, 70) ? 0 : sim_between(rng, 0, p->nsets - 1);
    int name = p->set[set].set_rank[rank] < 0 ? -1 : last_name(&p->set[set]);
    if (name < 0)
        return;
    int h = new_handle(p, a, rank, set, name, 0);
    p->handles[h].signature = (sim_signature){.operation = HC_BARRIER,
                                              .reduction = HC_SUM,
                                              .wire = HC_WIRE_SAME,
                                              .flags = HC_REQUEST_LAST,
                                              .root = -1,
                                              .prescale = 1.0,
                                              .postscale = 1.0};
    if (sim_chance(rng, 40))
        insert(p, a, rng, rank, SIM_ENQUEUE, set, h);
    else
        push(p, a, rank, 0, SIM_ENQUEUE, set, h);
    if (sim_chance(rng, 50))
        push(p, a, rank, 0, SIM_WAIT, set, h);
}

/* Status operations: a stop somewhere on most ranks and at the end of all, preempt, tuning, a failure. */
static void make_status(sim_program *p, sim_arena *a, sim_random *rng) {
    if (!p->lazy && sim_chance(rng, 15)) {
        int s = sim_between(rng, 0, p->nsets - 1);
        insert(p, a, rng, p->set[s].members[sim_below(rng, (uint32_t)p->set[s].n)], SIM_PREEMPT, s, -1);
    }
    for (int n = sim_chance(rng, 40) ? sim_between(rng, 1, 6) : 0; n > 0; n--) {
        int s = sim_between(rng, 0, p->nsets - 1);
        int member = sim_chance(rng, 90) ? 0 : (int)sim_below(rng, (uint32_t)p->set[s].n);
        insert(p, a, rng, p->set[s].members[member], SIM_TUNE, s, -1);
    }
    if (p->fail)
        insert(p, a, rng, p->victim >= 0 ? p->victim : sim_between(rng, 0, p->ranks - 1), SIM_FAIL, 0, -1);
    for (int r = 0; p->stop && r < p->ranks; r++) {
        if (p->leave ? sim_chance(rng, 70) : 0)
            make_leave(p, a, rng, r);
        else if (sim_chance(rng, p->leave ? 10 : r ? 50 : 90))
            insert(p, a, rng, r, SIM_STOP, 0, -1);
        for (int s = 1; s < p->nsets; s++)
            if (p->set[s].set_rank[r] >= 0 && sim_chance(rng, 10))
                insert(p, a, rng, r, SIM_STOP, s, -1);
        push(p, a, r, 0, SIM_STOP, 0, -1);
    }
}

void sim_program_make(sim_program *p, sim_arena *a, sim_random *rng, const sim_options *o) {
    plan q;
    memset(p, 0, sizeof *p);
    p->ranks = random_ranks(rng, o);
    make_sets(p, rng, o);
    make_world(p, rng, o);
    make_plan(p, rng, o, &q);
    for (int r = 0; r < p->ranks; r++)
        make_rank(p, a, rng, &q, r);
    make_status(p, a, rng);
}
