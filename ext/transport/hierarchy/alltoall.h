/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall.h - the state of an alltoall.
 */
#pragma once

#include "transport/hierarchy/carriers.h"
#include "transport/hierarchy/few_rows.h"
#include "transport/hierarchy/own_rows.h"
#include "transport/net/bundle.h"

typedef struct hc__alltoall {
    int stage;
    int32_t piece, step;
    hc__count *counts;            /* [set rank][piece]: sent by me */
    hc__count *incoming;          /* [set rank][piece]: sent to me; equal rows: `counts` */
    hc__count *table;             /* [local rank][set rank][piece]: sent by my node's ranks; equal rows: NULL */
    int64_t *from_here, *to_here; /* of the current piece: byte offset of each rank's rows, in and out */
    const char *in;
    char *out;
    void *spare;
    hc__own_rows own;
    hc__bundle bundle;
    hc__few_rows few;
    hc__carriers carriers;
    int locally_done, is_carried;
} hc__alltoall;
