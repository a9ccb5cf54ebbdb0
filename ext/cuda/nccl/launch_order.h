/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order.h - the order in which the sets of a World call NCCL, the same on all ranks: private to ext/cuda.
 *
 * A kernel of NCCL holds its GPU while it waits for other ranks. If two ranks call two communicators in different
 * orders, each communicator may hold the GPU that the other waits for: a deadlock. So all ranks launch the batches of
 * different sets in one order:
 *
 *     ask     proposes a number for the batch, larger than any known to this rank; the batch gets the largest proposal
 *             of its ranks (eight bytes through the host's data plane)
 *     test    waits until no other batch here has a smaller number, or can still get one
 *     end     NCCL has taken the last call; the next batch waits on the device for the launched work
 *
 * This is Skeen's order of multicasts by logical clocks (Birman and Joseph, Reliable communication in the presence of
 * failures, 1987). Batches never wait in a circle, because each waits for a smaller number.
 */
#pragma once

#include "cuda/driver/device.h"

typedef struct hc__launch_slot {
    hc_launch_order *order; /* of this rank; NULL: this set needs none */
    hc_data *host;          /* of the set; idle while a place is asked for */
    uint32_t set;           /* decides between equal numbers */

    struct hc__launch_slot *next; /* in the list of this rank's open slots, while `waiting` */
    uint8_t waiting, agreed;
    uint64_t number; /* proposed, then agreed */
    int64_t proposed, largest;
    hc_batch batch;
    hc_piece piece;
} hc__launch_slot;

int hc__launch_slot_ask(hc__launch_slot *);
/* HC_DONE: it is this batch's turn; else enum hc_progress, or a status. */
int hc__launch_slot_test(hc__launch_slot *);
/* `launched`: an event recorded after all work of the batch. */
void hc__launch_slot_end(hc__launch_slot *, hc_gpu_event launched);
void hc__launch_slot_drop(hc__launch_slot *); /* the batch failed before its end */
/* Call it before the event is freed. */
void hc__launch_slot_forget(hc__launch_slot *, hc_gpu_event launched);
