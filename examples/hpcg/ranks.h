/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - what the solver asks of its ranks. Each of these is one: hpccoll's plans, MPI's calls as HPCG makes them,
 * MPI's persistent requests.
 */
#ifndef RANKS_H
#define RANKS_H

/* A neighbour: `count` numbers from given + at go to it, and as many of its own come to taken + at. `tag` is that of
 * what is sent, `tag_taken` of what comes. */
typedef struct side {
    int peer, count, at, tag, tag_taken;
} side;

typedef struct ranks {
    const char *name;
    /* All ranks call it. The buffers and the sides stay as they are until close(). */
    void *(*open)(const side *sides, int n, double *given, double *taken);
    void (*exchange)(void *);
    double (*sum)(void *, double mine);
    void (*close)(void *);
} ranks;

extern const ranks on_hpccoll, on_mpi, on_mpi_persistent;

#endif
