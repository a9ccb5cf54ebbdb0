/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.h - a batch as one concatenation of its tensors.
 */
#pragma once

#include "transport/batch.h"

typedef struct hc__shm hc__shm;

/* A range of elements. */
typedef struct hc__range {
    int64_t from, to;
} hc__range;

#define HC__SCRATCH ((size_t)16 << 10) /* fits the first-level cache together with the operands */

/* Room for the operands of a reduction. */
typedef struct hc__operands {
    const uint8_t **inputs;   /* local_size entries */
    const void **blocks;      /* the same within one block of it */
    uint8_t *scratch, *block; /* HC__SCRATCH bytes of private memory each */
} hc__operands;

typedef struct hc__open_batch {
    const hc_batch *batch;
    int64_t *starts; /* npieces + 1: where each piece begins in the concatenation */
    int32_t starts_room;
    size_t size;      /* bytes of an element */
    int result_dtype; /* the wire type if a net stage follows; else the batch's */
    size_t result_size;
    int64_t out_from; /* scatter: where this rank's share begins; else 0 */
    int is_small;
} hc__open_batch;

/* The overlap of a range of the concatenation with one piece: n elements, from element `at` of the piece and element
 * `offset` of the range. `out`: the memory for their result, or NULL. */
typedef struct hc__span {
    const hc_piece *piece;
    const uint8_t *in;
    uint8_t *out;
    int64_t at, n, offset;
} hc__span;

typedef struct hc__spans {
    const hc__shm *shm;
    hc__range range;
    int64_t position;
    int32_t piece;
} hc__spans;

int hc__take_batch(hc__shm *, const hc_batch *, int result_dtype); /* notes where the pieces begin; a status */
hc__spans hc__spans_of(const hc__shm *, hc__range);
int hc__spans_next(hc__spans *, hc__span *);

/* 1: this rank is the root of a broadcast. */
int hc__gives(const hc__shm *);
/* Copies my input of a range to `to`; neutral elements if I have none. */
void hc__pack(hc__shm *, hc__range, uint8_t *to);
enum hc__target {
    HC__TO_RESULT = 1, /* to `to`, as result_dtype */
    HC__TO_OUT = 2     /* to the tensors */
};
/* Reduces a range: the other ranks' elements are at shm->operands.inputs[q], mine in my tensors. */
void hc__reduce(hc__shm *, hc__range, uint8_t *to, int targets);
/* Copies a final range of the result to the tensors; it is result_dtype at `from`. The root of a broadcast copies its
 * own input. */
void hc__unpack(hc__shm *, hc__range, const uint8_t *from);
/* Reduces on a node of one rank; `to` NULL: into the tensors. */
void hc__reduce_alone(hc__shm *, hc__range, uint8_t *to);
