/* SPDX-License-Identifier: Apache-2.0
 *
 * steady.c - pending and cached requests bound an engine's memory; past ones take none.
 *
 * Three ranks use names that never come again, some of them in disagreement, with few slots.
 */
#include "transcript/cluster.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 3, NAMES = 20, WARM = 200, STEPS = 5000 };

static cluster r;

static void enqueue(int rank, int step, int k) {
    char name[64];
    int64_t dim = step % 7 == 3 && rank == 1 ? 5 : 4;
    hc_tensor t = {.dtype = HC_FLOAT32, .ndim = 1, .dims = &dim};
    hc_request q = {.ticket = 1 + (uint64_t)k, .name = name, .wire = HC_WIRE_SAME, .root = -1, .ntensors = 1};
    q.name_len = (uint32_t)snprintf(name, sizeof name, "step.%d.%d", step, k);
    q.prescale = q.postscale = 1;
    q.tensors = &t;
    cluster_feed(&r, rank, &(hc_event){.kind = HC_EV_ENQUEUE, .peer = -1, .request = &q});
}

static uint64_t memory(void) {
    uint64_t most = 0;
    for (int i = 0; i < RANKS; i++)
        if (hc_engine_memory(r.engine[i]) > most)
            most = hc_engine_memory(r.engine[i]);
    return most;
}

int main(void) {
    hc_engine_config c = {.size = RANKS, .cache_capacity = 8, .fusion_threshold = 1 << 20, .raise_bytes = UINT64_MAX};
    int32_t members[RANKS] = {0, 1, 2};
    uint64_t warm = 0, later = 0;
    c.raise_window = 1000000;
    cluster_open(&r, &c, members, 2, 0);
    cluster_add_set(&r, &(hc_set_config){0}, members, RANKS);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < RANKS * NAMES; i++)
            enqueue(i % RANKS, step, i / RANKS);
        for (int i = 0; i < RANKS; i++)
            cluster_feed(&r, i, &(hc_event){.kind = HC_EV_FLUSH, .peer = -1});
        cluster_deliver_all(&r);
        cluster_done(&r);
        r.len = 0; /* the words of it */
        uint64_t *most = step < WARM ? &warm : &later;
        if (memory() > *most)
            *most = memory();
        if (!hc_engine_quiet(r.engine[0]))
            return 1;
    }
    printf("at most %llu bytes per rank in the first %d steps, %llu in %d\n", (unsigned long long)warm, WARM,
           (unsigned long long)later, STEPS);
    cluster_close(&r);
    return later > warm + warm / 4;
}
