/* SPDX-License-Identifier: Apache-2.0
 *
 * line.c - bounces a cache line between two processes.
 *
 * The word holds the turn and the number of the trip: the first process writes odd numbers, the second one even ones.
 * The first one decides when it ends, and writes END. A process that loses its core during a trip makes this trip slow,
 * so the trips are timed in small groups, of which the fastest counts.
 */
#include "fleet/line.h"

#include <sched.h>
#include <time.h>

enum { GROUPS = 12, TRIPS = 12, SPINS = 2000 };

#define END 0xffffffffu
#define COMING 20000000ull     /* ns that the first process waits for the other one */
#define LONGEST 2000000ull     /* ns after which no new group begins */
#define PATIENCE 2000000000ull /* ns after which the second process believes that the first one is gone */

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static uint64_t word_of(uint32_t turn, uint32_t trip) {
    return (uint64_t)turn << 32 | trip;
}

/* Waits until the word has changed to a number of this turn that is not `seen`; 0 at the end of the time. */
static uint64_t changed(const fleet_line *line, uint64_t seen, uint32_t turn, uint64_t until) {
    for (uint32_t spins = 1;; spins++) {
        uint64_t word = __atomic_load_n(&line->word, __ATOMIC_ACQUIRE);
        if (word != seen && word >> 32 == turn)
            return word;
        if (spins % SPINS == 0) { /* the other process may wait for this core */
            if (now() > until)
                return 0;
            sched_yield();
        }
    }
}

static int replaced(fleet_line *line, uint64_t seen, uint64_t word) {
    return __atomic_compare_exchange_n(&line->word, &seen, word, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* A round trip of the first process; 0: there was no answer until then, and the turn is over. */
static int trip(fleet_line *line, uint32_t turn, uint32_t *number, uint64_t until) {
    uint64_t sent = word_of(turn, *number + 1);
    __atomic_store_n(&line->word, sent, __ATOMIC_RELEASE);
    *number += 2;
    return changed(line, sent, turn, until) || !replaced(line, sent, word_of(turn, END));
}

static double lead(fleet_line *line, uint32_t turn) {
    uint64_t began = now(), fastest = UINT64_MAX;
    uint32_t number = 0;
    if (!trip(line, turn, &number, began + COMING))
        return 0;
    began = now();
    for (int group = 0; group < GROUPS && now() - began < LONGEST; group++) {
        uint64_t at = now();
        for (int i = 0; i < TRIPS; i++)
            if (!trip(line, turn, &number, began + COMING))
                return 0;
        uint64_t took = (now() - at) / TRIPS;
        fastest = took < fastest ? took : fastest;
    }
    __atomic_store_n(&line->word, word_of(turn, END), __ATOMIC_RELEASE);
    return (double)fastest / 2e9;
}

static double follow(fleet_line *line, uint32_t turn) {
    uint64_t until = now() + PATIENCE, seen = 0;
    for (;;) {
        uint64_t word = changed(line, seen, turn, until);
        if (!word || (uint32_t)word == END)
            return word && seen;
        seen = word + 1;
        if (!replaced(line, word, seen)) /* the first process did not wait any longer */
            return 0;
    }
}

double fleet_line_bounce(fleet_line *line, uint32_t turn, int first) {
    return first ? lead(line, turn) : follow(line, turn);
}

int fleet_processor(void) {
    return sched_getcpu();
}
