/* SPDX-License-Identifier: Apache-2.0
 *
 * stores.c - a rank chooses between ordinary and streaming stores by their measured rates.
 *
 * The better stores depend on where the readers run (kernels/copy.h). That is certain only for bound ranks on a real
 * machine: a virtual machine shows invented caches, and its host moves its processors between L3s every few seconds.
 * But the writer can measure it: ordinary stores to lines in another L3 take two to seven times as long as streaming
 * stores, because each line is fetched first. So now and then a rank makes some copies with ordinary stores, then as
 * many with streaming stores, and compares their times. The slowest copy of each kind does not count, for other work
 * may have interrupted it; the fastest alone would mislead, because lines that no cache holds are written fast at any
 * distance. The rule compares rates and has no nanoseconds in it, so it holds on any processor.
 *
 * The choice changes no result, so each rank makes it alone, at any time.
 */
#include "transport/shm/stores.h"

#include "transport/arithmetic.h"

#include <time.h>

/* A trial makes COPIES copies of each kind, because the first ordinary ones after streaming stores are slow at any
 * distance. The next trial begins EVERY_NS later, and at least TIMES the copies' own time later, so that trials take at
 * most one hundredth of the time. Three equal trials in a row change any choice: it follows a change of the distance
 * within a tenth of a second, or within a few tenths if the copies have 256 KiB or more. */
#define COPIES 8
#define EVERY_NS UINT64_C(10000000)
#define TIMES 100
#define VOTES_MOST 2
/* Copies between two readings of the clock, each of which costs a tenth of the smallest copy. */
#define UNSEEN 15
/* One in BEGINS readings of the clock begins a trial that is due. Without chance most trials would fall on the first
 * copies of a call, for which other work has emptied the caches: those tell nothing about the distance. */
#define BEGINS 4
/* Rate of ordinary stores / of streaming ones. Nine of ten trials found less than 0.5 between two L3s and more than
 * 0.5 in one (Zen 3, copies of up to 64 KiB; tests/transport/shm/rates.txt has some). */
#define IS_APART 0.5
#define IS_NEAR 0.6
/* Here a wrong choice costs so much that the trial is repeated at once. Streaming stores in one L3 cost far less. */
#define IS_DEAR 0.25

void hc__choice_begin(hc__choice *choice, int stores) {
    int votes = stores == HC_STORES_STREAM ? 1 : -1; /* a guess, which two trials change */
    *choice = (hc__choice){.stores = stores, .votes = votes, .unseen = UNSEEN, .chance = 1};
}

static int begins(hc__choice *choice) {
    choice->chance = choice->chance * 1664525u + 1013904223u; /* Numerical Recipes, 7.1 */
    return (choice->chance >> 16) % BEGINS == 0;
}

int hc__choice_next(hc__choice *choice, uint64_t now) {
    if (!choice->left && (now < choice->due || !begins(choice))) {
        choice->unseen = UNSEEN;
        return choice->stores;
    }
    if (!choice->left) {
        choice->left = 2 * COPIES;
        for (int kind = HC_STORES_PLAIN; kind <= HC_STORES_STREAM; kind++)
            choice->spent[kind] = choice->slowest[kind] = 0;
    }
    return choice->left > COPIES ? HC_STORES_PLAIN : HC_STORES_STREAM;
}

/* The time of the copies per byte, without the slowest one, which other work may have interrupted. */
static double time_of(const hc__choice *choice, int stores) {
    return choice->spent[stores] - choice->slowest[stores];
}

/* 1: the choice is wrong, and dear. */
static int decide(hc__choice *choice) {
    double plain = 1 / time_of(choice, HC_STORES_PLAIN), stream = 1 / time_of(choice, HC_STORES_STREAM);
    if (plain < IS_APART * stream && choice->votes < VOTES_MOST)
        choice->votes++;
    else if (plain > IS_NEAR * stream && choice->votes > -VOTES_MOST)
        choice->votes--;
    if (choice->votes)
        choice->stores = choice->votes > 0 ? HC_STORES_STREAM : HC_STORES_PLAIN;
    return choice->stores == HC_STORES_PLAIN && plain < IS_DEAR * stream;
}

int hc__choice_note(hc__choice *choice, int stores, size_t bytes, uint64_t started, uint64_t ended) {
    if (!choice->left)
        return 0;
    double time = (double)(ended > started ? ended - started : 1) / (double)bytes;
    choice->spent[stores] += time;
    if (time > choice->slowest[stores])
        choice->slowest[stores] = time;
    if (--choice->left)
        return 0;
    double copies = (time_of(choice, HC_STORES_PLAIN) + time_of(choice, HC_STORES_STREAM)) * (double)bytes;
    uint64_t pause = (uint64_t)(copies * TIMES);
    int is_dear = decide(choice);
    choice->due = is_dear ? ended : ended + (pause > EVERY_NS ? pause : EVERY_NS);
    choice->unseen = is_dear ? 0 : UNSEEN;
    return 1;
}

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

hc__trial hc__trial_begin(hc__choice *choice) {
    uint64_t now = clock_ns();
    return (hc__trial){hc__choice_next(choice, now), now};
}

int hc__trial_end(hc__choice *choice, const hc__trial *trial, size_t bytes) {
    return hc__choice_note(choice, trial->stores, bytes, trial->started, clock_ns());
}
