/* SPDX-License-Identifier: Apache-2.0
 *
 * few_rows.h - the counts of an alltoall, and the rows that travel with them between nodes.
 */
#pragma once

#include <stdint.h>

typedef struct hc__hierarchy hc__hierarchy;

/* The counts of one piece that a rank sends to another. */
typedef struct hc__count {
    int64_t rows;  /* from this rank to the other */
    int64_t total; /* rows from this rank to all ranks */
    int64_t room;  /* hc__room_of() its result; total and room are equal for all receivers */
} hc__count;

/* Few rows for a rank of another node travel with their counts: so many bytes from one rank to another, of all pieces
 * together. A second message costs more than the copies that these rows need on both sides. */
#ifndef HC__WITH_COUNTS_BYTES
#define HC__WITH_COUNTS_BYTES ((int64_t)16 << 10)
#endif
#define HC__WITH_COUNTS_MEMORY ((int64_t)512 << 10) /* for such rows from all ranks, at most */
typedef struct hc__few_rows {
    int64_t limit;     /* bytes of rows from one rank to another that travel so, or fewer; equal on all ranks */
    char *sent;        /* the messages to other ranks, in the order of set ranks; with carriers my stream for them */
    int64_t *ends;     /* by set rank: where in `sent` the bytes for it end */
    uint8_t *is_sent;  /* by set rank: my rows for it are few */
    char *room;        /* for the messages from other ranks, by set rank, each with the longest length */
    int64_t *lengths;  /* by set rank: the bytes of its message */
    const char **rows; /* by set rank: the few rows of the current piece from it; NULL: they come later */
} hc__few_rows;

/* Bytes of the rows with these counts, of all pieces; hc__bytes_of_few(): 0 if they are too many to travel with the
 * counts. */
int64_t hc__bytes_of_rows(const hc__hierarchy *, const hc__count *);
int64_t hc__bytes_of_few(const hc__hierarchy *, const hc__count *);
/* Packs my few rows into few.sent: those for rank r at few.ends[r], which ends behind them. */
void hc__few_pack(hc__hierarchy *);
int hc__few_start(hc__hierarchy *); /* after alltoall.counts is set; sets alltoall.is_carried */
/* Posts the message of counts to a rank of another node, or the receive of that from one. */
int hc__few_send(hc__hierarchy *, int32_t to);
int hc__few_receive(hc__hierarchy *, int32_t from);
/* When all messages have come: sets alltoall.incoming of the other nodes' ranks. */
int hc__few_read(hc__hierarchy *);
/* Copies the current piece's few rows to its result. */
void hc__few_place(hc__hierarchy *);
/* Ends the current piece. */
void hc__few_pass(hc__hierarchy *);
void hc__few_end(hc__hierarchy *);
