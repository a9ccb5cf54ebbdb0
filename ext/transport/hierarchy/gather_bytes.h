/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_bytes.h - allgather of bytes whose lengths every rank knows.
 */
#pragma once

#include "transport/net/bundle.h"

typedef struct hc__hierarchy hc__hierarchy;

typedef struct hc__gather {
    const void *in;
    char *out;
    int64_t *lengths, *offsets; /* by set rank; size + 1 offsets */
    int stage;
    int32_t step;
    hc__bundle bundle;
} hc__gather;

/* gather.lengths must be set; in may be NULL if this rank's length is 0. `out` has room for all ranks. */
int hc__gather_start(hc__hierarchy *, const void *in, void *out);
int hc__gather_test(hc__hierarchy *);
