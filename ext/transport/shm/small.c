/* SPDX-License-Identifier: Apache-2.0
 *
 * small.c - few bytes: one hand-off instead of two.
 *
 * Every rank writes its whole input beside a flag and, when all flags are up, reduces all inputs itself. All ranks use
 * the same order, so they get equal bits, which are also those of the chunks.
 *
 * Two slots per rank are enough: t + 2 replaces t. A rank writes t + 2 after it has seen every flag t + 1, and each
 * rank raises that flag after it has read all of t.
 */
#include "transport/shm/small.h"

#include "transport/shm/control_segment.h"
#include "transport/shm/pieces.h"
#include "transport/shm/shm_state.h"

#include <string.h>

/* Above it two hand-offs are faster than every rank reading all inputs (measured: benchmarks/node_stage). */
size_t hc__small_limit(int32_t local_size) {
    size_t limit = ((size_t)32 << 10) / (size_t)local_size;
    size_t room = sizeof((hc__small *)0)->data;
    return limit < room ? limit : room;
}

static hc__small *slot(hc__shm *shm, int32_t rank) {
    return &shm->places.small[2 * rank + (int32_t)((shm->small.sequence + 1) % 2)];
}

static void send(hc__shm *shm) {
    hc__small *mine = slot(shm, shm->base.local_rank);
    atomic_store_explicit(&mine->sequence, shm->small.sequence + 1, memory_order_release);
    hc__doorbells_ring(shm->node_control, &shm->peers);
    shm->small.sent = 1;
    shm->scans.arrived = (hc__mark_scan){0, 0};
}

static int all_arrived(hc__shm *shm) {
    for (; shm->scans.arrived.next < shm->base.local_size; shm->scans.arrived.next++) {
        hc__small *theirs = slot(shm, shm->scans.arrived.next);
        if (atomic_load_explicit(&theirs->sequence, memory_order_acquire) != shm->small.sequence + 1)
            return 0;
    }
    return 1;
}

static void finish(hc__shm *shm) {
    shm->small.sequence++;
    shm->small.sent = 0;
}

int hc__small_reduce(hc__shm *shm) {
    hc__range all = {0, shm->open.batch->count};
    int moved = HC_IDLE;
    if (!shm->small.sent) {
        hc__pack(shm, all, slot(shm, shm->base.local_rank)->data);
        send(shm);
        moved = HC_MOVED;
    }
    if (!all_arrived(shm))
        return moved;
    for (int32_t q = 0; q < shm->base.local_size; q++)
        shm->operands.inputs[q] = slot(shm, q)->data;
    hc__reduce(shm, all, NULL, HC__TO_OUT);
    finish(shm);
    return HC_DONE;
}
