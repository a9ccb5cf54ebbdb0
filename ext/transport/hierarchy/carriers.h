/* SPDX-License-Identifier: Apache-2.0
 *
 * carriers.h - between many ranks, one rank of each of two nodes carries the counts and few rows of all their pairs of
 * ranks.
 */
#pragma once

#include <stdint.h>

typedef struct hc__hierarchy hc__hierarchy;

#ifndef HC__CARRIED_MESSAGES
#define HC__CARRIED_MESSAGES 16 /* carriers are worth it if a rank sends so many messages fewer, on average */
#endif
#ifndef HC__CARRIED_BYTES
#define HC__CARRIED_BYTES ((int64_t)1024) /* of rows from one rank to another; they are copied several times */
#endif
typedef struct hc__carriers {
    int stage;
    int32_t step;
    char *gathered;          /* the node's few rows for the nodes that I carry, rank after rank */
    char *out, *in;          /* the messages to and from the nodes that I carry */
    int64_t *out_at, *in_at; /* by node: where its message begins; nodes + 1 entries */
    int64_t *lengths;        /* by node: the bytes of its message */
    int64_t *shares;         /* [local rank][local rank]: bytes that the first has carried for the second */
    int64_t *cursors;        /* by local rank */
    char *stream;            /* what I have carried, for one local rank after the other */
} hc__carriers;

/* In place of hc__few_send, _receive and _read, when alltoall.table is complete. */
int hc__carriers_start(hc__hierarchy *);
int hc__carriers_test(hc__hierarchy *);
void hc__carriers_end(hc__hierarchy *);
