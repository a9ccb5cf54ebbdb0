/* SPDX-License-Identifier: Apache-2.0
 *
 * failures.c - delays the report of a disagreement of the ranks until the program's other operations have started.
 *
 * After an operation of a program has failed, a framework starts no further operation of it. The ranks learn of the
 * failure at the same point of the log, but by then they may have started different operations. An operation that only
 * some ranks have started would wait until the stall limit. So the report of the failure waits until no operation is in
 * flight and none has started for a while.
 */
#include "gate/failures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS 10000000l /* between two tests */
#define QUIET 100         /* quiet tests in a row: nothing in flight, nothing started; a second */
#define MOST 1000         /* limit of all tests; the stall report names an operation that never ends */

static atomic_ulong begun, ended;
static atomic_ulong failed, reported; /* reports keep the log's order, as a framework raises the first */

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
    for (int look = 0; atomic_load(&reported) < f->turn && look < MOST; look++)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    hc_gate_result result = {.status = f->status, .text = f->text};
    f->done(f->context, &result);
    atomic_fetch_add(&reported, 1);
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
        atomic_fetch_add(&reported, 1);
        free(f);
        return 0;
    }
    pthread_detach(thread);
    return 1;
}
