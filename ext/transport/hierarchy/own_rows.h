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

/* Copies a part of the rows if nothing else has moved, and the rest if all else is done. `near`, `far`: DONE, MOVED or
 * IDLE, of what the rank exchanges inside the node and between nodes. Returns the status of the whole. */
int hc__own_rows_copy(const hc__hierarchy *, hc__own_rows *, int near, int far);
