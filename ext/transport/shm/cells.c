/* SPDX-License-Identifier: Apache-2.0
 *
 * cells.c - pieces of the node control segment through which large messages move.
 *
 * As in Nemesis: Buntinas, Mercier, Gropp, "Design and Evaluation of Nemesis" (CCGrid 2006).
 *
 * Memory order: the owner fills a cell before it writes the control message about it; the message's ring orders the
 * two. The reader frees the cell with release and the owner loads that with acquire, so it never overwrites bytes that
 * are being read.
 */
#include "transport/shm/cells.h"

#define ALL_BYTES ((size_t)2 << 20) /* of a node: so the segments of 64 ranks stay below 64 MiB, docker's default */
#define ROOM_MIN ((size_t)8 << 10)  /* an eager message */
#define ROOM_MAX ((size_t)32 << 10) /* the cell and its copy nearly fit the first-level cache */
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

/* The owner sets `waiting` and then checks the cells again; a reader frees a cell and then checks `waiting`. So one of
 * the two sees the other. */
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
