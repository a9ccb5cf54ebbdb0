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
static int divides(const hc__channel *channel, int dtype, int kind, hc__reduction reduction) {
    if (reduction.reduction != HC_AVERAGE || !channel->form.partial || !channel->stages || dtype < HC_FLOAT16)
        return 0;
    if (channel->form.scatters && channel->stages->extra > 0)
        return 0; /* members without a position are added before the first stage */
    return dtype == HC_FLOAT16 ? kind == HC_FLOAT16 : channel->team->arithmetic->keeps_range;
}

void hc__take_stages(hc__channel *channel, const hc__stages *stages, int dtype, int kind, hc__reduction reduction) {
    channel->stages = stages;
    channel->form.partial = (uint8_t)hc__sends_partials(stages, channel->form.scatters);
    channel->form.divides = (uint8_t)divides(channel, dtype, kind, reduction);
}

static int64_t ring_scratch(const hc__channel *channel) {
    int64_t largest = 0;
    for (int32_t i = 0; i < channel->team->n; i++) {
        int64_t n = hc__part_of(channel, i + 1) - hc__part_of(channel, i);
        largest = n > largest ? n : largest;
    }
    return largest;
}

/* The caller has set `scatters` and the bounds. */
static int start(hc__channel *channel, void *data, int64_t count, int dtype, hc__reduction reduction, hc__means means) {
    hc__sum sum = {count, (uint8_t)dtype, (uint8_t)reduction.reduction, means.exact != 0, channel->form.scatters};
    hc__choice choice = hc__net_choose(&channel->model, channel->team->splits, means.algorithm, &sum);
    channel->count = count;
    channel->root = -1;
    channel->form.whole = (uint8_t)choice.whole;
    hc__take_stages(channel, choice.stages, dtype, choice.kind, reduction);
    hc__round_fn *rounds = choice.stages ? hc__round_stages : hc__round_ring;
    int64_t scratch = choice.stages ? hc__stages_scratch(channel) : ring_scratch(channel);
    return hc__rounds_start(channel, rounds, data, count, dtype, choice.kind, reduction, scratch);
}

int hc__allreduce_start(hc__channel *channel, void *data, int64_t count, int dtype, hc__reduction reduction,
                        hc__means means) {
    channel->form.scatters = 0;
    return start(channel, data, count, dtype, reduction, means);
}

int hc__reduce_scatter_start(hc__channel *channel, void *data, const int64_t *bounds, int dtype,
                             hc__reduction reduction, hc__means means) {
    size_t bytes = ((size_t)channel->team->n + 1) * sizeof *bounds;
    if (!channel->bounds)
        channel->bounds = hc_malloc(bytes);
    if (!channel->bounds)
        return HC_NO_MEMORY;
    memcpy(channel->bounds, bounds, bytes);
    channel->form.scatters = 1;
    return start(channel, data, bounds[channel->team->n], dtype, reduction, means);
}
