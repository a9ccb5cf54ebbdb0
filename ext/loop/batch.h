/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h - from agreed items to a batch of the data plane.
 */
#pragma once

#include "loop/loop.h"

typedef struct hc__run {
    hc_batch batch; /* first: hc_data sees this */
    uint64_t number;
    uint64_t started, bytes;
    uint8_t cached;
    uint32_t nitems;
    const hc_handle *first; /* the batch's first handle, to name it; NULL: this rank has joined */
    int32_t capacity;       /* pieces that fit */
    uint32_t room;          /* calls whose events fit */
    void **events;          /* device memory: batch.ready and batch.finished point into this */
    hc_piece **origin;      /* the handle's piece that batch.pieces[i] was copied from, NULL when joined */
    int64_t *zeros;         /* of a joined rank: the counts of rows that it sends, all 0; one per rank of the set */
    int64_t *scratch;       /* of a joined rank: takes the counts of the rows that it receives */
    struct hc__run *next;
} hc__run;

typedef struct hc__set_queue hc__set_queue;

double hc__factor_of(const hc_request *, int dtype); /* prescale times postscale */
hc__run *hc__run_build(hc_loop *, hc__set_queue *, const hc_action *run);
hc__run *hc__run_compose(const hc_loop *, hc__set_queue *, const hc_action *run); /* not counted or traced */
/* When it starts: the results that a counted request has allocated are the batch's until it delivers them. */
void hc__run_take_results(hc__run *);
void hc__run_deliver(const hc_loop *, hc__run *); /* results back into the handles' pieces */
void hc__run_free(hc__run *);
