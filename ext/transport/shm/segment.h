/* SPDX-License-Identifier: Apache-2.0
 *
 * segment.h - memory that the ranks of one node share.
 *
 * The same code serves processes (a segment under /dev/shm, unlinked once mapped) and threads of one process (plain
 * memory): a segment is a base address and a size.
 */
#pragma once

#include "core/hc.h"

#include <sys/types.h>

#define HC_NODE_RANKS 1024 /* that share memory, at most */

typedef struct hc_segment hc_segment;

/* A part of another segment's file: slices.h. */
typedef struct hc_slice {
    struct hc_slices *of;
    void (*leave)(hc_segment *);
    int32_t leader;
    uint32_t number;
    int32_t members;
} hc_slice;

enum { HC_SEGMENT_WITHOUT_FILE = -2 }; /* a mapping of a file that is closed */

struct hc_segment {
    void *base;
    size_t bytes;
    int fd;         /* -1: process memory (threads), or a slice; HC_SEGMENT_WITHOUT_FILE */
    hc_slice slice; /* of NULL: it has a file of its own */
};

/* One rank creates the segment (and reserves every page, so that a full /dev/shm is an error here and never a SIGBUS),
 * the others attach; after a barrier, which is the caller's, the creator unlinks it. `why` gets an error text with the
 * needed and the available bytes. The first creation in a process removes this user's segments whose creators were
 * killed before they unlinked them. */
int hc_segment_create(hc_segment *, const char *name, size_t bytes, char *why, size_t why_room);
int hc_segment_attach(hc_segment *, const char *name, size_t bytes, char *why, size_t why_room);
int hc_segment_unlink(const char *name);
/* Reserves these bytes of a file, from an offset on. `name`: of the memory, for the text. OK, or a status and why. */
int hc_segment_reserve(int fd, off_t from, size_t bytes, const char *name, char *why, size_t why_room);
/* Another descriptor of its file, for the caller to close; or a status and why. */
int hc_segment_file(const hc_segment *, const char *name, char *why, size_t why_room);
/* Closes the file, for those of which a process may have more than it may open; the memory stays. After unlink. */
void hc_segment_close_file(hc_segment *);
int hc_segment_private(hc_segment *, size_t bytes); /* for threads; zeroed */
void hc_segment_close(hc_segment *);
