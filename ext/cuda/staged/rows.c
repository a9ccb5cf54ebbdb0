/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - the counts of rows cross; then every rank knows its streams, and the longest of all.
 */
#include "cuda/staged/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All that leaves a rank is one stream: whoever gets any of it gets all. */
static int is_gather(const hc__rows *w) {
    return !hc_operation_has(w->batch->operation, HC_OP_COUNTS);
}

static int is_root(const hc__rows *w) {
    return w->rank == w->batch->root;
}

/* A gather's rank without a result. */
static int gets_nothing(const hc__rows *w) {
    return hc_operation_has(w->batch->operation, HC_OP_TO_ROOT) && !is_root(w);
}

/* A scatter: all rows come from the root. */
static int root_gives(const hc__rows *w) {
    return hc_operation_has(w->batch->operation, HC_OP_ROOTED) && !is_gather(w);
}

static int64_t row_bytes(const hc__rows *w, int32_t i) {
    return w->batch->pieces[i].row * (int64_t)hc_dtype_size(w->batch->dtype);
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

int hc__place_on_device(hc_device *device, const hc_batch *batch, hc_piece *piece, int64_t rows, int *late,
                        char *text) {
    int64_t bytes = rows * piece->row * (int64_t)hc_dtype_size(batch->dtype);
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
    return (incoming ? w->came : w->sent)[(int64_t)stream * w->batch->npieces + i] * row_bytes(w, i);
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

/* Rows of a tensor that rank r gets of mine. */
static int64_t rows_for(const hc__rows *w, const hc_piece *piece, int32_t r) {
    if (!piece->in || (root_gives(w) && !is_root(w)))
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

/* A line for each stream: the rows of each tensor, and the longest of my streams. */
static void tell(hc__rows *w) {
    int32_t n = w->batch->npieces, streams = hc__rows_streams(w, HC__LEAVING);
    int64_t longest = 0;
    for (int32_t r = 0; r < streams; r++) {
        int64_t bytes = hc__rows_length(w, HC__LEAVING, r);
        longest = bytes > longest ? bytes : longest;
    }
    for (int32_t r = 0; r < streams; r++) {
        memcpy(w->own + (int64_t)r * (n + 1), w->sent + (int64_t)r * n, (size_t)n * sizeof *w->own);
        w->own[(int64_t)r * (n + 1) + n] = longest;
    }
}

static int make_arrays(hc__rows *w) {
    size_t n = (size_t)w->batch->npieces, p = (size_t)w->size;
    w->own = calloc(p * (n + 1), sizeof *w->own);
    w->told = calloc(p * (n + 1), sizeof *w->told);
    w->sent = calloc(p * n + 1, sizeof *w->sent);
    w->came = calloc(p * n + 1, sizeof *w->came);
    w->before = calloc(2 * p * n + 1, sizeof *w->before);
    w->ones = calloc(2 * p, sizeof *w->ones);
    return w->own && w->told && w->sent && w->came && w->before && w->ones ? HC_OK : HC_NO_MEMORY;
}

int hc__rows_begin(hc__rows *w, hc_batch *batch) {
    int32_t n = batch->npieces;
    hc__rows_end(w);
    w->batch = batch;
    w->late = HC_OK;
    if (make_arrays(w) < 0)
        return HC_NO_MEMORY;
    note_rows(w);
    tell(w);
    for (int32_t r = 0; r < w->size; r++)
        w->ones[r] = 1;
    int32_t streams = hc__rows_streams(w, HC__LEAVING), lines = root_gives(w) ? 1 : w->size;
    w->piece = (hc_piece){.in = w->own,
                          .out = w->told,
                          .count = (int64_t)streams * (n + 1),
                          .row = n + 1,
                          .rows = streams,
                          .scale = 1.0,
                          .out_capacity = (int64_t)lines * (n + 1) * 8,
                          .send_rows = w->ones,
                          .recv_rows = w->ones + w->size};
    w->counts = (hc_batch){.operation = is_gather(w) ? HC_ALLGATHER : batch->operation,
                           .reduction = HC_SUM,
                           .dtype = HC_INT64,
                           .wire_dtype = HC_INT64,
                           .root = root_gives(w) ? batch->root : -1,
                           .divisor = 1,
                           .count = w->piece.count,
                           .npieces = 1,
                           .pieces = &w->piece};
    return w->host->ops->start(w->host, &w->counts);
}

/* For each tensor: where, in rows, what goes to or comes from a rank begins. */
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

static int place_results(hc__rows *w) {
    int32_t n = w->batch->npieces;
    int status = HC_OK;
    for (int32_t i = 0; i < n && status >= 0; i++) {
        hc_piece *piece = &w->batch->pieces[i];
        int64_t rows = 0;
        piece->out_rows = 0;
        if (gets_nothing(w))
            continue;
        for (int32_t r = 0; r < w->size; r++) {
            int64_t here = w->came[(int64_t)r * n + i];
            if (piece->recv_rows)
                piece->recv_rows[r] = here;
            rows += here;
        }
        status = hc__place_on_device(w->device, w->batch, piece, rows, &w->late, w->text);
    }
    return status;
}

/* What I am told: a line from each rank; in a scatter only the root's. */
static void read_counts(hc__rows *w) {
    int32_t n = w->batch->npieces, lines = root_gives(w) ? 1 : w->size;
    w->longest = 0;
    for (int32_t k = 0; k < lines; k++) {
        const int64_t *line = w->told + (int64_t)k * (n + 1);
        int32_t r = root_gives(w) ? w->batch->root : k;
        if (!gets_nothing(w))
            memcpy(w->came + (int64_t)r * n, line, (size_t)n * sizeof *line);
        w->longest = line[n] > w->longest ? line[n] : w->longest;
    }
}

int hc__rows_test(hc__rows *w) {
    int32_t n = w->batch->npieces;
    int status = w->host->ops->test(w->host);
    if (status != HC_DONE)
        return status;
    read_counts(w);
    find_places(w, w->sent, w->before, hc__rows_streams(w, HC__LEAVING));
    find_places(w, w->came, w->before + (int64_t)w->size * n, w->size);
    status = place_results(w);
    return status < 0 ? status : HC_DONE;
}

void hc__rows_end(hc__rows *w) {
    int64_t **const arrays[] = {&w->own, &w->told, &w->sent, &w->came, &w->before, &w->ones};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        free(*arrays[i]);
        *arrays[i] = NULL;
    }
}
