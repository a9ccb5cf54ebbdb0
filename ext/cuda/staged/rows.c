/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - exchanges the counts of rows; then every rank knows its streams, the longest stream, and the refused
 * tensors.
 */
#include "cuda/staged/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1: a rank sends one stream; every receiver gets all of it. */
static int is_gather(const hc__rows *w) {
    return !hc_operation_has(w->batch->operation, HC_OP_COUNTS);
}

static int gives(const hc__rows *w) {
    return hc_operation_gives(w->batch->operation, w->batch->root, w->rank);
}

static int gets(const hc__rows *w) {
    return hc_operation_gets(w->batch->operation, w->batch->root, w->rank);
}

/* 1: a scatter; all rows come from the root. */
static int root_gives(const hc__rows *w) {
    return hc_operation_has(w->batch->operation, HC_OP_ROOTED) && !is_gather(w);
}

static int64_t row_bytes(const hc__rows *w, int32_t i) {
    return hc_piece_row_bytes(&w->batch->pieces[i], w->batch->dtype);
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

int hc__place_on_device(hc_device *device, const hc_batch *batch, hc_piece *piece, int64_t rows, int *late,
                        char *text) {
    int64_t bytes = rows * hc_piece_row_bytes(piece, batch->dtype);
    piece->out_rows = rows;
    if (piece->out && piece->out_capacity != bytes)
        *late = HC_RESULT_SIZE;
    if (piece->out || piece->drop)
        return HC_OK;
    piece->out_owned = 1;
    int status = hc__device_take(device, HC__ON_DEVICE, (size_t)bytes, &piece->out);
    if (status < 0)
        snprintf(text, HC__ROWS_TEXT, "device %d (%s): no memory for a result of %lld bytes", device->number,
                 device->pci, (long long)bytes);
    return status;
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

int32_t hc__rows_streams(const hc__rows *w, int incoming) {
    return is_gather(w) && !incoming ? 1 : w->size;
}

int64_t hc__rows_bytes(const hc__rows *w, int incoming, int32_t stream, int32_t i) {
    return (incoming ? w->received : w->sent)[(int64_t)stream * w->batch->npieces + i] * row_bytes(w, i);
}

char *hc__rows_at(const hc__rows *w, int incoming, int32_t stream, int32_t i) {
    const hc_piece *piece = &w->batch->pieces[i];
    int64_t line = (incoming ? w->size : 0) + stream;
    int fits = piece->out_owned || piece->out_capacity == piece->out_rows * row_bytes(w, i);
    char *tensor = !incoming ? (char *)(uintptr_t)piece->in : fits ? piece->out : NULL;
    return tensor ? tensor + w->before[line * w->batch->npieces + i] * row_bytes(w, i) : NULL;
}

int64_t hc__rows_length(const hc__rows *w, int incoming, int32_t stream) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < w->batch->npieces; i++)
        bytes += hc__aligned(hc__rows_bytes(w, incoming, stream, i));
    return bytes;
}

int hc__rows_copies(const hc__rows *w, int incoming, int32_t stream, int64_t from, int64_t to, int64_t place,
                    hc__copies *copies) {
    int64_t begin = 0;
    int status = HC_OK;
    for (int32_t i = 0; i < w->batch->npieces && begin < to && status >= 0; i++) {
        int64_t bytes = hc__rows_bytes(w, incoming, stream, i), end = begin + bytes;
        int64_t first = from > begin ? from : begin, last = to < end ? to : end;
        const char *at = hc__rows_at(w, incoming, stream, i);
        if (first < last && at)
            status = hc__copies_add(copies, at + first - begin, last - first, place + first - from);
        begin += hc__aligned(bytes);
    }
    return status;
}

/* ---- the counts ------------------------------------------------------------------------------------------------- */

/* Length of a line, for n tensors: n counts of rows, the rank's longest stream, n rows of the `out`s (-1: none). */
static int64_t line_length(const hc__rows *w) {
    return 2 * (int64_t)w->batch->npieces + 1;
}

/* In a scatter the root sends a line per rank; each other rank sends one. */
static int32_t own_lines(const hc__rows *w) {
    return gives(w) ? hc__rows_streams(w, HC__LEAVING) : 1;
}

static int32_t gathered_lines(const hc__rows *w) {
    return root_gives(w) ? 2 * w->size - 1 : w->size;
}

/* The first line of rank r. */
static const int64_t *lines_of(const hc__rows *w, int32_t r) {
    int32_t before = root_gives(w) && r > w->batch->root ? w->size - 1 : 0;
    return w->gathered + (before + r) * line_length(w);
}

static int64_t room_of(const hc__rows *w, int32_t r, int32_t i) {
    return lines_of(w, r)[w->batch->npieces + 1 + i];
}

/* Rows of my tensor that rank r gets. */
static int64_t rows_for(const hc__rows *w, const hc_piece *piece, int32_t r) {
    if (!piece->in || !gives(w))
        return 0;
    if (piece->send_rows)
        return piece->send_rows[r];
    return root_gives(w) ? hc_share(piece->rows, w->size, r) : 0;
}

static void note_rows(hc__rows *w) {
    const hc_batch *b = w->batch;
    for (int32_t i = 0; i < b->npieces; i++) {
        const hc_piece *piece = &b->pieces[i];
        if (is_gather(w))
            w->sent[i] = piece->in ? piece->rows : 0;
        for (int32_t r = 0; !is_gather(w) && r < w->size; r++)
            w->sent[(int64_t)r * b->npieces + i] = rows_for(w, piece, r);
    }
}

static void fill_own_lines(hc__rows *w) {
    int32_t n = w->batch->npieces, streams = hc__rows_streams(w, HC__LEAVING);
    int64_t longest = 0;
    for (int32_t r = 0; r < streams; r++) {
        int64_t bytes = hc__rows_length(w, HC__LEAVING, r);
        longest = bytes > longest ? bytes : longest;
    }
    for (int32_t r = 0; r < own_lines(w); r++) {
        int64_t *line = w->own + r * line_length(w);
        memcpy(line, w->sent + (int64_t)r * n, (size_t)n * sizeof *line);
        line[n] = longest;
        for (int32_t i = 0; i < n; i++) {
            const hc_piece *piece = &w->batch->pieces[i];
            int64_t bytes = row_bytes(w, i);
            line[n + 1 + i] = !piece->out ? -1 : bytes ? piece->out_capacity / bytes : piece->out_rows;
        }
    }
}

static int make_arrays(hc__rows *w) {
    size_t n = (size_t)w->batch->npieces, p = (size_t)w->size, lines = p * (2 * n + 1);
    w->own = calloc(lines, sizeof *w->own);
    w->gathered = calloc(2 * lines, sizeof *w->gathered);
    w->needs = calloc(p * n + 1, sizeof *w->needs);
    w->sent = calloc(p * n + 1, sizeof *w->sent);
    w->received = calloc(p * n + 1, sizeof *w->received);
    w->before = calloc(2 * p * n + 1, sizeof *w->before);
    w->ones = calloc(2 * p, sizeof *w->ones);
    return w->own && w->gathered && w->needs && w->sent && w->received && w->before && w->ones ? HC_OK : HC_NO_MEMORY;
}

/* Starts to exchange lines of `length` numbers through the host. */
static int exchange(hc__rows *w, int operation, const int64_t *own, int32_t lines, int64_t *gathered, int32_t all,
                    int64_t length) {
    for (int32_t r = 0; r < w->size; r++)
        w->ones[r] = 1;
    w->piece = (hc_piece){.in = own,
                          .out = gathered,
                          .count = lines * length,
                          .row = length,
                          .rows = lines,
                          .scale = 1.0,
                          .out_rows = all,
                          .out_capacity = all * length * 8,
                          .send_rows = w->ones,
                          .recv_rows = w->ones + w->size};
    w->counts = (hc_batch){.operation = (uint8_t)operation,
                           .reduction = HC_SUM,
                           .dtype = HC_INT64,
                           .wire_dtype = HC_INT64,
                           .root = -1,
                           .divisor = 1,
                           .count = w->piece.count,
                           .npieces = 1,
                           .pieces = &w->piece};
    return w->host->ops->start(w->host, &w->counts);
}

int hc__rows_begin(hc__rows *w, hc_batch *batch) {
    hc__rows_end(w);
    w->batch = batch;
    w->asks = 0;
    if (make_arrays(w) < 0)
        return HC_NO_MEMORY;
    note_rows(w);
    fill_own_lines(w);
    int operation = batch->operation == HC_ALLTOALL ? HC_ALLTOALL : HC_ALLGATHER;
    return exchange(w, operation, w->own, own_lines(w), w->gathered, gathered_lines(w), line_length(w));
}

/* Sets, for each tensor and rank, the row at which the part for or from that rank begins. */
static void find_places(hc__rows *w, const int64_t *rows, int64_t *before, int32_t streams) {
    int32_t n = w->batch->npieces;
    for (int32_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int32_t r = 0; r < streams; r++) {
            before[(int64_t)r * n + i] = at;
            at += rows[(int64_t)r * n + i];
        }
    }
}

/* Reads a line of each rank; in a scatter only the root's line for this rank has rows. */
static void read_counts(hc__rows *w) {
    int32_t n = w->batch->npieces;
    w->longest = 0;
    for (int32_t r = 0; r < w->size; r++) {
        const int64_t *line = lines_of(w, r);
        w->longest = line[n] > w->longest ? line[n] : w->longest;
        if (root_gives(w) && r == w->batch->root)
            line += w->rank * line_length(w);
        if (gets(w))
            memcpy(w->received + (int64_t)r * n, line, (size_t)n * sizeof *line);
    }
}

static int64_t rows_received(const hc__rows *w, int32_t i) {
    int64_t rows = 0;
    for (int32_t r = 0; r < w->size; r++)
        rows += w->received[(int64_t)r * w->batch->npieces + i];
    return rows;
}

/* Rows of tensor i that rank r gets; in an allgather and a gather, that any receiver gets. */
static int64_t rows_towards(const hc__rows *w, int32_t r, int32_t i) {
    int64_t rows = 0;
    if (root_gives(w))
        return lines_of(w, w->batch->root)[r * line_length(w) + i];
    for (int32_t q = 0; q < w->size; q++)
        rows += lines_of(w, q)[i];
    return rows;
}

/* Computes the rows of all results from the counts; not possible for an alltoall. */
static void find_needs(hc__rows *w) {
    int32_t n = w->batch->npieces;
    for (int32_t i = 0; i < n; i++)
        for (int32_t r = 0; r < w->size; r++)
            w->needs[(int64_t)r * n + i] = r > 0 && is_gather(w) ? w->needs[i] : rows_towards(w, r, i);
}

static int must_ask(const hc__rows *w) {
    int brought = 0;
    for (int32_t i = 0; i < w->batch->npieces; i++)
        for (int32_t r = 0; r < w->size; r++)
            brought |= room_of(w, r, i) >= 0;
    return brought && !is_gather(w) && !root_gives(w);
}

/* For an alltoall with an `out` on any rank: only the owner knows the rows of a result, so the ranks exchange them. */
static int ask(hc__rows *w) {
    w->asks = 1;
    for (int32_t i = 0; i < w->batch->npieces; i++)
        w->own[i] = rows_received(w, i);
    return exchange(w, HC_ALLGATHER, w->own, 1, w->needs, w->size, w->batch->npieces);
}

/* A tensor whose `out` has the wrong size on one rank is refused on all, and none of its rows move. */
static void refuse(hc__rows *w) {
    int32_t n = w->batch->npieces;
    for (int32_t i = 0; i < n; i++) {
        hc_piece *piece = &w->batch->pieces[i];
        for (int32_t r = 0; r < w->size && piece->status == HC_OK; r++) {
            int64_t has = room_of(w, r, i), needs = w->needs[(int64_t)r * n + i];
            if (has >= 0 && has != needs)
                hc_piece_refuse_rows(piece, r, w->world[r], has, needs);
        }
        for (int32_t r = 0; r < w->size && piece->status != HC_OK; r++)
            w->sent[(int64_t)r * n + i] = w->received[(int64_t)r * n + i] = 0;
    }
}

static int place_results(hc__rows *w) {
    int32_t n = w->batch->npieces;
    int status = HC_OK, late;
    for (int32_t i = 0; i < n && status >= 0; i++) {
        hc_piece *piece = &w->batch->pieces[i];
        piece->out_rows = 0;
        if (!gets(w) || piece->status != HC_OK)
            continue;
        for (int32_t r = 0; piece->recv_rows && r < w->size; r++)
            piece->recv_rows[r] = w->received[(int64_t)r * n + i];
        status = hc__place_on_device(w->device, w->batch, piece, rows_received(w, i), &late, w->text);
    }
    return status;
}

int hc__rows_test(hc__rows *w) {
    int32_t n = w->batch->npieces;
    int status = w->host->ops->test(w->host);
    if (status != HC_DONE)
        return status;
    if (!w->asks) {
        read_counts(w);
        if (must_ask(w)) {
            status = ask(w);
            return status < 0 ? status : HC_MOVED;
        }
        find_needs(w);
    }
    refuse(w);
    find_places(w, w->sent, w->before, hc__rows_streams(w, HC__LEAVING));
    find_places(w, w->received, w->before + (int64_t)w->size * n, w->size);
    status = place_results(w);
    return status < 0 ? status : HC_DONE;
}

void hc__rows_end(hc__rows *w) {
    int64_t **const arrays[] = {&w->own, &w->gathered, &w->needs, &w->sent, &w->received, &w->before, &w->ones};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        free(*arrays[i]);
        *arrays[i] = NULL;
    }
}
