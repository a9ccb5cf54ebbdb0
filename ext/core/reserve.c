/* SPDX-License-Identifier: Apache-2.0
 *
 * reserve.c - allocates blocks of one region, first fit. It is slow, and used only when malloc() fails.
 */
#include "core/reserve.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64u /* of a cache; the region begins at one */

/* The header of a block, one cache line long; blocks follow each other without gaps. */
typedef struct block {
    size_t bytes; /* after the header, a multiple of a line */
    size_t used;
} block;

static _Atomic(char *) region;
static _Atomic size_t room_in_all;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void enter(void) {
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
        ;
}

static void leave(void) {
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

static block *block_of(void *at) {
    return (block *)(void *)((char *)at - LINE);
}

static block *next(block *b) {
    return (block *)(void *)((char *)b + LINE + b->bytes);
}

static int is_ours(const void *at) {
    char *begin = atomic_load_explicit(&region, memory_order_acquire);
    return begin && (uintptr_t)at - (uintptr_t)begin < atomic_load_explicit(&room_in_all, memory_order_relaxed);
}

int hc_reserve_give(void *given, size_t bytes) {
    enter();
    int taken = !atomic_load(&region);
    if (taken) {
        *(block *)given = (block){.bytes = bytes - LINE};
        atomic_store(&room_in_all, bytes);
        atomic_store(&region, given);
    }
    leave();
    return taken;
}

int hc_reserve_exists(void) {
    return atomic_load(&region) != NULL;
}

/* Merges the block with the free blocks after it. */
static void merge(block *b) {
    for (block *after = next(b); is_ours(after) && !after->used; after = next(b))
        b->bytes += LINE + after->bytes;
}

static void split(block *b, size_t bytes) {
    if (b->bytes < bytes + 2 * LINE)
        return;
    size_t left = b->bytes - bytes - LINE;
    b->bytes = bytes;
    *next(b) = (block){.bytes = left};
}

void *hc_reserve_take(size_t bytes) {
    if (bytes > SIZE_MAX - LINE)
        return NULL;
    void *found = NULL;
    size_t room = (bytes + LINE) / LINE * LINE; /* a line at least */
    enter();
    for (block *b = (block *)(void *)atomic_load(&region); is_ours(b) && !found; b = next(b)) {
        if (b->used)
            continue;
        merge(b);
        if (b->bytes < room)
            continue;
        split(b, room);
        b->used = 1;
        found = (char *)b + LINE;
    }
    leave();
    return found;
}

void *hc_malloc(size_t bytes) {
    void *at = malloc(bytes);
    return at ? at : hc_reserve_take(bytes);
}

void *hc_calloc(size_t n, size_t bytes) {
    void *at = calloc(n, bytes);
    if (at || (bytes && n > SIZE_MAX / bytes))
        return at;
    at = hc_reserve_take(n * bytes);
    return at ? memset(at, 0, n * bytes) : NULL;
}

void *hc_realloc(void *old, size_t had, size_t bytes) {
    int ours = is_ours(old);
    void *at = ours ? NULL : realloc(old, bytes);
    if (at)
        return at;
    at = ours ? hc_malloc(bytes) : hc_reserve_take(bytes);
    if (at && had)
        memcpy(at, old, had < bytes ? had : bytes);
    if (at)
        hc_free(old);
    return at;
}

char *hc_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = hc_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

void hc_free(void *at) {
    if (!is_ours(at)) {
        free(at);
        return;
    }
    enter();
    block_of(at)->used = 0;
    leave();
}
