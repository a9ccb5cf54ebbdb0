/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.c - memory of one simulated run.
 */
#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_chunk {
    struct sim_chunk *next;
    size_t size;
    max_align_t bytes[];
};

enum { CHUNK = 1 << 16 };

void *sim_take(sim_arena *a, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (!a->chunks || a->used + bytes > a->chunks->size) {
        size_t size = bytes > CHUNK ? bytes : CHUNK;
        struct sim_chunk *c = malloc(sizeof *c + size);
        if (!c) {
            fprintf(stderr, "simulator: out of memory\n");
            exit(2);
        }
        c->next = a->chunks;
        c->size = size;
        a->chunks = c;
        a->used = 0;
    }
    void *p = (char *)a->chunks->bytes + a->used;
    a->used += bytes;
    return memset(p, 0, bytes);
}

void *sim_copy(sim_arena *a, const void *from, size_t bytes) {
    void *p = sim_take(a, bytes ? bytes : 1);
    return bytes ? memcpy(p, from, bytes) : p;
}

void *sim_grow(sim_arena *a, void *vector, int n, int *room, size_t width) {
    if (n < *room)
        return vector;
    int more = *room ? 2 * *room : 8;
    void *p = sim_take(a, (size_t)more * width);
    if (n)
        memcpy(p, vector, (size_t)n * width);
    *room = more;
    return p;
}

void sim_arena_reset(sim_arena *a) {
    while (a->chunks) {
        struct sim_chunk *next = a->chunks->next;
        free(a->chunks);
        a->chunks = next;
    }
    a->used = 0;
}
