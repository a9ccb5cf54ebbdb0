/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_state.h - the state of a shared-memory node. (Private to ext/transport/shm.)
 *
 * The segment has, in this order: the number of ranks that have left, marks (three counters per rank), small slots (two
 * per rank), slots (each rank's input of the newest chunks), results (of all chunks in flight), and,
 * but for a plan's, the shortcut (two words for the count and two for an outcome, two slots per rank and two for a
 * result, two areas for large parts per rank).
 *
 * Chunks have sequence numbers over all batches of the node, from 1, the same on all ranks. Only its owner writes a
 * mark. It holds the newest sequence number for which this is true of the owner:
 *
 *     packed     my input is in my slot
 *     reduced    my share of the result is complete, and I have finished reading the other ranks' slots
 *     published  (rail drivers) the rail's shard has been through the network;
 *                (direct stage) I have finished reading the other ranks' memory
 *
 * The marks are enough for the reuse of slots and results. Let S be the slots of a rank, and D the results (the depth).
 *   (1) pack(n) comes after my own spread(n - D).
 *   (2) pack(n) comes after every rank's `reduced` is at least n - S: no rank reads my slot of n - S any more. If S is
 *       D, this follows from (1), because spread(n - D) ends when all shares of n - D are final.
 *   (3) I write my share of result n after every rank's `packed` is at least n; by (1) every rank has spread n - D
 *       before that, so no rank reads the old result.
 * The first chunk of a batch is packed after (2) and (3) hold for all chunks of the last batch, so each batch may lay
 * out slots and results anew. Exchanges that follow each other keep their layout, and (2) is enough for them. A mark
 * is stored with release after its data, and loaded with acquire before the data is read (packed, published) or
 * overwritten (reduced).
 */
#pragma once

#include "transport/node.h"
#include "transport/shm/allreduce.h"
#include "transport/shm/chunks.h"
#include "transport/shm/control_segment.h"
#include "transport/shm/exchange.h"
#include "transport/shm/layout.h"
#include "transport/shm/pieces.h"
#include "transport/shm/segment.h"
#include "transport/shm/shortcut_state.h"
#include "transport/shm/small.h"
#include "transport/shm/stores.h"

typedef struct hc__shm {
    hc_node base;
    hc_segment segment;
    hc_node_control *node_control;
    hc__mask peers; /* the other ranks, by local rank in the node control segment */
    hc__choice choice;
    hc__places places;
    hc_shortcut shortcut;
    hc__operands operands;
    uint64_t sequence; /* chunks of all closed batches */
    hc__small_path small;
    hc__open_batch open;
    hc__batch_parts parts;
    hc__chunks chunks;
    hc__scans scans;
    hc__rounds rounds;
} hc__shm;

static inline hc__shm *hc__shm_of(hc_node *node) {
    return (hc__shm *)node;
}
