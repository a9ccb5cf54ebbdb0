/* SPDX-License-Identifier: Apache-2.0
 *
 * segment.h - the shared segment in which the ranks of a fake communicator meet.
 */
#ifndef FAKE_SEGMENT_H
#define FAKE_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

enum { MAX_RANKS = 8, SEGMENT_BYTES = 64 << 10, BOX = 4 << 10 };

typedef struct box { /* from one rank to another: one chunk at a time */
    _Atomic uint32_t wrote, read;
    _Alignas(16) char data[BOX];
} box;
typedef struct segment {
    atomic_int attached;
    _Atomic uint32_t wrote[MAX_RANKS], read[MAX_RANKS]; /* chunks of collectives that a rank published, and took */
    _Atomic uint64_t call[MAX_RANKS];                   /* what the rank's chunk belongs to: all must be in the same */
    _Atomic uint64_t
        behind[MAX_RANKS]; /* which call of which other has the rank's device while one of this one waits */
    box boxes[MAX_RANKS][MAX_RANKS];
    _Alignas(64) char data[MAX_RANKS][SEGMENT_BYTES];
} segment;

segment *
fake_segment_open(const char *name); /* NULL: no shared memory. Unmapped with munmap(segment, sizeof(segment)) */
void fake_segment_unlink(const char *name);
int fake_dtype(int nccl_dtype); /* enum hc_dtype */

#endif
