/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - the interface between the solver and its ranks. It has three implementations: hpccoll's plans, MPI's calls
 * as HPCG makes them, MPI's persistent requests.
 */
#ifndef RANKS_H
#define RANKS_H

/* A neighbour: it gets `count` numbers from given + at, and sends as many, which arrive at taken + at. `tag` is the tag
 * of the sent message, `tag_taken` that of the received one. */
typedef struct side {
    int peer, count, at, tag, tag_taken;
} side;

typedef struct ranks {
    const char *name;
    /* All ranks call it. Do not change or free the buffers and the sides before close(). */
    void *(*open)(const side *sides, int n, double *given, double *taken);
    void (*exchange)(void *);
    double (*sum)(void *, double mine);
    void (*close)(void *);
} ranks;

extern const ranks on_hpccoll, on_mpi, on_mpi_persistent;

#endif
