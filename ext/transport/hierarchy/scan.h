/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.h - the state of a scan or an exscan.
 */
#pragma once

#include "transport/net/net.h"

typedef struct hc__hierarchy hc__hierarchy;

#define HC__SCAN_SLOTS 4
/* Chunks that have finished each stage. */
typedef struct hc__scan_chunks {
    int64_t posted, received, added, sent;
    int64_t passed; /* the slot is free again */
    int64_t filled; /* exscan, first rank: with neutral elements */
} hc__scan_chunks;
typedef struct hc__scan {
    int exclusive, at_once;
    int kind;                      /* the type in the chain: the dtype's accumulation type */
    int64_t count, chunk, nchunks; /* elements in all, elements per chunk */
    hc__scan_chunks done;
    int64_t step, steps;              /* of the node's exchanges */
    int64_t *starts;                  /* the first element of each piece in the concatenation */
    char *memory;                     /* the chain's slots, or all ranks' values */
    char *own_values;                 /* this rank's values */
    const char *sums[HC__SCAN_SLOTS]; /* of the newest chunks, for the next rank: in their slots or in the result */
    const void **operands;            /* room for one per rank */
    const char **values;              /* the same */
    hc_net_request *receives[HC__SCAN_SLOTS], *sends[HC__SCAN_SLOTS];
    int stuck; /* a request could not be cancelled: memory may still be read or written */
} hc__scan;

void hc__scan_abandon(hc__hierarchy *);
