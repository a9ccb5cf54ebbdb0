/* SPDX-License-Identifier: Apache-2.0
 *
 * direct.h - the direct stage of an exchange: each rank copies what it needs from the memory of the other processes.
 *
 * It is one copy, by the kernel, where an exchange through the slots makes two. It may fail, for all ranks alike: then
 * the exchange goes through the slots.
 */
#pragma once

#include "transport/node.h"
#include "transport/shm/layout.h"

typedef struct hc__direct {
    int64_t done;  /* bytes read of the current rank's stream */
    int has_read;  /* this rank has read all that it needs, or has failed */
    int is_failed; /* this rank could not read; when all have read: a rank could not */
    hc__mark_scan all_read;
} hc__direct;

/* 1: with streams of at most so many bytes, each of which one rank reads, a direct stage is faster than the slots. */
int hc__direct_suits(int32_t local_size, int64_t longest);
#define HC__DIRECT_SLOT ((int64_t)8 << 10) /* bytes of a slot for it */

void hc__direct_begin(hc__direct *);
/* Shows in this rank's slot where its stream lies. */
void hc__direct_show(const hc__shm *, void *slot, const hc_stream_part *, int32_t n);
/* Reads from rank q's stream, after that rank has shown it. 1: all is read, or this rank has failed; 0: call it again,
 * it has read a part. */
int hc__direct_read(hc__shm *, hc__direct *, const void *slot_of_q, const hc_stream_read *);
/* Tells the other ranks that this one has read. */
void hc__direct_tell(hc__shm *, hc__direct *, void *own_slot, uint64_t sequence);
/* 1: all ranks have read. */
int hc__direct_have_all_read(hc__shm *, hc__direct *, uint64_t sequence);
int hc__direct_has_failed(const void *slot); /* after that: of the rank of this slot */
