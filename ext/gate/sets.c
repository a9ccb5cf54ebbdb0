/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.c - the process sets that are open in the gate.
 *
 * A compiled program has the number of its set and may outlive the set, so numbers are never reused. Only the World of
 * init() has a constant number, under which a program finds the current World. A set is closed before its loop ends,
 * and closing waits for the callers inside.
 */
#include "gate/sets.h"
#include "loop/waiting.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    hc_gate_place place; /* first */
    uint64_t number;
    int is_world;
    int inside, closed;
    int32_t *members;
    struct entry *next;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *entries;
static uint64_t numbers = HC_GATE_WORLD;

static entry *find(uint64_t number) {
    entry *e = entries;
    while (e && (e->closed || (number == HC_GATE_WORLD ? !e->is_world : e->number != number)))
        e = e->next;
    return e;
}

static entry *find_place(const hc_gate_place *place) {
    entry *e = entries;
    while (e && (e->closed || e->place.loop != place->loop || e->place.set != place->set ||
                 e->place.generation != place->generation))
        e = e->next;
    return e;
}

static entry *add(const hc_gate_place *place) {
    size_t bytes = (size_t)place->size * sizeof(int32_t);
    entry *e = calloc(1, sizeof *e);
    int32_t *members = malloc(bytes ? bytes : 1);
    if (!e || !members) {
        free(e);
        free(members);
        return NULL;
    }
    memcpy(members, place->members, bytes);
    *e = (entry){.place = *place, .number = ++numbers, .members = members, .next = entries};
    e->place.members = members;
    return entries = e;
}

int hc_gate_open(const hc_gate_place *place, int is_world, uint64_t *number) {
    pthread_mutex_lock(&lock);
    entry *e = find_place(place);
    if (!e)
        e = add(place);
    if (e && is_world) {
        entry *before = find(HC_GATE_WORLD);
        if (before)
            before->is_world = 0;
        e->is_world = 1;
    }
    if (e)
        *number = e->is_world ? HC_GATE_WORLD : e->number;
    pthread_mutex_unlock(&lock);
    return e ? HC_OK : HC_NO_MEMORY;
}

static int refuse(int status, char *text, const char *why) {
    snprintf(text, HC_GATE_TEXT, "%s", why);
    return status;
}

/* Checks that the loop can serve a compiled program: OK, or a status with a text. */
static int prepare(hc_loop *loop, char *text) {
    switch (hc_loop_start_completions(loop)) {
    case HC_OK:
        return HC_OK;
    case HC_FORKED:
        return refuse(HC_FORKED, text, "this process was forked after hpccoll.init(); the World is its parent's");
    case HC_UNSUPPORTED:
        return refuse(HC_UNSUPPORTED, text,
                      "a compiled program needs a background thread, and this World has none: the line that "
                      "hpccoll.init() prints says why");
    default:
        return refuse(HC_NO_MEMORY, text, "a thread that a compiled program needs could not be started");
    }
}

int hc__gate_enter(uint64_t number, const hc_gate_place **place, char text[HC_GATE_TEXT]) {
    pthread_mutex_lock(&lock);
    entry *e = find(number);
    int status = e ? prepare(e->place.loop, text) : HC_SHUT_DOWN;
    if (status == HC_OK) {
        e->inside++;
        *place = &e->place;
    }
    pthread_mutex_unlock(&lock);
    if (e)
        return status;
    return refuse(HC_SHUT_DOWN, text,
                  number == HC_GATE_WORLD ? "a compiled program runs while there is no World: call hpccoll.init() first"
                                          : "a compiled program runs whose process set has ended: make the set again, "
                                            "and compile the program anew");
}

void hc__gate_leave(const hc_gate_place *place) {
    entry *e = (entry *)(uintptr_t)place;
    pthread_mutex_lock(&lock);
    e->inside--;
    pthread_mutex_unlock(&lock);
}

/* Closes the matching sets. Removes and returns one without callers inside; `*left`: others have callers inside. */
static entry *take_closed(const hc_loop *loop, int64_t set, int *left) {
    for (entry **link = &entries; *link; link = &(*link)->next) {
        entry *e = *link;
        if (e->place.loop != loop || (set >= 0 && e->place.set != set))
            continue;
        e->closed = 1;
        *left |= e->inside;
        if (e->inside)
            continue;
        *link = e->next;
        return e;
    }
    return NULL;
}

void hc_gate_close(hc_loop *loop, int64_t set) {
    for (;;) {
        int left = 0;
        pthread_mutex_lock(&lock);
        entry *e = take_closed(loop, set, &left);
        pthread_mutex_unlock(&lock);
        if (!e && !left)
            return;
        if (!e)
            hc__wait_at_end();
        else
            free(e->members);
        free(e);
    }
}
