/* SPDX-License-Identifier: Apache-2.0
 *
 * staged.h - a batch on a device through the host: private to staged*.c and device_data.c.
 *
 *     down    chunk c + 2   from the tensors to pinned memory      stream `down`
 *     host    chunk c + 1   the host's data plane, as a batch      the driver
 *     up      chunk c       from pinned memory to the tensors      stream `up`
 *
 * All ranks cut chunks from numbers that they all know, so each chunk is a batch of the host's data plane. This serves
 * every operation and type of the host, and no algorithm is written twice.
 */
#pragma once

#include "cuda/staged/rows.h"
#include "cuda/staged/shares.h"

#define HC__SLOTS 3 /* one per stage */

typedef struct hc__staged_slot {
    hc__stage stage;
    hc__copies down, up;
    hc_gpu_event arrived; /* all of `down` is in the stage */
    hc_gpu_event left;    /* all of `up` has left it */
    hc_batch batch;       /* the chunk, for the host's data plane */
    hc_piece *pieces;
    int32_t room;
    int cut; /* the chunk is cut, its copies are not launched yet */
} hc__staged_slot;

/* Elementwise operations and broadcast: tensors in a row, cut anywhere. */
typedef struct hc__staged_even {
    int64_t *starts; /* npieces + 1: bytes before each tensor, at multiples of 16 */
    int32_t room;
    int64_t chunk; /* bytes */
} hc__staged_even;

/* A reducescatter: windows of all ranks' shares. */
typedef struct hc__staged_scatter {
    hc__shares shares;
    int64_t each; /* bytes of a share in a chunk */
} hc__staged_scatter;

/* Allgather, alltoall, gather, scatter: only its owner knows the rows of a tensor. */
typedef struct hc__staged_uneven {
    hc__rows rows;
    int counted;
    int64_t *lines; /* send_rows and recv_rows of the host's batches: 2 x HC__SLOTS lines of ranks */
    int64_t each;   /* bytes of a stream in a chunk */
} hc__staged_uneven;

typedef struct hc__staged {
    hc_device *device;
    hc_data *host;
    int32_t rank, size;   /* in the set */
    const int32_t *world; /* the World's rank of each */
    int64_t chunk_bytes;  /* as configured; 0: by the size of a batch */
    hc_gpu_stream down, up;
    hc__staged_slot slots[HC__SLOTS];

    hc_batch *batch;
    int late;                             /* RESULT_SIZE of a reducescatter, returned at the end */
    int64_t chunks, filled, run, drained; /* all chunks, and the chunks that finished each stage */
    uint8_t running;                      /* the host's data plane has chunk `run` */
    uint8_t waits;                        /* no progress: an event is outstanding */
    hc__staged_even even;
    hc__staged_scatter scatter;
    hc__staged_uneven uneven;
    char text[HC__ROWS_TEXT];
} hc__staged;

/* Streams and events; slots get their memory as batches need it. */
int hc__staged_open(hc__staged *);
void hc__staged_close(hc__staged *); /* waits a little for running copies; memory still in use after that is lost */

/* The bytes of a chunk of a batch that has so many on this rank. */
int64_t hc__staged_chunk_of(const hc__staged *, int64_t bytes);

int hc__staged_start(hc__staged *, hc_batch *);
int hc__staged_test(hc__staged *);

/* ---- cutting a batch into chunks ----------------------------------------------------------------------------- */

int hc__staged_even_begin(hc__staged *);                           /* sets chunks */
int hc__staged_even_cut(hc__staged *, int64_t, hc__staged_slot *); /* fills batch, pieces, copies of an empty slot */
int hc__staged_scatter_begin(hc__staged *);
int hc__staged_scatter_cut(hc__staged *, int64_t, hc__staged_slot *);
void hc__staged_scatter_end(hc__staged *);
int hc__staged_uneven_begin(hc__staged *); /* the counts come first */
int hc__staged_uneven_count(hc__staged *); /* moves the counts; HC_DONE: chunks is set */
int hc__staged_uneven_cut(hc__staged *, int64_t, hc__staged_slot *);
void hc__staged_uneven_end(hc__staged *);

hc_piece *hc__staged_pieces(hc__staged_slot *, int32_t n); /* room for n, zeroed; NULL: out of memory */
