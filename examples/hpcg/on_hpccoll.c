/* SPDX-License-Identifier: Apache-2.0
 *
 * on_hpccoll.c - the ranks by hpccoll: the exchange is one plan of all messages, the sum another.
 */
#include "ranks.h"

#include <hpccoll.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct state {
    hpccoll_world *world;
    hpccoll_plan *exchange, *total;
    double sum;
} state;

static void check(int status) {
    if (status >= 0)
        return;
    fprintf(stderr, "hpcg: %s\n", hpccoll_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *begin(const side *sides, int n, double *given, double *taken) {
    state *own = calloc(1, sizeof *own);
    hpccoll_plan **messages = calloc(2 * (size_t)n + 1, sizeof(hpccoll_plan *));
    if (!own || !messages)
        MPI_Abort(MPI_COMM_WORLD, 1);
    check(hpccoll_world_from_mpi(MPI_COMM_WORLD, "verbose=0", &own->world));
    for (int i = 0; i < n; i++) {
        const side *s = &sides[i];
        check(hpccoll_recv_init(taken + s->at, s->count, HPCCOLL_FLOAT64, s->peer, s->tag_taken, NULL, NULL, own->world,
                                &messages[i]));
        check(
            hpccoll_send_init(given + s->at, s->count, HPCCOLL_FLOAT64, s->peer, s->tag, own->world, &messages[n + i]));
    }
    if (n)
        check(hpccoll_plan_list(2 * n, messages, &own->exchange));
    free(messages);
    check(hpccoll_allreduce_init(HPCCOLL_IN_PLACE, &own->sum, 1, HPCCOLL_FLOAT64, HPCCOLL_SUM, NULL, own->world,
                                 &own->total));
    return own;
}

static void exchange(void *of) {
    state *own = of;
    if (!own->exchange)
        return;
    check(hpccoll_start(own->exchange));
    check(hpccoll_plan_wait(own->exchange));
}

static double sum(void *of, double mine) {
    state *own = of;
    own->sum = mine;
    check(hpccoll_start(own->total));
    check(hpccoll_plan_wait(own->total));
    return own->sum;
}

static void end(void *of) {
    state *own = of;
    check(hpccoll_plan_free(&own->exchange));
    check(hpccoll_plan_free(&own->total));
    check(hpccoll_world_free(&own->world));
    free(own);
}

const ranks on_hpccoll = {"hpccoll", begin, exchange, sum, end};
