/* SPDX-License-Identifier: Apache-2.0
 *
 * signature.c - what can be asked for under a name: random, deviating, compared.
 */
#include "program.h"

#include <string.h>

int sim_own_rows(int operation) {
    return operation == HC_ALLGATHER || operation == HC_ALLTOALL;
}
static int rooted(int operation) {
    return operation == HC_BROADCAST;
}

static uint8_t random_operation(sim_random *rng) {
    static const uint8_t table[] = {HC_ALLREDUCE, HC_ALLREDUCE,     HC_ALLREDUCE, HC_ALLGATHER,
                                    HC_BROADCAST, HC_REDUCESCATTER, HC_ALLTOALL,  HC_BARRIER};
    return table[sim_below(rng, sizeof table)];
}

static void random_tensor(sim_random *rng, sim_signature *s, int i) {
    static const uint8_t dtypes[] = {HC_FLOAT32, HC_FLOAT32, HC_FLOAT16, HC_FLOAT64};
    s->tensor[i].dtype = dtypes[sim_below(rng, sizeof dtypes)];
    s->tensor[i].ndim = (uint8_t)sim_between(rng, s->operation == HC_ALLREDUCE ? 0 : 1, 3);
    for (int d = 0; d < s->tensor[i].ndim; d++)
        s->tensor[i].dims[d] = sim_between(rng, 1, 4);
    if (s->tensor[i].ndim && sim_chance(rng, 4))
        s->tensor[i].dims[0] = 0;
}

sim_signature sim_random_signature(sim_random *rng, int set_size) {
    sim_signature s;
    memset(&s, 0, sizeof s);
    s.operation = random_operation(rng);
    s.reduction = HC_SUM;
    if (s.operation == HC_ALLREDUCE && sim_chance(rng, 25))
        s.reduction = HC_MIN;
    s.wire = HC_WIRE_SAME;
    s.root = rooted(s.operation) ? sim_between(rng, 0, set_size - 1) : -1;
    s.prescale = s.postscale = 1.0;
    s.ntensors = s.operation == HC_BARRIER ? 0 : 1;
    if (s.operation != HC_BARRIER && sim_chance(rng, s.operation == HC_ALLREDUCE ? 20 : 5)) {
        s.flags = HC_REQUEST_GROUP;
        s.ntensors = (uint8_t)sim_between(rng, 1, SIM_TENSORS);
    }
    for (int i = 0; i < s.ntensors; i++)
        random_tensor(rng, &s, i);
    return s;
}

sim_signature sim_deviation(sim_random *rng, sim_signature s, int set_size) {
    for (;;) {
        sim_signature t = s;
        switch (sim_below(rng, 6)) {
        case 0:
            t = sim_random_signature(rng, set_size);
            break;
        case 1:
            if (t.ntensors && t.tensor[0].ndim)
                t.tensor[0].dims[t.tensor[0].ndim - 1] += sim_between(rng, 1, 3);
            break;
        case 2:
            if (t.ntensors)
                t.tensor[0].dtype = t.tensor[0].dtype == HC_FLOAT32 ? HC_FLOAT64 : HC_FLOAT32;
            break;
        case 3:
            if (t.operation == HC_ALLREDUCE)
                t.reduction = t.reduction == HC_SUM ? HC_MAX : HC_SUM;
            break;
        case 4:
            if (t.root >= 0)
                t.root = (t.root + 1) % set_size;
            if (t.operation == HC_ALLREDUCE)
                t.prescale += 0.5;
            break;
        default:
            if (t.operation == HC_ALLREDUCE && t.ntensors == 1)
                t.flags ^= HC_REQUEST_GROUP;
        }
        if (!sim_signature_agrees(&s, &t))
            return t;
    }
}

int sim_signature_agrees(const sim_signature *a, const sim_signature *b) {
    if (a->operation != b->operation || a->reduction != b->reduction || a->memory != b->memory || a->wire != b->wire ||
        a->flags != b->flags || a->ntensors != b->ntensors || a->root != b->root || a->prescale != b->prescale ||
        a->postscale != b->postscale)
        return 0;
    for (int i = 0; i < a->ntensors; i++) {
        if (a->tensor[i].dtype != b->tensor[i].dtype || a->tensor[i].ndim != b->tensor[i].ndim)
            return 0;
        for (int d = sim_own_rows(a->operation); d < a->tensor[i].ndim; d++)
            if (a->tensor[i].dims[d] != b->tensor[i].dims[d])
                return 0;
    }
    return 1;
}

uint64_t sim_tensor_bytes(const sim_signature *s, int tensor) {
    uint64_t bytes = hc_dtype_size(s->tensor[tensor].dtype);
    for (int d = 0; d < s->tensor[tensor].ndim; d++)
        bytes *= (uint64_t)s->tensor[tensor].dims[d];
    return bytes;
}
