/* SPDX-License-Identifier: Apache-2.0
 *
 * grid.c - see grid.h.
 */
#include "world/grid.h"

#include "loop/loop.h"

#include <string.h>

/* ---- the choice of extents --------------------------------------------------------------------------------- */

#define MOST_DIVISORS 4096 /* of a number of ranks; one below 2^31 has at most 1536 */

/* A search for the factors of a number with the least sum, which are the most even ones. */
typedef struct search {
    int64_t divisors[MOST_DIVISORS]; /* of the number, ascending */
    int ndivisors, k;                /* k: the number of factors */
    int64_t found[HC_MAX_DIMS], best[HC_MAX_DIMS], least;
} search;

/* 1: base^k is at least n. */
static int reaches(int64_t base, int k, int64_t n) {
    int64_t power = 1;
    while (k-- > 0 && power < n)
        if (__builtin_mul_overflow(power, base, &power))
            return 1;
    return power >= n;
}

/* Tries all factors of `n`, none above `most`, from place `at` on; `sum`: of the factors before it. */
static void divide(search *s, int at, int64_t n, int64_t most, int64_t sum) {
    if (at + 1 == s->k) {
        if (n <= most && sum + n < s->least) {
            s->found[at] = n;
            s->least = sum + n;
            memcpy(s->best, s->found, sizeof s->best);
        }
        return;
    }
    for (int i = 0; i < s->ndivisors && s->divisors[i] <= most && sum + s->divisors[i] < s->least; i++) {
        int64_t first = s->divisors[i];
        if (n % first || !reaches(first, s->k - at, n))
            continue;
        s->found[at] = first;
        divide(s, at + 1, n / first, first, sum + first);
    }
}

/* 0: it has too many. */
static int find_divisors(search *s, int64_t n) {
    int below = 0;
    for (int64_t d = 1; d <= n / d; d++)
        if (n % d == 0) {
            if (below == MOST_DIVISORS / 2)
                return 0;
            s->divisors[below++] = d;
        }
    s->ndivisors = below;
    for (int i = below - 1; i >= 0; i--)
        if (s->divisors[i] != n / s->divisors[i])
            s->divisors[s->ndivisors++] = n / s->divisors[i];
    return 1;
}

int hc_dims_create(int64_t size, int32_t ndim, int64_t *dims) {
    search s;
    int64_t given = 1;
    int zeros = 0, next = 0;
    if (size < 1 || ndim < 1 || ndim > HC_MAX_DIMS)
        return 0;
    for (int d = 0; d < ndim; d++) {
        if (dims[d] < 0 || (dims[d] && __builtin_mul_overflow(given, dims[d], &given)))
            return 0;
        zeros += !dims[d];
    }
    if (size % given || (!zeros && given != size))
        return 0;
    s.k = zeros;
    s.least = INT64_MAX;
    if (zeros && !find_divisors(&s, size / given))
        return 0;
    if (zeros)
        divide(&s, 0, size / given, size / given, 0);
    for (int d = 0; d < ndim; d++)
        dims[d] = dims[d] ? dims[d] : s.best[next++];
    return 1;
}

int32_t hc_grid_make(hc_grid *grid, int32_t size, int32_t ndim, const int *dims, const int *periods) {
    int64_t extents[HC_MAX_DIMS], product = 1;
    int chooses = 0;
    if (ndim < 1 || ndim > HC_MAX_DIMS)
        return 0;
    for (int d = 0; d < ndim; d++) {
        extents[d] = dims[d];
        chooses |= !dims[d];
    }
    if (chooses && !hc_dims_create(size, ndim, extents))
        return 0;
    *grid = (hc_grid){.ndim = ndim};
    for (int d = 0; d < ndim; d++) {
        if (extents[d] < 1 || (product *= extents[d]) > size)
            return 0;
        grid->dims[d] = (int32_t)extents[d];
        grid->wraps[d] = periods && periods[d];
    }
    return (int32_t)product;
}

/* ---- ranks and coordinates --------------------------------------------------------------------------------- */

void hc_grid_coords(const hc_grid *grid, int32_t rank, int32_t *coords) {
    for (int d = grid->ndim - 1; d >= 0; d--) {
        coords[d] = rank % grid->dims[d];
        rank /= grid->dims[d];
    }
}

int32_t hc_grid_rank(const hc_grid *grid, const int64_t *coords) {
    int64_t rank = 0;
    for (int d = 0; d < grid->ndim; d++) {
        int64_t n = grid->dims[d], at = coords[d];
        if (grid->wraps[d])
            at = (at % n + n) % n;
        if (at < 0 || at >= n)
            return HC_NO_PEER;
        rank = rank * n + at;
    }
    return (int32_t)rank;
}

void hc_grid_shift(const hc_grid *grid, int32_t rank, int32_t dimension, int64_t displacement, int32_t peers[2]) {
    int32_t here[HC_MAX_DIMS];
    int64_t there[HC_MAX_DIMS], n = grid->dims[dimension];
    if (grid->wraps[dimension])
        displacement %= n;
    displacement = displacement > n ? n : displacement < -n ? -n : displacement;
    hc_grid_coords(grid, rank, here);
    for (int d = 0; d < grid->ndim; d++)
        there[d] = here[d];
    there[dimension] = here[dimension] - displacement;
    peers[0] = hc_grid_rank(grid, there);
    there[dimension] = here[dimension] + displacement;
    peers[1] = hc_grid_rank(grid, there);
}
