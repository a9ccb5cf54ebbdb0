/* SPDX-License-Identifier: Apache-2.0
 *
 * staged_uneven.c - allgather and alltoall by way of the host: only its owner knows how long a tensor is.
 *
 * The tensors that go from one rank to another are one stream of bytes, each at a multiple of 16; an allgather has one
 * stream for all. The counts cross first, as a batch of the host's data plane. Then every rank knows its streams, and the
 * longest of all, and a chunk is `each` bytes of every stream: again a batch of the host's data plane, of bytes.
 */
#include "staged.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES ((int64_t)4096) /* of a stream in a chunk, however many ranks there are */

static int is_gather(const hc__staged *s) {
    return s->batch->operation == HC_ALLGATHER;
}

static int32_t streams_out(const hc__staged *s) {
    return is_gather(s) ? 1 : s->size;
}

static int64_t row_bytes(const hc__staged *s, int32_t i) {
    return s->batch->pieces[i].row * (int64_t)hc_dtype_size(s->batch->dtype);
}

/* Bytes of a stream of which each tensor has so many rows. */
static int64_t stream_bytes(const hc__staged *s, const int64_t *rows) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->batch->npieces; i++)
        bytes += hc__aligned(rows[i] * row_bytes(s, i));
    return bytes;
}

/* ---- the counts ---------------------------------------------------------------------------------------------------- */

static void note_rows(hc__staged *s) {
    const hc_batch *b = s->batch;
    for (int32_t i = 0; i < b->npieces; i++) {
        const hc_piece *piece = &b->pieces[i];
        if (is_gather(s))
            s->uneven.sent[i] = piece->in ? piece->rows : 0;
        for (int32_t r = 0; !is_gather(s) && r < s->size; r++)
            s->uneven.sent[(int64_t)r * b->npieces + i] = piece->in && piece->send_rows ? piece->send_rows[r]
                                                                                        : 0;
    }
}

/* A line for each stream: the rows of each tensor, and the longest of my streams. */
static void tell(hc__staged *s) {
    hc__uneven *u = &s->uneven;
    int32_t n = s->batch->npieces;
    int64_t longest = 0;
    for (int32_t r = 0; r < streams_out(s); r++) {
        int64_t bytes = stream_bytes(s, u->sent + (int64_t)r * n);
        longest = bytes > longest ? bytes : longest;
    }
    for (int32_t r = 0; r < streams_out(s); r++) {
        memcpy(u->own + (int64_t)r * (n + 1), u->sent + (int64_t)r * n, (size_t)n * sizeof *u->own);
        u->own[(int64_t)r * (n + 1) + n] = longest;
    }
}

static int make_arrays(hc__staged *s) {
    hc__uneven *u = &s->uneven;
    size_t n = (size_t)s->batch->npieces, p = (size_t)s->size;
    u->own = calloc(p * (n + 1), sizeof *u->own);
    u->told = calloc(p * (n + 1), sizeof *u->told);
    u->sent = calloc(p * n + 1, sizeof *u->sent);
    u->came = calloc(p * n + 1, sizeof *u->came);
    u->before = calloc(2 * p * n + 1, sizeof *u->before);
    u->lines = calloc((2 * HC__SLOTS + 2) * p, sizeof *u->lines);
    return u->own && u->told && u->sent && u->came && u->before && u->lines ? HC_OK : HC_NO_MEMORY;
}

int hc__uneven_begin(hc__staged *s) {
    hc__uneven *u = &s->uneven;
    int32_t n = s->batch->npieces;
    hc__uneven_end(s);
    if (make_arrays(s) < 0)
        return HC_NO_MEMORY;
    note_rows(s);
    tell(s);
    for (int32_t r = 0; r < s->size; r++)
        u->lines[r] = 1;
    u->piece = (hc_piece){.in = u->own,
                          .out = u->told,
                          .count = (int64_t)streams_out(s) * (n + 1),
                          .row = n + 1,
                          .rows = streams_out(s),
                          .scale = 1.0,
                          .out_capacity = (int64_t)s->size * (n + 1) * 8,
                          .send_rows = u->lines,
                          .recv_rows = u->lines + s->size};
    u->counts = (hc_batch){.operation = s->batch->operation,
                           .reduction = HC_SUM,
                           .dtype = HC_INT64,
                           .wire_dtype = HC_INT64,
                           .root = -1,
                           .divisor = 1,
                           .count = u->piece.count,
                           .npieces = 1,
                           .pieces = &u->piece};
    return s->host->ops->start(s->host, &u->counts);
}

/* Of each tensor: where, in rows, what goes to or comes from a rank begins. */
static void find_places(hc__staged *s, const int64_t *rows, int64_t *before, int32_t streams) {
    int32_t n = s->batch->npieces;
    for (int32_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int32_t r = 0; r < streams; r++) {
            before[(int64_t)r * n + i] = at;
            at += rows[(int64_t)r * n + i];
        }
    }
}

static int place_results(hc__staged *s) {
    int32_t n = s->batch->npieces;
    for (int32_t i = 0; i < n; i++) {
        hc_piece *piece = &s->batch->pieces[i];
        int64_t rows = 0;
        for (int32_t r = 0; r < s->size; r++) {
            int64_t here = s->uneven.came[(int64_t)r * n + i];
            if (piece->recv_rows)
                piece->recv_rows[r] = here;
            rows += here;
        }
        int status = hc__staged_place(s, piece, rows);
        if (status < 0)
            return status;
    }
    return HC_OK;
}

int hc__uneven_count(hc__staged *s) {
    hc__uneven *u = &s->uneven;
    int32_t n = s->batch->npieces;
    int64_t longest = 0;
    int status = s->host->ops->test(s->host);
    if (status != HC_DONE)
        return status;
    for (int32_t r = 0; r < s->size; r++) {
        const int64_t *line = u->told + (int64_t)r * (n + 1);
        memcpy(u->came + (int64_t)r * n, line, (size_t)n * sizeof *line);
        longest = line[n] > longest ? line[n] : longest;
    }
    find_places(s, u->sent, u->before, streams_out(s));
    find_places(s, u->came, u->before + (int64_t)s->size * n, s->size);
    u->each = s->chunk_bytes / s->size / HC_PACK_UNIT * HC_PACK_UNIT;
    u->each = u->each < LEAST_BYTES ? LEAST_BYTES : u->each;
    u->each = u->each < longest ? u->each : longest;
    s->chunks = longest ? (longest + u->each - 1) / u->each : 0;
    status = place_results(s);
    return status < 0 ? status : HC_DONE;
}

/* ---- the chunks ---------------------------------------------------------------------------------------------------- */

/* A range of a stream at `place` of the stage. */
typedef struct range {
    int64_t from, to, place;
} range;

static range range_of(const hc__staged *s, int64_t chunk, const int64_t *rows, int64_t place) {
    int64_t bytes = stream_bytes(s, rows), from = chunk * s->uneven.each, to = from + s->uneven.each;
    to = to < bytes ? to : bytes;
    return (range){from, to > from ? to : from, place};
}

/* Where a tensor's rows begin that a stream has: NULL where there is no such tensor, or it has another size. */
static char *tensor_at(const hc__staged *s, int32_t i, int incoming) {
    const hc_piece *piece = &s->batch->pieces[i];
    if (!incoming)
        return (char *)(uintptr_t)piece->in;
    return piece->out_owned || piece->out_capacity == piece->out_rows * row_bytes(s, i) ? piece->out : NULL;
}

/* The copies between a range of a stream and the tensors; `before`: rows of each tensor before this stream's. */
static int add_range(const hc__staged *s, hc__copies *copies, range at, const int64_t *rows,
                     const int64_t *before, int incoming) {
    int64_t begin = 0;
    for (int32_t i = 0; i < s->batch->npieces && begin < at.to; i++) {
        int64_t bytes = rows[i] * row_bytes(s, i), end = begin + bytes;
        int64_t from = at.from > begin ? at.from : begin, to = at.to < end ? at.to : end;
        char *tensor = tensor_at(s, i, incoming);
        if (from < to && tensor) {
            int status = hc__copies_add(copies, tensor + before[i] * row_bytes(s, i) + from - begin,
                                        to - from, at.place + from - at.from);
            if (status < 0)
                return status;
        }
        begin += hc__aligned(bytes);
    }
    return HC_OK;
}

/* All streams out, or in; *lines: the bytes of each; *place moves on behind them. */
static int add_streams(hc__staged *s, int64_t chunk, hc__copies *copies, int incoming, int64_t *lines,
                       int64_t *place) {
    const hc__uneven *u = &s->uneven;
    int64_t n = s->batch->npieces;
    int32_t streams = incoming ? s->size : streams_out(s);
    int status = HC_OK;
    for (int32_t r = 0; r < streams && status >= 0; r++) {
        const int64_t *rows = (incoming ? u->came : u->sent) + r * n;
        const int64_t *before = u->before + (incoming ? s->size * n : 0) + r * n;
        range at = range_of(s, chunk, rows, *place);
        status = add_range(s, copies, at, rows, before, incoming);
        lines[r] = at.to - at.from;
        *place += lines[r];
    }
    return status;
}

int hc__uneven_cut(hc__staged *s, int64_t chunk, hc__slot *slot) {
    int64_t *send = s->uneven.lines + (2 + 2 * (chunk % HC__SLOTS)) * s->size, *receive = send + s->size;
    hc_piece *piece = hc__slot_pieces(slot, 1);
    int64_t middle = 0;
    int status = piece ? add_streams(s, chunk, &slot->down, 0, send, &middle) : HC_NO_MEMORY;
    int64_t end = middle;
    if (status >= 0)
        status = add_streams(s, chunk, &slot->up, 1, receive, &end);
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
    slot->batch = s->uneven.counts;
    slot->batch.dtype = slot->batch.wire_dtype = HC_UINT8;
    slot->batch.count = middle;
    slot->batch.pieces = piece;
    return HC_OK;
}

void hc__uneven_end(hc__staged *s) {
    hc__uneven *u = &s->uneven;
    free(u->own);
    free(u->told);
    free(u->sent);
    free(u->came);
    free(u->before);
    free(u->lines);
    *u = (hc__uneven){0};
}
