/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order.h - the order in which the sets of a World call NCCL, the same on all ranks: private to ext/cuda.
 *
 * A kernel of NCCL holds its GPU while it waits for other ranks. Where two communicators share two ranks and are called
 * in different orders there, each may hold the GPU that the other one waits for. So all ranks launch the batches of
 * different sets in one order:
 *
 *     ask propose a number for the batch, larger than any that this rank knows; the largest that its ranks propose is
 *             the batch's (eight bytes through the host's data plane)
 *     test    until no other batch here has a smaller number, or can still get one
 *     end     its last call has been taken in; what comes next waits on the device for what was launched
 *
 * This is Skeen's order of multicasts by logical clocks (Birman and Joseph, Reliable communication in the presence of
 * failures, 1987). No batches wait in a circle, because each waits for a smaller number.
 */
#ifndef HC_LAUNCH_ORDER_H
#define HC_LAUNCH_ORDER_H

#include "cuda/driver/device.h"

typedef struct hc__launch_slot {
    hc_launch_order *order; /* of this rank; NULL: this set needs none */
    hc_data *host;          /* of the set; idle while a place is asked for */
    uint32_t set;           /* decides between equal numbers */

    struct hc__launch_slot *next; /* of those that this rank has asked for, while `waiting` */
    uint8_t waiting, agreed;
    uint64_t number; /* proposed, then agreed */
    int64_t proposed, largest;
    hc_batch batch;
    hc_piece piece;
} hc__launch_slot;

int hc__launch_slot_ask(hc__launch_slot *);
/* HC_DONE: this batch is the next; else enum hc_progress, or a status. */
int hc__launch_slot_test(hc__launch_slot *);
/* `launched`: an event behind all that the batch has launched. */
void hc__launch_slot_end(hc__launch_slot *, hc_gpu_event launched);
void hc__launch_slot_drop(hc__launch_slot *); /* the batch is given up */
/* The event will be freed. */
void hc__launch_slot_forget(hc__launch_slot *, hc_gpu_event launched);

#endif
