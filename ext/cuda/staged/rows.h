/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h - operations that send different numbers of rows between ranks: their counts, streams and results. Allgather
 * and alltoall through the host or over NCCL; gather and scatter through the host.
 *
 * Only its owner knows the length of a tensor, so the ranks first exchange the counts, and the rows of each caller's
 * `out`, as a batch of the host's data plane. If an `out` has the wrong size on one rank, all ranks refuse the tensor
 * before a row moves. Then one rank's rows for another are a stream of bytes, tensor after tensor, each at a multiple
 * of 16. In an allgather or a gather a rank has one stream, for all or for the root; in a scatter only the root's
 * streams have bytes.
 *
 *                the counts move by          then every rank knows
 *     allgather  an allgather                all streams
 *     alltoall   an alltoall                 its own streams, and the length of the longest; if any rank has an
 *                                            `out`, an allgather adds the rows of all results
 *     gather     an allgather                all streams, so that all agree on the number of chunks
 *     scatter    an allgather                all streams
 */
#pragma once

#include "cuda/staged/copies.h"

typedef struct hc__rows {
    /* set by the maker */
    hc_device *device;
    hc_data *host; /* of the whole set; idle before the counts are exchanged */
    int32_t rank, size;
    const int32_t *world; /* the World's rank of each */
    char *text;           /* HC__ROWS_TEXT bytes: words about a failure */

    hc_batch *batch;
    int asks;          /* the ranks exchange the rows of all results */
    int64_t longest;   /* bytes of the longest stream of all ranks */
    int64_t *own;      /* the counts that this rank sends: a line per stream, see rows.c */
    int64_t *gathered; /* all ranks' lines: one per rank, in a scatter also one per stream of the root */
    /* [r * npieces + i]: of rank r, tensor i */
    int64_t *needs;    /* rows of its result */
    int64_t *sent;     /* rows of my tensor i for rank r; one stream: r = 0 */
    int64_t *received; /* rows of tensor i from rank r */
    int64_t *before;   /* for sent, then for received: rows of the tensor before these; 2 x ranks lines */
    int64_t *ones;     /* send_rows and recv_rows of the counts */
    hc_batch counts;
    hc_piece piece;
} hc__rows;
#define HC__ROWS_TEXT 512

int hc__rows_begin(hc__rows *, hc_batch *);
/* Exchanges the counts. HC_DONE: all counts are known, and results have memory. */
int hc__rows_test(hc__rows *);
void hc__rows_end(hc__rows *);

/* ---- streams: outgoing, or `incoming` ---------------------------------------------------------------------------- */

enum { HC__LEAVING, HC__INCOMING };
int32_t hc__rows_streams(const hc__rows *, int incoming);
/* Bytes of tensor i in a stream. */
int64_t hc__rows_bytes(const hc__rows *, int incoming, int32_t stream, int32_t i);
/* Their address; NULL: there is no such tensor, or an `out` of the wrong size. */
char *hc__rows_at(const hc__rows *, int incoming, int32_t stream, int32_t i);
int64_t hc__rows_length(const hc__rows *, int incoming, int32_t stream);
/* Adds the copies between bytes [from, to) of a stream, at `place` in the buffer, and the tensors. */
int hc__rows_copies(const hc__rows *, int incoming, int32_t stream, int64_t from, int64_t to, int64_t place,
                    hc__copies *);

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Sets the memory for `rows` rows of a result: the caller's, fresh memory, or NULL if this rank needs no result. If the
 * caller's memory has the wrong size, sets *late; the batch goes on and ends with it. OK, or NO_MEMORY with text. */
int hc__place_on_device(hc_device *, const hc_batch *, hc_piece *, int64_t rows, int *late, char *text);
