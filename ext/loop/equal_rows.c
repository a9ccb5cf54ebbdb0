/* SPDX-License-Identifier: Apache-2.0
 *
 * equal_rows.c - finds out, with the count of a request, whether all ranks give equally many rows. Then they need not
 * exchange their counts before the first row.
 *
 * Each rank gives two words to the count: the rows between it and each other rank, and their negative. The minimum over
 * all ranks has the smallest number and the largest one. Before that a rank allocates the result that equal rows have;
 * one which finds no memory, or whose `out` has other rows, says that the rows differ. So no rank can fail afterwards.
 */
#include "loop/counted.h"

#define RESERVE ((int64_t)256 << 10) /* of a rank that learns from the root how many rows it gets */

enum { DIFFER = -1, ANY = -2 };

static int has(const hc_handle *handle, int trait) {
    return hc_operation_has(handle->request.operation, trait);
}

static int gives(const hc_handle *handle, int32_t rank) {
    return hc_operation_gives(handle->request.operation, handle->request.root, rank);
}

static int64_t row_bytes(const hc_handle *handle) {
    return hc_piece_row_bytes(&handle->pieces[0], handle->tensors[0].dtype);
}

/* ---- what a rank says ---------------------------------------------------------------------------------------- */

/* The rows for each rank, if they are equally many; else DIFFER. */
static int64_t equal_share(const hc_piece *piece, int32_t size) {
    if (!piece->send_rows)
        return piece->rows % size ? DIFFER : piece->rows / size;
    for (int32_t r = 1; r < size; r++)
        if (piece->send_rows[r] != piece->send_rows[0])
            return DIFFER;
    return piece->send_rows[0];
}

/* The rows between this rank and each other one. */
static int64_t rows_of(const hc_handle *handle, int32_t rank, int32_t size) {
    const hc_piece *piece = &handle->pieces[0];
    if (!gives(handle, rank))
        return piece->out ? piece->out_rows : ANY;
    if (!piece->in)
        return 0;
    if (!has(handle, HC_OP_COUNTS))
        return piece->rows;
    int64_t rows = equal_share(piece, size);
    int is_too_much = has(handle, HC_OP_ROOTED) && rows > 0 && row_bytes(handle) > RESERVE / rows;
    return is_too_much ? DIFFER : rows;
}

/* Allocates `bytes` for the result of so many rows. 0: there is no memory. */
static int allocate(hc_piece *piece, int64_t rows, int64_t bytes) {
    void *memory = hc_result_new((size_t)bytes);
    if (!memory)
        return 0;
    piece->out = memory;
    piece->out_owned = 1;
    piece->out_rows = rows;
    piece->out_capacity = bytes;
    return 1;
}

/* 1: there is memory for the result of the rows that this rank expects. */
static int has_memory(hc_handle *handle, int32_t rank, int32_t size, int64_t rows) {
    hc_piece *piece = &handle->pieces[0];
    int64_t of_row = row_bytes(handle), all = has(handle, HC_OP_ROOTED) && !has(handle, HC_OP_TO_ROOT) ? 1 : size;
    if (!hc_operation_gets(handle->request.operation, handle->request.root, rank))
        return 1;
    if (rows == ANY)
        return of_row <= RESERVE && allocate(piece, 0, RESERVE);
    if (of_row > 0 && rows > INT64_MAX / of_row / all)
        return 0;
    if (piece->out)
        return piece->out_capacity == rows * all * of_row && (of_row > 0 || piece->out_rows == rows * all);
    return allocate(piece, rows * all, rows * all * of_row);
}

void hc__equal_say(hc_handle *handle, int32_t rank, int32_t size, hc__extremes own) {
    int64_t rows = handle->request.ntensors == 1 ? rows_of(handle, rank, size) : DIFFER;
    if (rows != DIFFER && !has_memory(handle, rank, size, rows))
        rows = DIFFER;
    own[0] = rows == ANY ? INT64_MAX : rows;
    own[1] = rows == ANY ? INT64_MAX : -rows;
}

/* ---- what all ranks have said -------------------------------------------------------------------------------- */

/* Fits the result of a rank that did not know its rows. Without other memory it keeps the reserve. */
static void fit(hc_piece *piece, int64_t rows, int64_t bytes) {
    void *reserve = piece->out;
    if (allocate(piece, rows, bytes))
        hc_result_free(reserve);
    piece->out_rows = rows;
    piece->out_capacity = bytes;
}

static void drop(hc_piece *piece) {
    if (!piece->out_owned)
        return;
    hc_result_free(piece->out);
    piece->out = NULL;
    piece->out_owned = 0;
    piece->out_rows = piece->out_capacity = 0;
}

void hc__equal_settle(hc_handle *handle, int32_t rank, const int64_t *all) {
    if (!has(handle, HC_OP_ROWS_DIFFER))
        return;
    hc_piece *piece = &handle->pieces[0];
    if (!all || all[0] < 0 || all[0] != -all[1]) {
        drop(piece);
        return;
    }
    handle->request.flags |= HC_REQUEST_EQUAL_ROWS;
    if (!gives(handle, rank) && piece->out_owned)
        fit(piece, all[0], all[0] * row_bytes(handle));
}
