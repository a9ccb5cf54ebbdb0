/* SPDX-License-Identifier: Apache-2.0
 *
 * hpcg.c - the communication pattern of HPCG (hpcg-benchmark.org): conjugate gradients with one symmetric Gauss-Seidel
 * sweep as preconditioner, for the 27-point stencil on a box per rank. An iteration exchanges the halo with up to 26
 * neighbours twice and sums three dot products, each where its value is needed. Unlike HPCG it has no matrix in memory
 * and no coarser grids, so that communication weighs more.
 *
 *     hpcg POINTS [ITERATIONS [ROUNDS]]
 *
 * The same solver runs on hpccoll and on MPI, in turn. A line for each of them has the residual, the sum of the
 * solution, and the median time of an iteration on the slowest rank.
 */
#include "ranks.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAYS 3
#define DIRECTIONS 27
static const ranks *const ways[WAYS] = {&on_hpccoll, &on_mpi, &on_mpi_persistent};

/* A box of n^3 points with a halo of one point around it: m = n + 2. */
typedef struct box {
    int n, m, place[3], dims[3], nsides;
    side sides[DIRECTIONS];
    int first[DIRECTIONS][3], extent[DIRECTIONS][3]; /* the points that are sent to each side */
    int step[DIRECTIONS][3];                         /* towards that side */
    double *given, *taken;
} box;

static void *room(size_t count) {
    void *memory = calloc(count + 1, sizeof(double));
    if (!memory)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return memory;
}

/* ---- the grid of ranks ----------------------------------------------------------------------------------- */

/* The rank in a direction, or -1 beyond the end of the grid. */
static int rank_towards(const box *b, const int step[3]) {
    int rank = 0;
    for (int d = 0; d < 3; d++) {
        int at = b->place[d] + step[d];
        if (at < 0 || at >= b->dims[d])
            return -1;
        rank = rank * b->dims[d] + at;
    }
    return rank;
}

static void add_side(box *b, int direction, int *used) {
    int step[3] = {direction / 9 - 1, direction / 3 % 3 - 1, direction % 3 - 1}, i = b->nsides, count = 1;
    int peer = rank_towards(b, step);
    if (peer < 0 || direction == DIRECTIONS / 2)
        return;
    memcpy(b->step[i], step, sizeof step);
    for (int d = 0; d < 3; d++) {
        b->first[i][d] = step[d] > 0 ? b->n : 1;
        b->extent[i][d] = step[d] ? 1 : b->n;
        count *= b->extent[i][d];
    }
    b->sides[b->nsides++] = (side){peer, count, *used, direction, DIRECTIONS - 1 - direction};
    *used += count;
}

static void make_box(box *b, int n) {
    int rank, size, used = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    *b = (box){.n = n, .m = n + 2};
    MPI_Dims_create(size, 3, b->dims);
    b->place[0] = rank / (b->dims[1] * b->dims[2]);
    b->place[1] = rank / b->dims[2] % b->dims[1];
    b->place[2] = rank % b->dims[2];
    for (int direction = 0; direction < DIRECTIONS; direction++)
        add_side(b, direction, &used);
    b->given = room((size_t)used);
    b->taken = room((size_t)used);
}

/* ---- halos ----------------------------------------------------------------------------------------------- */

static size_t index_of(const box *b, int x, int y, int z) {
    return ((size_t)x * (size_t)b->m + (size_t)y) * (size_t)b->m + (size_t)z;
}

/* Copies the points of a side to its part of the buffer, or that part to the halo behind the side. */
static void copy_side(const box *b, int i, double *v, double *buffer, int to_halo) {
    const int *from = b->first[i], *extent = b->extent[i], *step = b->step[i];
    double *at = buffer + b->sides[i].at;
    for (int x = 0; x < extent[0]; x++)
        for (int y = 0; y < extent[1]; y++)
            for (int z = 0; z < extent[2]; z++, at++) {
                int by = to_halo ? 1 : 0;
                double *point =
                    &v[index_of(b, from[0] + x + by * step[0], from[1] + y + by * step[1], from[2] + z + by * step[2])];
                if (to_halo)
                    *point = *at;
                else
                    *at = *point;
            }
}

static void fill_halo(const box *b, const ranks *way, void *state, double *v) {
    for (int i = 0; i < b->nsides; i++)
        copy_side(b, i, v, b->given, 0);
    way->exchange(state);
    for (int i = 0; i < b->nsides; i++)
        copy_side(b, i, v, b->taken, 1);
}

/* ---- the solver ------------------------------------------------------------------------------------------ */

static double neighbours(const box *b, const double *v) {
    double sum = -v[0];
    long plane = (long)b->m * b->m;
    for (long dx = -plane; dx <= plane; dx += plane)
        for (long dy = -b->m; dy <= b->m; dy += b->m)
            sum += v[dx + dy - 1] + v[dx + dy] + v[dx + dy + 1];
    return sum;
}

#define FOR_POINTS(b, i)                     \
    for (int ix = 1; ix <= (b)->n; ix++)     \
        for (int iy = 1; iy <= (b)->n; iy++) \
            for (size_t i = index_of(b, ix, iy, 1), end = i + (size_t)(b)->n; i < end; i++)

static void apply(const box *b, const double *v, double *image) {
    FOR_POINTS(b, i) {
        image[i] = 26 * v[i] - neighbours(b, &v[i]);
    }
}

/* Sweeps forward and back, from zero; the halo of z has the neighbours' initial values, as in HPCG. */
static void precondition(const box *b, const double *r, double *z) {
    FOR_POINTS(b, i) {
        z[i] = (r[i] + neighbours(b, &z[i])) / 26;
    }
    for (int x = b->n; x >= 1; x--)
        for (int y = b->n; y >= 1; y--)
            for (size_t i = index_of(b, x, y, b->n), first = index_of(b, x, y, 1); i >= first; i--)
                z[i] = (r[i] + neighbours(b, &z[i])) / 26;
}

static double dot(const box *b, const ranks *way, void *state, const double *v, const double *w) {
    double sum = 0;
    FOR_POINTS(b, i) {
        sum += v[i] * w[i];
    }
    return way->sum(state, sum);
}

typedef struct outcome {
    double residual, total, seconds; /* seconds: of an iteration on this rank */
} outcome;

static void iterate(const box *b, const ranks *way, void *state, double *v[5], int iterations) {
    double *x = v[0], *r = v[1], *z = v[2], *p = v[3], *image = v[4], rz = 0;
    size_t bytes = (size_t)b->m * (size_t)b->m * (size_t)b->m * sizeof(double);
    for (int k = 0; k < iterations; k++) {
        memset(z, 0, bytes);
        fill_halo(b, way, state, z);
        precondition(b, r, z);
        double before = rz;
        rz = dot(b, way, state, r, z);
        double beta = k ? rz / before : 0;
        FOR_POINTS(b, i) {
            p[i] = z[i] + beta * p[i];
        }
        fill_halo(b, way, state, p);
        apply(b, p, image);
        double alpha = rz / dot(b, way, state, p, image);
        FOR_POINTS(b, i) {
            x[i] += alpha * p[i];
            r[i] -= alpha * image[i];
        }
        if (dot(b, way, state, r, r) == 0)
            return;
    }
}

static outcome solve(const box *b, const ranks *way, int iterations) {
    size_t count = (size_t)b->m * (size_t)b->m * (size_t)b->m;
    double *v[5];
    for (int i = 0; i < 5; i++)
        v[i] = room(count);
    void *state = way->open(b->sides, b->nsides, b->given, b->taken);
    FOR_POINTS(b, i) {
        v[0][i] = 1;
    }
    fill_halo(b, way, state, v[0]);
    apply(b, v[0], v[1]); /* so the solution is 1 everywhere */
    FOR_POINTS(b, i) {
        v[0][i] = 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    iterate(b, way, state, v, iterations);
    outcome result = {.seconds = (MPI_Wtime() - start) / iterations};
    result.residual = sqrt(dot(b, way, state, v[1], v[1]));
    FOR_POINTS(b, i) {
        v[1][i] = 1;
    }
    result.total = dot(b, way, state, v[0], v[1]);
    way->close(state);
    for (int i = 0; i < 5; i++)
        free(v[i]);
    return result;
}

/* ---- side by side ---------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int n = argc > 1 ? atoi(argv[1]) : 16, iterations = argc > 2 ? atoi(argv[2]) : 50;
    int rounds = argc > 3 ? atoi(argv[3]) : 5, rank;
    if (n < 2 || n > 1000 || iterations < 1 || rounds < 1 || rounds > 1000) {
        fprintf(stderr, "hpcg POINTS [ITERATIONS [ROUNDS]]: 2 to 1000 points in each direction of a rank's box\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    box b;
    make_box(&b, n);
    double *seconds = room((size_t)(WAYS * rounds));
    outcome last[WAYS];
    for (int round = 0; round < rounds; round++)
        for (int way = 0; way < WAYS; way++) {
            last[way] = solve(&b, ways[way], iterations);
            seconds[way * rounds + round] = last[way].seconds;
        }
    MPI_Allreduce(MPI_IN_PLACE, seconds, WAYS * rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int way = 0; way < WAYS && rank == 0; way++) {
        double *of = &seconds[way * rounds];
        qsort(of, (size_t)rounds, sizeof *of, compare);
        printf("%-16s residual %.12e  sum %.12e  %10.1f us an iteration (%.1f .. %.1f)\n", ways[way]->name,
               last[way].residual, last[way].total, of[rounds / 2] * 1e6, of[rounds / 4] * 1e6,
               of[3 * rounds / 4] * 1e6);
    }
    free(seconds);
    free(b.given);
    free(b.taken);
    MPI_Finalize();
    return 0;
}
