/* SPDX-License-Identifier: Apache-2.0
 *
 * control_segment.h - the node control segment: one per World and node, made before anything else. It holds a doorbell
 * per local rank, the rings between ranks, cells, and which ranks are alive.
 */
#ifndef HC_CONTROL_SEGMENT_H
#define HC_CONTROL_SEGMENT_H

#include "core/hc.h"
#include "transport/shm/byte_ring.h"
#include "transport/shm/cells.h"
#include "transport/shm/cores.h"
#include "transport/shm/segment.h"

/* The layout is a function of local_size. */
typedef struct hc_node_control hc_node_control;
size_t hc_node_control_bytes(int32_t local_size);
/* Every local rank calls this on the same zeroed segment (borrowed). world_rank_of is copied. */
int hc_node_control_new(hc_segment *, int32_t local_rank, int32_t local_size, const int32_t *world_rank_of,
                        hc_node_control **);
void hc_node_control_free(hc_node_control *);

/* Doorbells: all that a rank sleeps on. To sleep without losing a wake-up, call listen, look once more at all that
 * could have moved, and if nothing did, call sleep with what listen returned. */
uint32_t hc_doorbell_listen(hc_node_control *);
/* 1: woken; 0: timeout. Never longer than `ns`. */
int hc_doorbell_sleep(hc_node_control *, uint32_t seen, uint64_t ns);
void hc_doorbell_ring(hc_node_control *, int32_t local_rank); /* [any thread] cheap unless that rank sleeps */
void hc_doorbell_ring_all(hc_node_control *);                 /* all but me, the same */

/* A local rank whose process is gone (its file lock was released by the kernel), or -1. Costs a system call per
 * rank, so ask seldom. Threads (private segments) are never lost unless hc_node_control_mark_lost() said so. */
int32_t hc_node_control_lost(hc_node_control *);
void hc_node_control_mark_lost(hc_node_control *, int32_t local_rank);

/* Signs of life. A rank counts its progress iterations where the others of the node see it (a counter with one writer,
 * in a cache line of its own), and says when it was waiting last and whether a thread of its own answers while the
 * program computes. */
typedef struct hc_local_life {
    uint64_t turns, waits;
    int answers;
} hc_local_life;
hc_counter *hc_node_control_turns(hc_node_control *); /* this rank's, for hc_count() */
void hc_node_control_answers(hc_node_control *, int by_itself);
void hc_node_control_wait(hc_node_control *, uint64_t now); /* this rank waits for others now */
/* 1; 0: that rank has not come yet, or has left. */
int hc_node_control_look(hc_node_control *, int32_t local_rank, hc_local_life *);
/* The state of a local rank's process as /proc has it ('R', 'S', 'D', 'T': stopped, 't': by a debugger), 0: unknown. */
char hc_node_control_state(hc_node_control *, int32_t local_rank);
/* The cores of the node's ranks, as each of them has found them when it came. `machine`: as of hc_cores_crowd(). 0: a
 * rank has not come yet. */
int hc_node_control_crowd(hc_node_control *, int32_t machine, hc_crowd *);
int32_t hc_node_control_own_cores(const hc_node_control *); /* that this rank may use */
/* How this rank writes what others read: enum hc_stores, AUTO: as its distance to them wants it. It may change at any
 * time. PLAIN before the first call. [any thread] */
void hc_node_control_set_stores(hc_node_control *, int stores);
int hc_node_control_stores(const hc_node_control *);
/* The stores that this rank has found last to be the right ones; AUTO: it has not measured yet. [any thread] */
int hc_node_control_measured(const hc_node_control *);
/* L3s that the node's ranks are on; 0: that is not known of each of them. */
int32_t hc_node_control_l3s(const hc_node_control *);
/* Memory of the other ranks' processes is read from now on, where the system allows it (CMA: process_vm_readv). */
void hc_node_control_read_memory(hc_node_control *);
/* What one rank of the node says to the others, in any form; they read when, too. The clock is the machine's. */
#define HC_NODE_SAID 4
void hc_node_control_say(hc_node_control *, const uint64_t said[HC_NODE_SAID], uint64_t now);
uint64_t hc_node_control_said(hc_node_control *, uint64_t said[HC_NODE_SAID]);

/* ---- for ext/transport only ------------------------------------------------------------------------ */

#define HC__LOCAL_MAX 256
#define HC__MASK_WORDS (HC__LOCAL_MAX / 64)

/* A set of local ranks. */
typedef struct hc__mask {
    uint64_t word[HC__MASK_WORDS];
} hc__mask;

static inline void hc__mask_add(hc__mask *mask, int32_t rank) {
    mask->word[rank / 64] |= UINT64_C(1) << (rank % 64);
}

int32_t hc__node_control_rank(const hc_node_control *);
int32_t hc__node_control_size(const hc_node_control *);
int32_t hc__node_control_world_rank(const hc_node_control *, int32_t local_rank);

/* Wakes the ranks in `mask` that sleep or are about to. They see what the caller published before. [any thread] */
void hc__doorbells_ring(hc_node_control *, const hc__mask *mask);

/* The control ring from one local rank to another; hc__node_control_ring_room() bytes of data. */
hc__ring *hc__node_control_ring(hc_node_control *, int32_t from, int32_t to);
size_t hc__node_control_ring_room(const hc_node_control *);
/* The writer of a ring to `to` calls this after it has written; it also wakes the reader. */
void hc__node_control_mark_dirty(hc_node_control *, int32_t to);
/* The rings to this rank that were marked since the last call; 0 when there are none. */
int hc__node_control_take_dirty(hc_node_control *, hc__mask *from);

/* 0: the memory of that rank's process cannot be read. */
int hc__node_control_reads(hc_node_control *, int32_t local_rank);
/* Copies n bytes from an address of that rank's process. 0: that failed, and will not be tried again. */
int hc__node_control_read(hc_node_control *, int32_t local_rank, void *into, uint64_t address, size_t n);
/* A rank that takes memory back which others may be reading withdraws first. A reader whose count of that rank is the
 * same after its copy as it was when the address was given has read what was meant. */
void hc__node_control_withdraw(hc_node_control *);
uint64_t hc__node_control_withdrawn(hc_node_control *, int32_t local_rank);

void hc__node_control_measure(hc_node_control *, int stores);
/* 1: this rank and that one are known to be on two L3s. */
int hc__node_control_is_apart(const hc_node_control *, int32_t local_rank);

/* The cells that a local rank owns. */
hc__cells *hc__node_control_cells(const hc_node_control *, int32_t local_rank);

#endif
