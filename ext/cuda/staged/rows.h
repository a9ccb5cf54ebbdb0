/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h - rows that go from rank to rank: who gives how many to whom, and where results go. Allgather and alltoall, by
 * way of the host or over NCCL; gather and scatter, by way of the host.
 *
 * Only its owner knows how long a tensor is: the counts cross first, as a batch of the host's data plane, and with them
 * the rows of each `out` that a caller brought. So all ranks refuse a tensor whose result has no place on one of them,
 * before a row moves. What goes from one rank to another is then a stream of bytes, tensor after tensor, each at a
 * multiple of 16. In an allgather or a gather a rank has one stream, for all or for the root; in a scatter only the
 * root's streams have bytes.
 *
 *                the counts are moved by     all ranks know from them
 *     allgather  an allgather                all streams
 *     alltoall   an alltoall                 their own streams, and the longest of all; with an `out` anywhere, an
 *                                            allgather tells the rows of all results
 *     gather     an allgather                all streams: how many chunks there are is everybody's affair
 *     scatter    an allgather                all streams
 */
#ifndef HC_ROWS_H
#define HC_ROWS_H

#include "cuda/staged/copies.h"

typedef struct hc__rows {
    /* set by the maker */
    hc_device *device;
    hc_data *host; /* of the whole set; idle while the counts cross */
    int32_t rank, size;
    const int32_t *world; /* the World's rank of each */
    char *text;           /* HC__ROWS_TEXT bytes: words about a failure */

    hc_batch *batch;
    int asks;        /* the rows of all results are under way */
    int64_t longest; /* bytes of the longest stream of all ranks */
    int64_t *own;    /* what I tell: a line per stream, see rows.c */
    int64_t *told;   /* what I am told: a line per rank, and in a scatter one per stream of the root */
    /* [r * npieces + i]: of rank r, tensor i */
    int64_t *needs;  /* rows of its result */
    int64_t *sent;   /* rows of my tensor i that rank r gets; one stream: r = 0 */
    int64_t *came;   /* rows of its tensor i that I get from rank r */
    int64_t *before; /* of sent and came: rows of the tensor that lie before; 2 x ranks lines */
    int64_t *ones;   /* send_rows and recv_rows of the counts */
    hc_batch counts;
    hc_piece piece;
} hc__rows;
#define HC__ROWS_TEXT 512

int hc__rows_begin(hc__rows *, hc_batch *);
/* Moves the counts. HC_DONE: all is known, and results have their places. */
int hc__rows_test(hc__rows *);
void hc__rows_end(hc__rows *);

/* ---- streams: those that leave, or (`incoming`) those that come ------------------------------------------------ */

enum { HC__LEAVING, HC__INCOMING };
int32_t hc__rows_streams(const hc__rows *, int incoming);
/* Bytes of tensor i that a stream has. */
int64_t hc__rows_bytes(const hc__rows *, int incoming, int32_t stream, int32_t i);
/* Where they lie: NULL where there is no such tensor, or no room of the right size. */
char *hc__rows_at(const hc__rows *, int incoming, int32_t stream, int32_t i);
int64_t hc__rows_length(const hc__rows *, int incoming, int32_t stream);
/* The copies between bytes [from, to) of a stream, which lie at `place`, and the tensors. */
int hc__rows_copies(const hc__rows *, int incoming, int32_t stream, int64_t from, int64_t to, int64_t place,
                    hc__copies *);

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Where `rows` rows of a result go: the caller's memory, fresh memory, or NULL where nobody wants it; if the caller's
 * room has another size, the batch goes on, and ends with *late. OK, or NO_MEMORY with text. */
int hc__place_on_device(hc_device *, const hc_batch *, hc_piece *, int64_t rows, int *late, char *text);

#endif
