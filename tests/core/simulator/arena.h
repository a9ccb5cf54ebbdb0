/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.h - memory of one simulated run: taken piece by piece, given back all at once.
 */
#ifndef SIM_ARENA_H
#define SIM_ARENA_H

#include <stddef.h>

typedef struct sim_arena {
    struct sim_chunk *chunks; /* the newest first */
    size_t used;              /* bytes of the newest chunk */
} sim_arena;

/* Zeroed memory that lives until sim_arena_reset(). Ends the process when there is none. */
void *sim_take(sim_arena *, size_t bytes);

/* A copy of `bytes` bytes. */
void *sim_copy(sim_arena *, const void *from, size_t bytes);

/* Makes room for one more element of `width` bytes in a vector of *room elements, `n` of them in use. */
void *sim_grow(sim_arena *, void *vector, int n, int *room, size_t width);

/* Gives everything back. */
void sim_arena_reset(sim_arena *);

#endif
