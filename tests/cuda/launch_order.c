/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order.c - sets with common ranks on devices that run one kernel after another: does every batch end, in any
 * interleaving?
 *
 *     launch_order SEEDS [without]
 * A device runs kernels in the order in which they were launched, each until all ranks of its set run it. `without` the
 * order: somebody must get stuck, or the model is worth nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cuda/nccl/launch_order.h"

enum { RANKS = 6, SETS = 7, BATCHES = 15, ALL = SETS * BATCHES };

typedef struct member { /* of a set, on a rank */
    hc_data host;       /* first */
    struct set *set;
    hc__launch_slot launch;
    int rank, batch, asked;
} member;

typedef struct set {
    int size, started[BATCHES];
    int64_t largest[BATCHES];
    member members[RANKS];
} set;

typedef struct device {
    int queue[ALL], launched, done; /* set * BATCHES + batch */
} device;

static set sets[SETS];
static device devices[RANKS];
static hc_launch_order turns[RANKS];
static int nranks, nsets, without;
static uint64_t state;

static unsigned below(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % n;
}

/* ---- the data plane of a set's host: the largest number, whenever all have come --------------------------------- */

static int start(hc_data *data, hc_batch *batch) {
    member *m = (member *)data;
    int64_t number = *(const int64_t *)batch->pieces[0].in;
    CHECK(batch->operation == HC_ALLREDUCE && batch->reduction == HC_MAX && batch->count == 1);
    if (m->set->largest[m->batch] < number)
        m->set->largest[m->batch] = number;
    m->set->started[m->batch]++;
    return HC_OK;
}

static int test(hc_data *data) {
    member *m = (member *)data;
    if (m->set->started[m->batch] < m->set->size || below(3))
        return HC_IDLE;
    *(int64_t *)m->launch.piece.out = m->set->largest[m->batch];
    return HC_DONE;
}

static const struct hc_data_ops ops = {.start = start, .test = test};

/* ---- ranks and devices ------------------------------------------------------------------------------------------ */

static void launch(member *m) {
    device *d = &devices[m->rank];
    d->queue[d->launched++] = (int)(m->set - sets) * BATCHES + m->batch;
    if (!without)
        hc__launch_slot_end(&m->launch, NULL);
    m->batch++;
    m->asked = 0;
}

static void step(member *m) {
    if (m->batch == BATCHES)
        return;
    if (without) {
        launch(m);
        return;
    }
    if (!m->asked)
        CHECK(hc__launch_slot_ask(&m->launch) == HC_OK);
    m->asked = 1;
    if (hc__launch_slot_test(&m->launch) == HC_DONE && below(2))
        launch(m);
}

static int runs(const device *d, int kernel) {
    return d->done < d->launched && d->queue[d->done] == kernel;
}

/* A kernel ends when all ranks of its set run it. */
static int run(set *s) {
    for (int batch = 0; batch < BATCHES; batch++) {
        int kernel = (int)(s - sets) * BATCHES + batch, there = 0;
        for (int i = 0; i < s->size; i++)
            there += runs(&devices[s->members[i].rank], kernel);
        for (int i = 0; i < s->size && there == s->size; i++)
            devices[s->members[i].rank].done++;
        if (there == s->size)
            return 1;
    }
    return 0;
}

static void begin(uint64_t seed) {
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    nranks = 2 + (int)below(RANKS - 1);
    nsets = 2 + (int)below(SETS - 1);
    memset(sets, 0, sizeof sets);
    memset(devices, 0, sizeof devices);
    memset(turns, 0, sizeof turns);
    for (int s = 0; s < nsets; s++)
        for (int r = 0; r < nranks; r++)
            if (r + 2 >= nranks + sets[s].size || below(2)) { /* two ranks at least */
                member *m = &sets[s].members[sets[s].size++];
                *m = (member){.host.ops = &ops, .set = &sets[s], .rank = r};
                m->launch = (hc__launch_slot){.order = &turns[r], .host = &m->host, .set = (uint32_t)s};
            }
}

/* Kernels that did not end. */
static int play(void) {
    int left = nsets * BATCHES;
    for (int idle = 0; left && idle < 20000; idle++) {
        set *s = &sets[below((unsigned)nsets)];
        step(&s->members[below((unsigned)s->size)]);
        while (left && run(&sets[below((unsigned)nsets)])) {
            left--;
            idle = 0;
        }
    }
    return left;
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    without = argc > 2 && strcmp(argv[2], "without") == 0;
    int stuck = 0, seeds = atoi(argv[1]);
    for (int seed = 1; seed <= seeds; seed++) {
        begin((uint64_t)seed);
        stuck += play() > 0;
    }
    printf("%d of %d stuck\n", stuck, seeds);
    return 0;
}
