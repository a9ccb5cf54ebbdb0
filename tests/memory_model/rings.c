/* SPDX-License-Identifier: Apache-2.0
 *
 * rings.c - scenarios of byte_ring.c and cells.c, which are the paths of messages inside a node.
 *
 * A doorbell is here a number outside of the model: it orders nothing, so the rings must order all by themselves.
 */
#include "memory_model/explorer.h"
#include "memory_model/scenarios.h"
#include "transport/shm/byte_ring.h"
#include "transport/shm/cells.h"

static uint32_t doorbells[MM_THREADS];

static void ring_doorbell(int thread) {
    doorbells[thread]++;
    mm_wake(&doorbells[thread]);
}

static void sleep_since(int thread, uint32_t seen) {
    if (doorbells[thread] == seen)
        mm_sleep_on(&doorbells[thread]);
}

static void no_tear_down(void) {}

/* ---- a ring ------------------------------------------------------------------------------------------- */

enum { WORD = 4, ROOM = 8 * WORD, LENGTH = 3, MESSAGE = LENGTH * WORD, MESSAGES = 6 }; /* more than two rounds */

static hc__ring *rings[MM_THREADS];

static void write_all(hc__ring *ring, const void *message, size_t n) {
    const uint8_t *bytes = message;
    while (n > 0) {
        uint32_t seen = doorbells[0];
        size_t taken = hc__ring_write(ring, ROOM, bytes, n);
        if (taken == 0)
            sleep_since(0, seen);
        bytes += taken;
        n -= taken;
    }
}

static void read_all(hc__ring *ring, void *message, size_t n) {
    uint8_t *bytes = message;
    while (n > 0) {
        size_t taken = hc__ring_read(ring, ROOM, bytes, n);
        if (taken == 0)
            mm_wait();
        else if (hc__ring_writer_waits(ring))
            ring_doorbell(0);
        bytes += taken;
        n -= taken;
    }
}

static void set_up_ring(void) {
    rings[1] = mm_shared(sizeof *rings[1] + ROOM);
}

static void run_ring(int thread) {
    for (int m = 0; m < MESSAGES; m++) {
        int32_t words[LENGTH] = {m, m + 1, m + 2}, got[LENGTH];
        if (thread == 0) {
            write_all(rings[1], words, MESSAGE);
            continue;
        }
        read_all(rings[1], got, MESSAGE);
        for (int i = 0; i < LENGTH; i++)
            mm_check(got[i] == words[i], "a message is not what was sent");
    }
}

/* As control.c: a message is written whole when there is room for all of it. */
static void run_whole_messages(int thread) {
    for (int m = 0; m < MESSAGES; m++) {
        int32_t words[LENGTH] = {m, m + 1, m + 2}, got[LENGTH];
        if (thread == 0) {
            uint32_t seen = doorbells[0];
            while (!hc__ring_has_room(rings[1], ROOM, MESSAGE)) {
                sleep_since(0, seen);
                seen = doorbells[0];
            }
            mm_check(hc__ring_write(rings[1], ROOM, words, MESSAGE) == MESSAGE, "no room for a whole message");
            continue;
        }
        while (hc__ring_filled(rings[1]) < MESSAGE)
            mm_wait();
        read_all(rings[1], got, MESSAGE);
        for (int i = 0; i < LENGTH; i++)
            mm_check(got[i] == words[i], "a message is not what was sent");
    }
}

const mm_scenario mm_ring = {"ring", 2, set_up_ring, run_ring, no_tear_down, 2, 2};
const mm_scenario mm_whole_messages = {"messages", 2, set_up_ring, run_whole_messages, no_tear_down, 2, 2};

/* ---- cells ---------------------------------------------------------------------------------------------- */

enum { LOCAL_SIZE = 256, PIECES = 4 }; /* of a large node, so the cells are small */

static hc__cells *cells;

/* So many of all cells are free. */
static void set_up_cells(int free) {
    cells = mm_shared(hc__cells_bytes(LOCAL_SIZE));
    for (int i = 0; i < MM_THREADS; i++)
        rings[i] = mm_shared(sizeof *rings[i] + ROOM);
    while (hc__cell_take(cells, LOCAL_SIZE) >= 0) {}
    for (int i = 0; i < free; i++)
        hc__cell_give(cells, i);
}

static void set_up_one_cell(void) {
    set_up_cells(1);
}

static void set_up_two_cells(void) {
    set_up_cells(2);
}

static int take_cell(void) {
    for (;;) {
        uint32_t seen = doorbells[0];
        int cell = hc__cell_take(cells, LOCAL_SIZE);
        if (cell >= 0)
            return cell;
        sleep_since(0, seen);
    }
}

static int32_t *piece_in(int cell) {
    return (int32_t *)(void *)hc__cell_at(cells, LOCAL_SIZE, cell);
}

/* Sends pieces to each reader in turn. */
static void send_pieces(int readers) {
    for (int piece = 0; piece < PIECES; piece++)
        for (int reader = 1; reader <= readers; reader++) {
            int32_t cell = take_cell();
            *piece_in(cell) = 16 * reader + piece;
            write_all(rings[reader], &cell, sizeof cell);
        }
}

static void receive_pieces(int reader) {
    for (int piece = 0; piece < PIECES; piece++) {
        int32_t cell;
        read_all(rings[reader], &cell, sizeof cell);
        mm_check(*piece_in(cell) == 16 * reader + piece, "a cell has not the bytes of its piece");
        if (hc__cell_give(cells, cell))
            ring_doorbell(0);
    }
}

static void run_cells_of_two(int thread) {
    if (thread == 0)
        send_pieces(1);
    else
        receive_pieces(1);
}

static void run_cells_of_three(int thread) {
    if (thread == 0)
        send_pieces(2);
    else
        receive_pieces(thread);
}

const mm_scenario mm_cells_of_two = {"cells-2", 2, set_up_one_cell, run_cells_of_two, no_tear_down, 2, 2};
const mm_scenario mm_cells_of_three = {"cells-3", 3, set_up_two_cells, run_cells_of_three, no_tear_down, 2, 2};
