/* SPDX-License-Identifier: Apache-2.0
 *
 * cells.h - pieces of the node control segment through which large messages move. (Private to ext/transport.)
 *
 * Each local rank owns some cells. It takes one, fills it and sends its number in a control message; the receiver reads
 * the cell and gives it back. So the number of cells limits how many pieces a sender is ahead of its receivers.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HC__CELLS_MAX 16

/* Zeroed cells are free cells. */
typedef struct hc__cells {
    _Alignas(128) _Atomic uint32_t waiting; /* the owner found no free cell and waits for its doorbell */
    _Atomic uint32_t taken[HC__CELLS_MAX];
    _Alignas(128) uint8_t data[];
} hc__cells;

size_t hc__cells_bytes(int32_t local_size); /* of the cells of one rank */
int hc__cells_count(int32_t local_size);
size_t hc__cell_room(int32_t local_size);
uint8_t *hc__cell_at(hc__cells *, int32_t local_size, int cell);
int hc__cell_take(hc__cells *, int32_t local_size); /* for the owner: the number of a free cell, or -1 */
int hc__cell_give(hc__cells *, int cell);           /* for the reader: 1: the owner waits, so wake it */
