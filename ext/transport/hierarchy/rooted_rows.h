/* SPDX-License-Identifier: Apache-2.0
 *
 * rooted_rows.h - the state of a gather or a scatter.
 */
#pragma once

#include "transport/hierarchy/own_rows.h"
#include "transport/net/bundle.h"

typedef struct hc__rooted {
    int gathers, stage;
    int32_t piece, step; /* step: of the messages to or from other nodes */
    int64_t *counts;     /* of all ranks: see counts_of() */
    int64_t *offsets;    /* of the current piece: byte offset of each rank's rows in the root's tensor */
    char *at_root;       /* the root's tensor: the input of a scatter, the result of a gather */
    char *here;          /* this rank's rows */
    char *out;           /* this rank's result */
    void *spare;
    hc__own_rows own; /* the root's */
    hc__bundle bundle;
    int done_near; /* the stage's exchange inside the root's node is done */
} hc__rooted;
