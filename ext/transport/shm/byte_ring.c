/* SPDX-License-Identifier: Apache-2.0
 *
 * byte_ring.c - a ring of bytes from one writer to one reader.
 *
 * Memory order: the writer stores `head` with release after the bytes, and the reader loads it with acquire before it
 * reads them. In the same way `tail` keeps the writer from bytes that the reader still reads. Each side loads its own
 * counter relaxed, because only this side writes it.
 */
#include "transport/shm/byte_ring.h"

#include <string.h>

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Returns the free bytes. If they are fewer than n, the writer sets `waiting` and then checks again; the reader makes
 * room and then checks `waiting`. So one of the two sees the other. */
static size_t find_room(hc__ring *ring, size_t room, size_t n) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (n > room - (size_t)(head - tail)) {
        atomic_store_explicit(&ring->waiting, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    }
    return room - (size_t)(head - tail);
}

int hc__ring_has_room(hc__ring *ring, size_t room, size_t n) {
    return find_room(ring, room, n) >= n;
}

size_t hc__ring_write(hc__ring *ring, size_t room, const void *bytes, size_t n) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    size_t take = least(n, find_room(ring, room, n));
    size_t at = (size_t)(head % room), first = least(take, room - at);
    memcpy(ring->data + at, bytes, first);
    memcpy(ring->data, (const uint8_t *)bytes + first, take - first);
    atomic_store_explicit(&ring->head, head + take, memory_order_release);
    return take;
}

size_t hc__ring_filled(hc__ring *ring) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    return (size_t)(atomic_load_explicit(&ring->head, memory_order_acquire) - tail);
}

size_t hc__ring_read(hc__ring *ring, size_t room, void *bytes, size_t n) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t take = least(n, hc__ring_filled(ring));
    size_t at = (size_t)(tail % room), first = least(take, room - at);
    memcpy(bytes, ring->data + at, first);
    memcpy((uint8_t *)bytes + first, ring->data, take - first);
    atomic_store_explicit(&ring->tail, tail + take, memory_order_release);
    return take;
}

int hc__ring_writer_waits(hc__ring *ring) {
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&ring->waiting, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&ring->waiting, 0, memory_order_relaxed) != 0;
}
