/* SPDX-License-Identifier: Apache-2.0
 *
 * stores.h - a rank chooses between ordinary and streaming stores by their measured rates.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The state of a rank's choice for one set. One thread at a time. */
typedef struct hc__choice {
    int stores;                  /* enum hc_stores: PLAIN or STREAM, in use */
    int votes;                   /* of the last trials: those for streaming minus those against */
    int left;                    /* remaining copies of the running trial; 0: no trial */
    int unseen;                  /* remaining copies before the next reading of the clock */
    uint32_t chance;             /* the state of a random number */
    uint64_t due;                /* ns: the next trial */
    double spent[2], slowest[2]; /* in this trial: ns per byte of all copies, and of the slowest; by enum hc_stores */
} hc__choice;

void hc__choice_begin(hc__choice *, int stores); /* `stores`: used until it has tried both */
/* 1: time the next copy, as a part of a trial. 0: use `stores`. */
static inline int hc__choice_looks(hc__choice *choice) {
    return choice->unseen-- <= 0;
}
int hc__choice_next(hc__choice *, uint64_t now); /* the stores of the copy that is timed */
/* 1: it has decided. */
int hc__choice_note(hc__choice *, int stores, size_t bytes, uint64_t started, uint64_t ended);

/* A copy that is timed. */
typedef struct hc__trial {
    int stores; /* enum hc_stores: to copy with */
    uint64_t started;
} hc__trial;

hc__trial hc__trial_begin(hc__choice *);
int hc__trial_end(hc__choice *, const hc__trial *, size_t bytes); /* as hc__choice_note() */
