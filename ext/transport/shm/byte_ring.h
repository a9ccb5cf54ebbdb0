/* SPDX-License-Identifier: Apache-2.0
 *
 * byte_ring.h - a ring of bytes from one writer to one reader, in memory that both see. (Private to
 * ext/transport.)
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed ring is an empty ring. The writer owns `head`, the reader owns `tail`; both only grow. */
typedef struct hc__ring {
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint32_t waiting; /* the writer found no room and waits for its doorbell */
    _Alignas(64) uint8_t data[];
} hc__ring;

/* Both move as many bytes as fit, and return their number. `room` is the size of data. */
size_t hc__ring_write(hc__ring *, size_t room, const void *bytes, size_t n);
size_t hc__ring_read(hc__ring *, size_t room, void *bytes, size_t n);
size_t hc__ring_filled(hc__ring *);
/* For the writer: 1: n bytes fit; 0: the reader will wake it when there is more room. */
int hc__ring_has_room(hc__ring *, size_t room, size_t n);
/* For the reader, after it made room: 1: the writer waits, so wake it. */
int hc__ring_writer_waits(hc__ring *);
