/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.h - the stages of a batch that goes through the segment in chunks: node.h has their contracts.
 */
#pragma once

#include "transport/node.h"
#include "transport/shm/layout.h"

/* The open batch's scans of the marks; small.c uses `arrived`, too. */
typedef struct hc__scans {
    hc__mark_scan freed, arrived, rail_reduced;
} hc__scans;

int hc__shm_open(hc_node *, const hc_batch *, const hc_parts *, const hc_rails *, int64_t chunk_elements,
                 int64_t *nchunks);
int hc__shm_depth(hc_node *);
int hc__shm_reduce(hc_node *, int64_t chunk);
int hc__shm_shard(hc_node *, int64_t chunk, void **data, int64_t *bounds);
int hc__shm_publish(hc_node *, int64_t chunk);
int hc__shm_spread(hc_node *, int64_t chunk);
int hc__shm_close(hc_node *);
