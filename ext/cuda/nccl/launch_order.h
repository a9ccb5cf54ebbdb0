/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_order.h - the order in which the sets of a World call NCCL, the same on all ranks: private to ext/cuda.
 *
 * A kernel of NCCL holds its GPU while it waits for other ranks. Where two communicators share two ranks and are called
 * in different orders there, each may hold the GPU that the other one waits for. So batches of different sets take turns:
 *
 *     ask     propose a number for the batch, larger than any that this rank knows; the largest that its ranks propose is
 *             the batch's (eight bytes through the host's data plane)
 *     test    until no other batch here has a smaller number, or can still get one
 *     end     its last call has been taken in; what comes next waits on the device for what was launched
 *
 * This is Skeen's order of multicasts by logical clocks (Birman and Joseph, Reliable communication in the presence of
 * failures, 1987). Nobody waits in a circle: who waits, waits for a smaller number.
 */
#ifndef HC_TURNS_H
#define HC_TURNS_H

#include "cuda/driver/device.h"

typedef struct hc__turn {
    hc_turns *turns; /* of this rank; NULL: this set needs none */
    hc_data *host;   /* of the set; idle while a turn is asked for */
    uint32_t set;    /* decides between equal numbers */

    struct hc__turn *next; /* of those that this rank has asked for, while `waiting` */
    uint8_t waiting, agreed;
    uint64_t number; /* proposed, then agreed */
    int64_t proposed, largest;
    hc_batch batch;
    hc_piece piece;
} hc__turn;

int hc__turn_ask(hc__turn *);
/* HC_DONE: it is this batch's turn; else enum hc_progress, or a status. */
int hc__turn_test(hc__turn *);
/* `launched`: an event behind all that the batch has launched. */
void hc__turn_end(hc__turn *, hc_gpu_event launched);
void hc__turn_drop(hc__turn *); /* the batch is given up */
/* The event will be freed. */
void hc__turn_forget(hc__turn *, hc_gpu_event launched);

#endif
