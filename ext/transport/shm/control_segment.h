/* SPDX-License-Identifier: Apache-2.0
 *
 * control_segment.h - the node control segment: one per World and node, created before all other segments. It has a
 * doorbell per local rank, rings between ranks, cells, and signs of life.
 */
#pragma once

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

/* Doorbells: a rank sleeps only on its doorbell. To lose no wake-up, call listen, check once more for anything to do,
 * and if there is nothing, call sleep with the result of listen. */
uint32_t hc_doorbell_listen(hc_node_control *);
/* 1: woken; 0: timeout. Never longer than `ns`. */
int hc_doorbell_sleep(hc_node_control *, uint32_t seen, uint64_t ns);
void hc_doorbell_ring(hc_node_control *, int32_t local_rank); /* [any thread] cheap unless that rank sleeps */
void hc_doorbell_ring_all(hc_node_control *);                 /* rings all other ranks */

/* A local rank whose process is gone (its file lock was released by the kernel), or -1. It costs a system call per
 * rank, so call it seldom. Threads (private segments) are lost only after hc_node_control_mark_lost(). */
int32_t hc_node_control_lost(hc_node_control *);
void hc_node_control_mark_lost(hc_node_control *, int32_t local_rank);

/* Signs of life. A rank publishes the number of its progress iterations (a counter with one writer, in its own cache
 * line), the time when it last waited, and whether it has a thread that answers while the program computes. */
typedef struct hc_local_life {
    uint64_t turns, waits;
    int answers;
} hc_local_life;
hc_counter *hc_node_control_turns(hc_node_control *); /* this rank's, for hc_count() */
void hc_node_control_answers(hc_node_control *, int by_itself);
void hc_node_control_wait(hc_node_control *, uint64_t now); /* this rank waits for other ranks now */
/* 1: *life is set; 0: that rank has not started, or has left. */
int hc_node_control_look(hc_node_control *, int32_t local_rank, hc_local_life *);
/* The state of a local rank's process as /proc has it ('R', 'S', 'D', 'T': stopped, 't': by a debugger), 0: unknown. */
char hc_node_control_state(hc_node_control *, int32_t local_rank);
/* The cores of the node's ranks, as each found them at its start. `machine`: as for hc_cores_crowd(). 0: a rank has not
 * started yet. */
int hc_node_control_crowd(hc_node_control *, int32_t machine, hc_crowd *);
int32_t hc_node_control_own_cores(const hc_node_control *); /* number of cores that this rank may use */
/* The stores with which this rank writes data for other ranks: enum hc_stores; AUTO: chosen by their distance. It may
 * change at any time. Default: PLAIN. [any thread] */
void hc_node_control_set_stores(hc_node_control *, int stores);
int hc_node_control_stores(const hc_node_control *);
/* The stores that this rank's last measurement chose; AUTO: none yet. [any thread] */
int hc_node_control_measured(const hc_node_control *);
/* The number of L3 caches that the node's ranks use; 0: unknown for some rank. */
int32_t hc_node_control_l3s(const hc_node_control *);
/* From now on reads the memory of other ranks' processes, where the system allows it (CMA: process_vm_readv). */
void hc_node_control_read_memory(hc_node_control *);
/* A few words that one rank of the node publishes for the others, with the time (of the machine's clock). */
#define HC_NODE_WORDS 4
void hc_node_control_publish(hc_node_control *, const uint64_t words[HC_NODE_WORDS], uint64_t now);
uint64_t hc_node_control_published(hc_node_control *, uint64_t words[HC_NODE_WORDS]);

/* ---- for ext/transport only ------------------------------------------------------------------------ */

#define HC__MASK_WORDS (HC_NODE_RANKS / 64)

/* A set of local ranks. */
typedef struct hc__mask {
    uint64_t word[HC__MASK_WORDS];
} hc__mask;

static inline void hc__mask_add(hc__mask *mask, int32_t rank) {
    mask->word[rank / 64] |= UINT64_C(1) << (rank % 64);
}

int32_t hc__node_control_rank(const hc_node_control *);
int32_t hc__node_control_size(const hc_node_control *);
int hc__node_control_words(const hc_node_control *); /* of a mask, that have ranks of this node */
int32_t hc__node_control_world_rank(const hc_node_control *, int32_t local_rank);

/* Wakes the ranks in `mask` that sleep or are about to sleep. They see all that the caller published before. [any
 * thread] */
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
/* A rank calls this before it reuses memory that other ranks may be reading. A copy is valid if the count of that rank
 * after the copy equals the count that came with the address. */
void hc__node_control_withdraw(hc_node_control *);
uint64_t hc__node_control_withdrawn(hc_node_control *, int32_t local_rank);

void hc__node_control_measure(hc_node_control *, int stores);
/* 1: this rank and that rank are known to use different L3 caches. */
int hc__node_control_is_apart(const hc_node_control *, int32_t local_rank);

/* The state of a slice (slices.c): the word has the generation of the set that uses it << 32, its members that have
 * come << 16, and those that have left; 0: nobody uses it. `units`: reserved; only the leader and the last member to
 * leave write it. */
typedef struct hc__slice_state {
    _Atomic uint64_t word;
    _Atomic uint32_t units;
} hc__slice_state;
hc__slice_state *hc__node_control_slice(const hc_node_control *, int32_t leader, uint32_t number);

/* The cells that a local rank owns. */
hc__cells *hc__node_control_cells(const hc_node_control *, int32_t local_rank);
