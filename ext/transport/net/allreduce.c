/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.c - allreduce and reduce-scatter: selects the rounds of an algorithm and the type they work in.
 *
 * A reduce-scatter is the first half of the same rounds.
 */
#include "transport/net/algorithms.h"

#include <stdlib.h>
#include <string.h>

static hc__round_fn *const rounds[] = {
    [HC__RECURSIVE_DOUBLING] = hc__round_recursive_doubling,
    [HC__DIRECT] = hc__round_direct,
    [HC__RING] = hc__round_ring,
    [HC__RABENSEIFNER] = hc__round_rabenseifner,
};

/* Scratch for operands that are received and not yet added. */
static int64_t scratch_elements(const hc__channel *a, int algorithm) {
    int32_t n = a->team->n, me = a->team->me;
    if (a->whole)
        return a->count * (n - 1);
    int64_t parts = (hc__part_of(a, me + 1) - hc__part_of(a, me)) * (n - 1);
    return algorithm == HC__DIRECT || parts > a->count ? parts : a->count;
}

/* The caller has set `scatters` and the bounds. */
static int start(hc__channel *a, void *data, int64_t count, int dtype, hc__reduction reduction, int algorithm) {
    a->count = count;
    a->partial = algorithm != HC__DIRECT;
    int kind = a->partial ? hc__accumulation_dtype(dtype) : dtype;
    a->whole = algorithm == HC__DIRECT && !a->scatters && hc__direct_whole(&a->model, a->team->n, count, dtype);
    return hc__rounds_start(a, rounds[algorithm], data, count, dtype, kind, reduction, scratch_elements(a, algorithm));
}

int hc__allreduce_start(hc__channel *a, void *data, int64_t count, int dtype, hc__reduction reduction, int algorithm) {
    a->scatters = 0;
    if (algorithm == HC__AUTO)
        algorithm = hc__net_choose(&a->model, a->team->n, count, dtype);
    return start(a, data, count, dtype, reduction, algorithm);
}

int hc__reduce_scatter_start(hc__channel *a, void *data, const int64_t *bounds, int dtype, hc__reduction reduction,
                             int algorithm) {
    size_t bytes = ((size_t)a->team->n + 1) * sizeof *bounds;
    if (!a->bounds)
        a->bounds = hc_malloc(bytes);
    if (!a->bounds)
        return HC_NO_MEMORY;
    memcpy(a->bounds, bounds, bytes);
    a->scatters = 1;
    if (algorithm == HC__AUTO)
        algorithm = hc__net_choose_scatter(&a->model, a->team->n, bounds[a->team->n], dtype);
    if (algorithm == HC__RECURSIVE_DOUBLING)
        algorithm = HC__RABENSEIFNER;
    return start(a, data, bounds[a->team->n], dtype, reduction, algorithm);
}
