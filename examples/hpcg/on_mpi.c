/* SPDX-License-Identifier: Apache-2.0
 *
 * on_mpi.c - the ranks by bare MPI: as HPCG's ExchangeHalo() and ComputeDotProduct() have it, and with persistent
 * requests.
 */
#include "ranks.h"

#include <mpi.h>
#include <stdlib.h>

typedef struct state {
    const side *sides;
    double *given, *taken;
    MPI_Request *requests; /* all messages of a persistent exchange; otherwise the receives */
    int n;
} state;

static void *begin(const side *sides, int n, double *given, double *taken) {
    state *own = calloc(1, sizeof *own);
    MPI_Request *requests = calloc(2 * (size_t)n + 1, sizeof *requests);
    if (!own || !requests)
        MPI_Abort(MPI_COMM_WORLD, 1);
    *own = (state){.sides = sides, .n = n, .given = given, .taken = taken, .requests = requests};
    return own;
}

static void exchange(void *of) {
    state *own = of;
    for (int i = 0; i < own->n; i++) {
        const side *s = &own->sides[i];
        MPI_Irecv(own->taken + s->at, s->count, MPI_DOUBLE, s->peer, s->tag_taken, MPI_COMM_WORLD, &own->requests[i]);
    }
    for (int i = 0; i < own->n; i++) {
        const side *s = &own->sides[i];
        MPI_Send(own->given + s->at, s->count, MPI_DOUBLE, s->peer, s->tag, MPI_COMM_WORLD);
    }
    MPI_Waitall(own->n, own->requests, MPI_STATUSES_IGNORE);
}

static double sum(void *of, double mine) {
    double all;
    (void)of;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void end(void *of) {
    state *own = of;
    free(own->requests);
    free(own);
}

static void *begin_persistent(const side *sides, int n, double *given, double *taken) {
    state *own = begin(sides, n, given, taken);
    for (int i = 0; i < n; i++) {
        const side *s = &sides[i];
        MPI_Recv_init(taken + s->at, s->count, MPI_DOUBLE, s->peer, s->tag_taken, MPI_COMM_WORLD, &own->requests[i]);
        MPI_Send_init(given + s->at, s->count, MPI_DOUBLE, s->peer, s->tag, MPI_COMM_WORLD, &own->requests[n + i]);
    }
    return own;
}

static void exchange_persistent(void *of) {
    state *own = of;
    MPI_Startall(2 * own->n, own->requests);
    MPI_Waitall(2 * own->n, own->requests, MPI_STATUSES_IGNORE);
}

static void end_persistent(void *of) {
    state *own = of;
    for (int i = 0; i < 2 * own->n; i++)
        MPI_Request_free(&own->requests[i]);
    end(of);
}

const ranks on_mpi = {"MPI, as HPCG", begin, exchange, sum, end};
const ranks on_mpi_persistent = {"MPI, persistent", begin_persistent, exchange_persistent, sum, end_persistent};
