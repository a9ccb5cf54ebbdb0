/* SPDX-License-Identifier: Apache-2.0
 *
 * cells.c - pieces of the node control segment through which large messages move.
 *
 * As in Nemesis: Buntinas, Mercier, Gropp, "Design and Evaluation of Nemesis" (CCGrid 2006).
 *
 * Memory order: the owner fills a cell before it writes the control message about it, whose ring orders the two. The
 * reader gives it back with release, which the owner's load acquires: it never writes over what is being read.
 */
#include "transport/shm/cells.h"

#define ALL_BYTES ((size_t)2 << 20) /* of a node: with all else of 64 ranks below 64 MiB, docker's default */
#define ROOM_MIN ((size_t)8 << 10)  /* a message that travels whole */
#define ROOM_MAX ((size_t)32 << 10) /* with its copy it stays in the cache of the first level, or nearly so */
#define COUNT_MIN 8

int hc__cells_count(int32_t local_size) {
    size_t count = ALL_BYTES / (size_t)local_size / ROOM_MAX;
    return count > HC__CELLS_MAX ? HC__CELLS_MAX : count < COUNT_MIN ? COUNT_MIN : (int)count;
}

size_t hc__cell_room(int32_t local_size) {
    size_t room = ALL_BYTES / (size_t)local_size / (size_t)hc__cells_count(local_size) / 128 * 128;
    return room > ROOM_MAX ? ROOM_MAX : room < ROOM_MIN ? ROOM_MIN : room;
}

size_t hc__cells_bytes(int32_t local_size) {
    return sizeof(hc__cells) + (size_t)hc__cells_count(local_size) * hc__cell_room(local_size);
}

uint8_t *hc__cell_at(hc__cells *cells, int32_t local_size, int cell) {
    return cells->data + (size_t)cell * hc__cell_room(local_size);
}

static int find_free(hc__cells *cells, int count) {
    for (int i = 0; i < count; i++)
        if (!atomic_load_explicit(&cells->taken[i], memory_order_acquire))
            return i;
    return -1;
}

/* The owner says that it waits and then looks once more; a reader marks a cell as free and then looks whether the owner
 * waits. So one of the two sees the other. */
int hc__cell_take(hc__cells *cells, int32_t local_size) {
    int count = hc__cells_count(local_size), cell = find_free(cells, count);
    if (cell < 0) {
        atomic_store_explicit(&cells->waiting, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        cell = find_free(cells, count);
    }
    if (cell >= 0)
        atomic_store_explicit(&cells->taken[cell], 1, memory_order_relaxed);
    return cell;
}

int hc__cell_give(hc__cells *cells, int cell) {
    atomic_store_explicit(&cells->taken[cell], 0, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&cells->waiting, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&cells->waiting, 0, memory_order_relaxed) != 0;
}
