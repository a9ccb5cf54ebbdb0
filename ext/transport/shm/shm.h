/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.h - memory that the ranks of one node share, and how they wake each other.
 *
 * The same code serves processes (a segment under /dev/shm, unlinked once mapped) and threads of one process
 * (plain memory): a segment is a base address and a size.
 */
#ifndef HC_SHM_H
#define HC_SHM_H

#include "transport/transport.h"

/* ---- segments ------------------------------------------------------------------------------------ */

typedef struct hc_segment {
    void *base;
    size_t bytes;
    int fd; /* -1: process memory (threads) */
} hc_segment;

/* One rank creates (reserving every page, so that a full /dev/shm is an error here and never a SIGBUS), the
 * others attach, all meet at a barrier of their own, then the creator unlinks. `why` gets a sentence that says
 * how much was needed and how much there is. */
int hc_segment_create(hc_segment *, const char *name, size_t bytes, char *why, size_t why_room);
int hc_segment_attach(hc_segment *, const char *name, size_t bytes, char *why, size_t why_room);
int hc_segment_unlink(const char *name);
int hc_segment_private(hc_segment *, size_t bytes); /* for threads; zeroed */
void hc_segment_close(hc_segment *);

/* ---- the node's node control segment: one a World and node, made before anything else ------------------------------ */

/* Holds a bell a local rank, the control rings, and who is alive. Layout is a function of local_size. */
typedef struct hc_node_control hc_node_control;
size_t hc_node_control_bytes(int32_t local_size);
/* Every local rank calls this on the same zeroed segment (borrowed). world_rank_of is copied. */
int hc_node_control_new(hc_segment *, int32_t local_rank, int32_t local_size, const int32_t *world_rank_of,
                        hc_node_control **);
void hc_node_control_free(hc_node_control *);

/* Bells: the one thing a rank sleeps on. To sleep without losing a wake-up: seen = listen; look once more at all
 * that could have moved; if nothing did, sleep(seen). */
uint32_t hc_bell_listen(hc_node_control *);
/* 1: rung; 0: timeout. Never longer than `ns`. */
int hc_bell_sleep(hc_node_control *, uint32_t seen, uint64_t ns);
void hc_bell_ring(hc_node_control *, int32_t local_rank); /* [any thread] cheap when nobody sleeps there */
void hc_bell_ring_all(hc_node_control *);                 /* all but me, the same */

/* A local rank whose process is gone (its file lock was released by the kernel), or -1. Costs a system call a
 * rank: ask seldom. Threads (private segments) are never lost unless hc_node_control_mark_lost() said so. */
int32_t hc_node_control_lost(hc_node_control *);
void hc_node_control_mark_lost(hc_node_control *, int32_t local_rank);

/* ---- what is built on it ---------------------------------------------------------------------------- */

/* The data stage of one process set on this node (shm.c). The zeroed segment is made for the set: hc_shm_bytes()
 * says how large. It is the node's from here, if this returns OK; a private one is shared by all nodes of the set
 * and goes with the last of them. locals[i]: the node control segment's local rank of the set's i-th member on this node. */
size_t hc_shm_bytes(int32_t local_size);
int hc_shm_node_new(hc_segment, hc_node_control *, const int32_t *locals, int32_t local_rank, int32_t local_size,
                    hc_node **);

/* Control edges: rings in the node control segment for ranks of this node, `net` (may be NULL, borrowed) for all others.
 * local_of[r]: local rank in the node control segment of World rank r, or -1; copied. */
int hc_control_new(hc_node_control *, hc_net *, const int32_t *local_of, int32_t world_size, hc_control **);

/* N ranks as threads of one process: nets[0..n-1] that deliver to each other (local.c). For tests, for a World of
 * one, and for Worlds made of threads. */
int hc_local_net_new(int32_t n, hc_net **nets);

#endif
