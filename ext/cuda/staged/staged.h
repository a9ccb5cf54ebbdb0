/* SPDX-License-Identifier: Apache-2.0
 *
 * staged.h - a batch on a device by way of the host: private to staged*.c and device_data.c.
 *
 *     down    chunk c + 2   from the tensors to pinned memory      a stream of its own
 *     host    chunk c + 1   the host's data plane, as a batch      the driver
 *     up      chunk c       from pinned memory to the tensors      a stream of its own
 *
 * Chunks are cut from numbers that all ranks know, so that each is a batch of the host's data plane on all of them:
 * this works for every operation and type that the host has, and no algorithm is written twice.
 */
#ifndef HC_STAGED_H
#define HC_STAGED_H

#include "cuda/staged/rows.h"
#include "cuda/staged/shares.h"

#define HC__SLOTS 3 /* one a stage */

typedef struct hc__staged_slot {
    hc__stage stage;
    hc__copies down, up;
    hc_gpu_event arrived; /* all of `down` is in the stage */
    hc_gpu_event left;    /* all of `up` has left it */
    hc_batch batch;       /* the chunk, for the host's data plane */
    hc_piece *pieces;
    int32_t room;
    int cut; /* what follows is to be launched still */
} hc__staged_slot;

/* Elementwise operations, broadcast: one tensor after another, cut anywhere. */
typedef struct hc__staged_even {
    int64_t *starts; /* npieces + 1: bytes before each, all tensors at multiples of 16 */
    int32_t room;
} hc__staged_even;

/* A reducescatter: windows of all ranks' shares. */
typedef struct hc__staged_scatter {
    hc__shares shares;
    int64_t each; /* bytes of a share in a chunk */
} hc__staged_scatter;

/* The others: rows of which only their owners know how many there are. */
typedef struct hc__staged_uneven {
    hc__rows rows;
    int counted;
    int64_t *lines; /* send_rows and recv_rows of what the host's data plane runs: 2 x HC__SLOTS lines of ranks */
    int64_t each;   /* bytes of a stream in a chunk */
} hc__staged_uneven;

typedef struct hc__staged {
    hc_device *device;
    hc_data *host;
    int32_t rank, size;   /* in the set */
    const int32_t *world; /* the World's rank of each */
    int64_t chunk_bytes;
    hc_gpu_stream down, up;
    hc__staged_slot slots[HC__SLOTS];

    hc_batch *batch;
    int late;                             /* RESULT_SIZE of a reducescatter, told at the end */
    int64_t chunks, filled, run, drained; /* chunks in all, and how many have been through each stage */
    uint8_t running;                      /* the host's data plane has chunk `run` */
    uint8_t waits;                        /* nothing moved, and an event is awaited */
    hc__staged_even even;
    hc__staged_scatter scatter;
    hc__staged_uneven uneven;
    char text[HC__ROWS_TEXT];
} hc__staged;

/* Streams and events; slots get their memory as batches need it. */
int hc__staged_open(hc__staged *);
void hc__staged_close(hc__staged *); /* waits a little for what is under way; what is then still in use is lost */

int hc__staged_start(hc__staged *, hc_batch *);
int hc__staged_test(hc__staged *);

/* ---- what the cutters do ------------------------------------------------------------------------------------- */

int hc__staged_even_begin(hc__staged *);                           /* sets chunks */
int hc__staged_even_cut(hc__staged *, int64_t, hc__staged_slot *); /* fills batch, pieces, copies of an empty slot */
int hc__staged_scatter_begin(hc__staged *);
int hc__staged_scatter_cut(hc__staged *, int64_t, hc__staged_slot *);
void hc__staged_scatter_end(hc__staged *);
int hc__staged_uneven_begin(hc__staged *); /* the counts are to run first */
int hc__staged_uneven_count(hc__staged *); /* moves the counts; HC_DONE: chunks is set */
int hc__staged_uneven_cut(hc__staged *, int64_t, hc__staged_slot *);
void hc__staged_uneven_end(hc__staged *);

hc_piece *hc__staged_pieces(hc__staged_slot *, int32_t n); /* room for n, zeroed; NULL: out of memory */

#endif
