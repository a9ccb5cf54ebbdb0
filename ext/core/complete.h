/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.h - running batches, and the end of a request.
 */
#pragma once

#include "core/base.h"

typedef struct hc__running {
    struct hc__running *next;
    uint64_t batch, started;
    uint32_t nnames, room;
    uint8_t warnings;     /* reports of its long run */
    uint8_t named_silent; /* the last report named the silent ranks */
    uint32_t names[];
} hc__running;

typedef struct hc__batches {
    uint64_t next; /* number of the next batch */
    hc__running *running, *running_last;
} hc__batches;

/* Ends this rank's request of a name, which must not be in the list of pending requests. The name is free again. */
void hc__finish(hc__set *, uint32_t name, int status, const char *text, uint64_t position);
int hc__batch_done(hc__set *, uint64_t batch, int status, const char *text);
void hc__running_free(hc__set *);
