/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h - a batch as the loop hands it to the data plane: its operation and its tensors.
 */
#pragma once

#include "core/hc.h"
#include "core/reserve.h"

#include <stdio.h>
#include <stdlib.h>

/* One tensor of a batch. Elements are contiguous at `in` and `out`; the caller's layer ensures this.
 *   allreduce      in and out hold `count` elements; they may be the same memory
 *   broadcast      the root reads in, the others write out (root: out may be in or elsewhere)
 *   reducescatter  in holds rows x row elements; out this rank's rows (first rows % p ranks: one more)
 *   allgather      in holds own rows x row elements; out NULL: the data plane allocates
 *   alltoall       in holds count elements, send_rows[i] rows for set rank i; out as for allgather
 *   reduce         as allreduce on the root; the others have no out (drop or not)
 *   gather         in holds own rows x row elements; on the root out, out_rows and recv_rows as for allgather; the
 *                  others have no out
 *   scatter        on the root in holds rows x row elements, send_rows[i] rows for set rank i (NULL: hc_share()); the
 *                  others have no in and ignore rows and send_rows. On all ranks out NULL: the data plane allocates
 *   scan, exscan   in and out hold count elements and may be the same memory; rank r's out is the reduction over ranks
 *                  0 to r, or (exscan) to r - 1, in this order; exscan on rank 0: the neutral element
 * in NULL: this rank has joined; it gives neutral elements (allreduce, reducescatter) or nothing (others). out NULL
 * with `drop` set: the result is not wanted here (joined). */
typedef struct hc_piece {
    const void *in;
    void *out;
    int64_t count; /* elements of this rank's input (agreed for allreduce, broadcast, reducescatter) */
    int64_t row;   /* elements per row (product of dims[1:]); 1 for allreduce */
    int64_t rows;  /* reducescatter, allgather: of this rank's input; rows of no elements count as well */
    double scale;  /* SUM, AVERAGE of inexact types: one factor, applied to the node's sum */
    uint8_t drop;
    uint8_t out_owned;    /* set by the data plane: out was allocated by hc_result_new() */
    int8_t status;        /* result: OK; RESULT_SIZE, NO_MEMORY: no rank has a result of this tensor */
    int64_t out_capacity; /* bytes at out, if it is the caller's */
    int64_t out_rows;     /* rows of the caller's out; result: received rows (allgather, alltoall, reducescatter) */
    int32_t refused_by, refused_by_world; /* result: the rank that caused the status: set rank, World rank */
    char *why; /* result: the reason, equal on all ranks, from hc_malloc(), or NULL. The loop prefixes the rank */
    const int64_t *send_rows; /* alltoall: p entries, caller's */
    int64_t *recv_rows;       /* result (alltoall, allgather): p entries, caller's memory */
} hc_piece;

typedef struct hc_batch {
    uint8_t operation, reduction;
    uint8_t dtype;
    uint8_t wire_dtype; /* allreduce: between nodes; dtype, or the compression's */
    uint8_t memory;
    uint8_t deterministic; /* equal bits whatever the fusion: sums in rank order everywhere */
    uint8_t equal_rows;    /* all ranks know: each gives equally many rows to each, and has memory at `out` for them */
    int32_t root;          /* set rank, or -1 */
    int32_t local_root;    /* set by the data plane: local rank of the root in this node, or -1 */
    int64_t divisor;       /* AVERAGE: divides the sum of all ranks; else 1 */
    int64_t node_divisor;  /* set by the data plane: each node divides its sum by it, the net by the rest */
    int64_t count;         /* allreduce: elements of all pieces together */
    int32_t npieces;
    hc_piece *pieces;
    /* Device memory: events of the device's driver, which belong to the callers: one of each kind per call in this
     * batch (a joined rank has none). The data plane's streams wait for all `ready` events before they touch a tensor,
     * and record all `finished` events after the last work. HC_DONE means that this work is launched. A `ready` event
     * that is NULL: the tensors of its call are ready. */
    int32_t ncalls;
    void *const *ready, *const *finished;
} hc_batch;

/* Refuses the piece on all ranks, because of set rank `rank`, which is world_rank in the World. */
static inline void hc_piece_refuse(hc_piece *piece, int status, int32_t rank, int32_t world_rank, const char *why) {
    piece->status = (int8_t)status;
    piece->refused_by = rank;
    piece->refused_by_world = world_rank;
    hc_free(piece->why);
    piece->why = hc_strdup(why);
}
/* Refuses it because that rank's `out` has the wrong number of rows. */
static inline void hc_piece_refuse_rows(hc_piece *piece, int32_t rank, int32_t world_rank, int64_t has, int64_t needs) {
    char why[96];
    snprintf(why, sizeof why, "has an out of %lld rows, its result has %lld", (long long)has, (long long)needs);
    hc_piece_refuse(piece, HC_RESULT_SIZE, rank, world_rank, why);
}

static inline int64_t hc_piece_row_bytes(const hc_piece *piece, int dtype) {
    return piece->row * (int64_t)hc_dtype_size(dtype);
}
/* The number of rows, and the first row, of rank r's share of `rows` rows among p ranks: the first rows % p ranks have
 * one row more. */
static inline int64_t hc_share(int64_t rows, int32_t p, int32_t r) {
    return rows / p + (r < rows % p);
}
static inline int64_t hc_share_begin(int64_t rows, int32_t p, int32_t r) {
    return r * (rows / p) + (r < rows % p ? r : rows % p);
}

/* The tensors of a batch are concatenated: tensor i begins at starts[i], and starts[npieces] is the end. */
static inline int hc_starts_reserve(int64_t **starts, int32_t *room, int32_t npieces) { /* grows; OK, or NO_MEMORY */
    if (npieces + 1 <= *room)
        return HC_OK;
    int64_t *grown = hc_realloc(*starts, 0, 2 * ((size_t)npieces + 1) * sizeof *grown);
    if (!grown)
        return HC_NO_MEMORY;
    *starts = grown;
    *room = 2 * (npieces + 1);
    return HC_OK;
}
/* The last tensor that begins at or before `place`. */
static inline int32_t hc_piece_at(const int64_t *starts, int32_t npieces, int64_t place) {
    int32_t low = 0, high = npieces;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (starts[middle] <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}
