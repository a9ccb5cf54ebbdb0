/* SPDX-License-Identifier: Apache-2.0
 *
 * own_rows.h - the rows that a rank sends to itself: copied while its operation waits for other ranks.
 *
 * Other ranks wait for what this one sends, and none waits for these rows.
 */
#pragma once

#include <stdint.h>

typedef struct hc__hierarchy hc__hierarchy;

typedef struct hc__own_rows {
    char *to;
    const char *from;
    int64_t bytes; /* not copied yet */
} hc__own_rows;

/* Takes the status of the operation with the other ranks: copies a part of the rows on IDLE, and the rest on DONE.
 * Returns the status of both. */
int hc__own_rows_copy(const hc__hierarchy *, hc__own_rows *, int others);
