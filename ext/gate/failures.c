/* SPDX-License-Identifier: Apache-2.0
 *
 * failures.c - what ranks disagree on is told to a framework when its program has begun its other operations.
 *
 * A framework begins nothing more of a program of which one operation has failed. The ranks learn of the failure at
 * the same point of the log, but each has begun other operations of the program by then. One that only some ranks have
 * begun would wait for the rest until the stall limit. So the failure waits until what is in flight has ended and
 * nothing more was begun for a while.
 */
#include "gate/failures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS 10000000l /* between two looks */
#define QUIET 100         /* so many looks in a row at which nothing is in flight and nothing was begun: a second */
#define MOST 1000         /* looks in all: an operation that never ends is reported by the stall report */

static atomic_ulong begun, ended;
static atomic_ulong failed, told; /* a framework raises the first it hears of: it hears them in the log's order */

void hc__gate_began(void) {
    atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed);
}

void hc__gate_ended(void) {
    atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
}

typedef struct failure {
    void (*done)(void *, hc_gate_result *);
    void *context;
    int status;
    unsigned long turn;
    char text[HC_GATE_TEXT];
} failure;

static void *tell(void *argument) {
    failure *f = argument;
    unsigned long last = 0;
    int quiet = 0;
    for (int look = 0; quiet < QUIET && look < MOST; look++) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        unsigned long over = atomic_load(&ended), now = atomic_load(&begun);
        quiet = now == last && now == over ? quiet + 1 : 0;
        last = now;
    }
    for (int look = 0; atomic_load(&told) < f->turn && look < MOST; look++)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    hc_gate_result result = {.status = f->status, .text = f->text};
    f->done(f->context, &result);
    atomic_fetch_add(&told, 1);
    free(f);
    return NULL;
}

int hc__gate_fail_later(void (*done)(void *, hc_gate_result *), void *context, const hc_gate_result *result) {
    pthread_t thread;
    failure *f = malloc(sizeof *f);
    if (!f)
        return 0;
    f->done = done;
    f->context = context;
    f->status = result->status;
    snprintf(f->text, sizeof f->text, "%s", result->text);
    f->turn = atomic_fetch_add(&failed, 1);
    if (pthread_create(&thread, NULL, tell, f)) {
        atomic_fetch_add(&told, 1);
        free(f);
        return 0;
    }
    pthread_detach(thread);
    return 1;
}
