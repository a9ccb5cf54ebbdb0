/* SPDX-License-Identifier: Apache-2.0
 *
 * staged_uneven.c - allgather, alltoall, gather and scatter through the host: a chunk is `each` bytes of every stream
 * (rows.h), and itself a batch of bytes of the host's data plane.
 */
#include "cuda/staged/staged.h"

#include <stdlib.h>

#define LEAST_BYTES ((int64_t)4096) /* of a stream in a chunk, however many ranks there are */

int hc__staged_uneven_begin(hc__staged *s) {
    hc__staged_uneven *u = &s->uneven;
    u->counted = 0;
    if (!u->lines)
        u->lines = calloc(2 * HC__SLOTS * (size_t)s->size, sizeof *u->lines);
    u->rows.device = s->device;
    u->rows.host = s->host;
    u->rows.rank = s->rank;
    u->rows.size = s->size;
    u->rows.world = s->world;
    u->rows.text = s->text;
    return u->lines ? hc__rows_begin(&u->rows, s->batch) : HC_NO_MEMORY;
}

int hc__staged_uneven_count(hc__staged *s) {
    hc__staged_uneven *u = &s->uneven;
    int status = hc__rows_test(&u->rows);
    if (status != HC_DONE)
        return status;
    u->each = hc__staged_chunk_of(s, u->rows.longest * s->size) / s->size / HC_PACK_UNIT * HC_PACK_UNIT;
    u->each = u->each < LEAST_BYTES ? LEAST_BYTES : u->each;
    u->each = u->each < u->rows.longest ? u->each : u->rows.longest;
    s->chunks = u->rows.longest ? (u->rows.longest + u->each - 1) / u->each : 0;
    return HC_DONE;
}

/* Adds the copies of all outgoing or incoming streams; `lines` gets the bytes of each, *place advances past them. */
static int add_streams(hc__staged *s, int64_t chunk, hc__copies *copies, int incoming, int64_t *lines, int64_t *place) {
    const hc__rows *rows = &s->uneven.rows;
    int32_t streams = hc__rows_streams(rows, incoming);
    int status = HC_OK;
    for (int32_t r = 0; r < streams && status >= 0; r++) {
        int64_t bytes = hc__rows_length(rows, incoming, r), from = chunk * s->uneven.each;
        int64_t to = from + s->uneven.each < bytes ? from + s->uneven.each : bytes;
        lines[r] = to > from ? to - from : 0;
        if (to > from)
            status = hc__rows_copies(rows, incoming, r, from, to, *place, copies);
        *place += lines[r];
    }
    return status;
}

int hc__staged_uneven_cut(hc__staged *s, int64_t chunk, hc__staged_slot *slot) {
    int64_t *send = s->uneven.lines + 2 * (chunk % HC__SLOTS) * s->size, *receive = send + s->size;
    hc_piece *piece = hc__staged_pieces(slot, 1);
    int64_t middle = 0;
    int status = piece ? add_streams(s, chunk, &slot->down, HC__LEAVING, send, &middle) : HC_NO_MEMORY;
    int64_t end = middle;
    if (status >= 0)
        status = add_streams(s, chunk, &slot->up, HC__INCOMING, receive, &end);
    if (status >= 0)
        status = hc__stage_reserve(&slot->stage, end);
    if (status < 0)
        return status;
    *piece = (hc_piece){.in = slot->stage.host,
                        .out = slot->stage.host + middle,
                        .count = middle,
                        .row = 1,
                        .rows = middle,
                        .scale = 1.0,
                        .out_capacity = end - middle,
                        .send_rows = send,
                        .recv_rows = receive};
    slot->batch = s->uneven.rows.counts;
    slot->batch.operation = s->batch->operation;
    slot->batch.root = s->batch->root;
    slot->batch.dtype = slot->batch.wire_dtype = HC_UINT8;
    slot->batch.count = middle;
    slot->batch.pieces = piece;
    return HC_OK;
}

void hc__staged_uneven_end(hc__staged *s) {
    hc__rows_end(&s->uneven.rows);
    free(s->uneven.lines);
    s->uneven.lines = NULL;
}
