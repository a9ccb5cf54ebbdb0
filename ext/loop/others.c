/* SPDX-License-Identifier: Apache-2.0
 *
 * others.c - lets a caller that waits in one World drive what else its process has under way: other Worlds without a
 * background thread, and the program's own MPI, which for most operations makes progress only in a call of MPI.
 *
 * As in MPI, an operation that was started in one World, or on a communicator, goes on while its rank waits in another
 * World. Otherwise ranks that wait for two operations in different order would wait for ever.
 *
 * The list only grows; a loop that is made takes the entry of one that was freed. So a reader needs no lock, which the
 * child of a fork could find taken.
 */
#include "loop/others.h"
#include "loop/place.h"
#include "loop/progress.h"
#include "loop/state.h"
#include "loop/waiting.h"
#include "loop/watch.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    _Atomic(hc_loop *) loop; /* NULL: the entry is free */
    atomic_int visitors;     /* threads that may use `loop` */
    struct entry *next;
} entry;

static _Atomic(entry *) newest;
static void (*_Atomic mpi_progress)(void); /* takes about a microsecond: not for waits that end soon */

int hc__others_add(hc_loop *loop) {
    for (entry *e = atomic_load(&newest); e; e = e->next) {
        hc_loop *none = NULL;
        if (!atomic_load(&e->visitors) && atomic_compare_exchange_strong(&e->loop, &none, loop))
            return HC_OK;
    }
    entry *made = calloc(1, sizeof *made);
    if (!made)
        return HC_NO_MEMORY;
    atomic_store(&made->loop, loop);
    made->next = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &made->next, made)) {}
    return HC_OK;
}

/* Visitors announce themselves and then read `loop`; this clears `loop` and then reads `visitors`. */
void hc__others_remove(hc_loop *loop) {
    for (entry *e = atomic_load(&newest); e; e = e->next) {
        hc_loop *found = loop;
        if (!atomic_compare_exchange_strong(&e->loop, &found, NULL))
            continue;
        while (atomic_load(&e->visitors))
            hc__wait_at_end();
    }
}

/* Ranks of one World may be threads of one process; each drives its own. */
static int is_same_world(const hc_loop *a, const hc_loop *b) {
    return !strcmp(a->trace.header->world, b->trace.header->world);
}

static int drive(hc_loop *loop) {
    if (atomic_load_explicit(&loop->forked, memory_order_relaxed) || !hc__may_drive(loop) || !hc__driver_try(loop))
        return 0;
    int moved = hc__progress_once(loop);
    hc__heartbeat(loop, hc__loop_now());
    return hc__driver_leave(loop) == HC__MOVES && moved;
}

void hc_loop_drive_mpi(void (*progress)(void)) {
    atomic_store(&mpi_progress, progress);
}

int hc__others_drive(const hc_loop *loop, uint64_t idle_ns) {
    void (*progress)(void) = atomic_load_explicit(&mpi_progress, memory_order_acquire);
    int moved = 0;
    if (progress && idle_ns >= HC__MS)
        progress();
    for (entry *e = loop->config.background ? NULL : atomic_load(&newest); e; e = e->next) {
        atomic_fetch_add(&e->visitors, 1);
        hc_loop *other = atomic_load(&e->loop);
        if (other && !is_same_world(loop, other))
            moved |= drive(other);
        atomic_fetch_sub(&e->visitors, 1);
    }
    return moved;
}

int hc__others_exist(const hc_loop *loop) {
    int loops = 0;
    if (atomic_load_explicit(&mpi_progress, memory_order_relaxed))
        return 1;
    for (entry *e = loop->config.background ? NULL : atomic_load(&newest); e; e = e->next)
        loops += atomic_load_explicit(&e->loop, memory_order_relaxed) != NULL;
    return loops > 1;
}
