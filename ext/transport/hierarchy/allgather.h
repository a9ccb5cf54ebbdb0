/* SPDX-License-Identifier: Apache-2.0
 *
 * allgather.h - the state of an allgather.
 */
#pragma once

#include <stdint.h>

/* The counts of one piece of an allgather that a rank sends to all. */
typedef struct hc__slice {
    int64_t rows; /* of its input */
    int64_t room; /* hc__room_of() its result */
} hc__slice;

typedef struct hc__allgather {
    int32_t first, end; /* the pieces that are gathered together */
    hc__slice *slices;  /* [set rank][piece] */
    hc__slice *own_slices;
    int asks; /* the ranks decide on piece `first` */
    void *out, *spare;
    char *packed_in, *packed_out; /* of several pieces: rank after rank, piece after piece */
} hc__allgather;
