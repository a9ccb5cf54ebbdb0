/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.c - allreduce and reduce-scatter: selects the rounds of an algorithm and the type they work in.
 *
 * A reduce-scatter is the first half of the same rounds.
 */
#include "transport/net/algorithms.h"

#include <stdlib.h>
#include <string.h>

/* 1: each stage can divide a mean, so that its partial sums stay in range. Integers are divided once, at the end. */
static int divides(const hc__channel *a, int dtype, int kind, hc__reduction reduction) {
    if (reduction.reduction != HC_AVERAGE || !a->partial || !a->stages || dtype < HC_FLOAT16)
        return 0;
    if (a->scatters && a->stages->extra > 0)
        return 0; /* members without a position are added before the first stage */
    return dtype == HC_FLOAT16 ? kind == HC_FLOAT16 : a->team->arithmetic->keeps_range;
}

static int64_t ring_scratch(const hc__channel *a) {
    int64_t largest = 0;
    for (int32_t i = 0; i < a->team->n; i++) {
        int64_t n = hc__part_of(a, i + 1) - hc__part_of(a, i);
        largest = n > largest ? n : largest;
    }
    return largest;
}

/* The caller has set `scatters` and the bounds. */
static int start(hc__channel *a, void *data, int64_t count, int dtype, hc__reduction reduction, hc__means means) {
    hc__sum sum = {count, (uint8_t)dtype, (uint8_t)reduction.reduction, means.exact != 0, a->scatters};
    hc__choice choice = hc__net_choose(&a->model, a->team->splits, means.algorithm, &sum);
    a->count = count;
    a->stages = choice.stages;
    a->whole = (uint8_t)choice.whole;
    a->partial = (uint8_t)hc__sends_partials(choice.stages, a->scatters);
    a->divides = (uint8_t)divides(a, dtype, choice.kind, reduction);
    hc__round_fn *rounds = choice.stages ? hc__round_stages : hc__round_ring;
    int64_t scratch = choice.stages ? hc__stages_scratch(a) : ring_scratch(a);
    return hc__rounds_start(a, rounds, data, count, dtype, choice.kind, reduction, scratch);
}

int hc__allreduce_start(hc__channel *a, void *data, int64_t count, int dtype, hc__reduction reduction,
                        hc__means means) {
    a->scatters = 0;
    return start(a, data, count, dtype, reduction, means);
}

int hc__reduce_scatter_start(hc__channel *a, void *data, const int64_t *bounds, int dtype, hc__reduction reduction,
                             hc__means means) {
    size_t bytes = ((size_t)a->team->n + 1) * sizeof *bounds;
    if (!a->bounds)
        a->bounds = hc_malloc(bytes);
    if (!a->bounds)
        return HC_NO_MEMORY;
    memcpy(a->bounds, bounds, bytes);
    a->scatters = 1;
    return start(a, data, bounds[a->team->n], dtype, reduction, means);
}
