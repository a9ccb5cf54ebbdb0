/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h - exchange and scatter, in rounds through the slots.
 */
#pragma once

#include "transport/node.h"
#include "transport/shm/direct.h"
#include "transport/shm/layout.h"

typedef struct hc__rounds {
    int64_t count, packed, taken; /* count 0: no rounds are running */
    int32_t next;                 /* the next rank to read in round `taken` */
    uint64_t since, ended;        /* `sequence` when the slots were cut, and after the last round */
    hc__mark_scan freed, arrived;
    int is_direct; /* 1: the one round of a direct stage is running */
    hc__direct direct;
    const hc_stream_part *parts; /* of this rank's stream */
    int32_t nparts;
    const hc_stream_read *reads;
    const int64_t *lengths, *bounds;
} hc__rounds;

int hc__shm_exchange(hc_node *, const hc_stream_part *, int32_t n, const hc_stream_read *reads, const int64_t *lengths,
                     int32_t readers);
void hc__shm_exchange_abandon(hc_node *);
int hc__shm_scatter(hc_node *, const hc_batch *, const int64_t *bounds);
