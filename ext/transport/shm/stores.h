/* SPDX-License-Identifier: Apache-2.0
 *
 * stores.h - the choice of a rank between ordinary and streaming stores, by the rates at which it writes.
 */
#ifndef HC_STORES_H
#define HC_STORES_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a copy from which on a rank may stream. Below, the fence costs more than the stores. */
#define HC__STREAM_LEAST ((size_t)4 << 10)

/* What a rank knows of its stores to the ranks of one set. One thread at a time. */
typedef struct hc__choice {
    int stores;     /* enum hc_stores: PLAIN or STREAM, in use */
    int votes;      /* of the last trials: for streaming less those against */
    int left;       /* copies of the trial that is under way; 0: none is */
    int unseen;     /* copies to come for which nobody need look at the clock */
    uint64_t due;   /* ns: the next trial */
    double best[2]; /* bytes per ns in this trial, by enum hc_stores */
} hc__choice;

void hc__choice_begin(hc__choice *, int stores); /* what it uses until it has tried both */
/* 1: the next copy is to be timed. Its stores are hc__choice_next(), and hc__choice_note() says how it went. Else they
 * are those in use. */
static inline int hc__choice_looks(hc__choice *choice) {
    return choice->unseen-- <= 0;
}
int hc__choice_next(hc__choice *, uint64_t now);
/* 1: it has decided. */
int hc__choice_note(hc__choice *, int stores, size_t bytes, uint64_t started, uint64_t ended);

#endif
