/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle.c - the omniscient machine: one place sees all ranks, a request is done the moment all have it.
 *
 * Without stop and failures a program is confluent: the order in which ranks advance changes neither what
 * completes nor how. So any order will do here, and the engine's runs must all end like this one.
 */
#include "oracle.h"

#include <string.h>

/* What a rank has refused waits for the others without the rank. */
static void append(const sim_program *p, sim_ideal *d, int rank, int handle) {
    const sim_handle *h = &p->handles[handle];
    int *at = &d->pending[h->set][h->name][rank];
    while (*at)
        at = &d->behind[*at - 1];
    *at = handle + 1;
}

/* Lets one thread go on as far as it can; returns whether it moved. */
static int advance(const sim_program *p, sim_ideal *d, int rank, int thread, uint8_t *waiting) {
    const sim_thread *t = &p->thread[rank][thread];
    int *pc = &d->pc[rank][thread], moved = 0;
    for (; *pc < t->n; ++*pc, moved = 1) {
        sim_op op = t->ops[*pc];
        if (op.kind == SIM_ENQUEUE || op.kind == SIM_ENQUEUE_TWICE) {
            append(p, d, rank, op.handle);
        } else if (op.kind == SIM_REFUSE) {
            append(p, d, rank, op.handle);
            d->outcome[op.handle] = HC_INVALID;
        } else if (op.kind == SIM_WAIT || op.kind == SIM_JOIN) {
            if (op.kind == SIM_JOIN && !waiting[op.handle]) {
                waiting[op.handle] = 1;
                d->joined[op.set][rank] = 1;
                return 1;
            }
            if (d->outcome[op.handle] == SIM_UNKNOWN)
                return moved;
        }
    }
    return moved;
}

/* Ends request `name` if every member has it or has joined; returns whether it did. */
static int meet(const sim_program *p, sim_ideal *d, int set, int name) {
    const sim_set *s = &p->set[set];
    const sim_signature *first = NULL;
    int status = HC_OK;
    for (int i = 0; i < s->n; i++) {
        int r = s->members[i], h = d->pending[set][name][r];
        if (!h && !d->joined[set][r])
            return 0;
        if (!h)
            continue;
        const sim_signature *sig = &p->handles[h - 1].signature;
        if (!first)
            first = sig;
        if (!sim_signature_agrees(first, sig) || sig->flags & HC_REQUEST_REFUSED)
            status = HC_MISMATCH;
    }
    if (!first)
        return 0;
    if (status == HC_OK && first->root >= 0) {
        int root = s->members[first->root];
        if (!d->pending[set][name][root])
            status = HC_ROOT_JOINED; /* it has joined without */
    }
    for (int i = 0; i < s->n; i++) {
        int *h = &d->pending[set][name][s->members[i]];
        if (!*h)
            continue;
        if (d->outcome[*h - 1] == SIM_UNKNOWN)
            d->outcome[*h - 1] = status;
        *h = d->behind[*h - 1];
    }
    return 1;
}

/* Ends the joins of a set once all members have joined and nothing is pending; returns whether it did. */
static int release(const sim_program *p, sim_ideal *d, int set, const uint8_t *waiting) {
    const sim_set *s = &p->set[set];
    for (int i = 0; i < s->n; i++) {
        if (!d->joined[set][s->members[i]])
            return 0;
        for (int k = 0; k < s->names; k++)
            if (d->pending[set][k][s->members[i]])
                return 0;
    }
    memset(d->joined[set], 0, sizeof d->joined[set]);
    for (int h = 0; h < p->nhandles; h++)
        if (p->handles[h].is_join && p->handles[h].set == set && waiting[h] && d->outcome[h] == SIM_UNKNOWN)
            d->outcome[h] = HC_OK;
    return 1;
}

void sim_ideal_run(const sim_program *p, sim_arena *a, sim_ideal *d) {
    size_t n = (size_t)p->nhandles + 1;
    memset(d, 0, sizeof *d);
    d->outcome = sim_take(a, n * sizeof *d->outcome);
    d->behind = sim_take(a, n * sizeof *d->behind);
    memset(d->behind, 0, n * sizeof *d->behind);
    uint8_t *waiting = sim_take(a, n);
    for (int h = 0; h < p->nhandles; h++)
        d->outcome[h] = SIM_UNKNOWN;
    for (int moved = 1; moved;) {
        moved = 0;
        for (int r = 0; r < p->ranks; r++)
            for (int t = 0; t < p->threads[r]; t++)
                moved |= advance(p, d, r, t, waiting);
        for (int s = 0; s < p->nsets; s++) {
            for (int k = 0; k < p->set[s].names; k++)
                moved |= meet(p, d, s, k);
            moved |= release(p, d, s, waiting);
        }
    }
}
