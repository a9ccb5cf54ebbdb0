/* SPDX-License-Identifier: Apache-2.0
 *
 * signature.c - what can be asked for under a name: random, deviating, compared.
 */
#include "program.h"

#include <string.h>

int sim_own_rows(int operation) {
    return hc_operation_has(operation, HC_OP_ROWS_DIFFER);
}

/* Any that can be a request; an allreduce three times as often as another. */
static uint8_t random_operation(sim_random *rng) {
    uint32_t operation = sim_below(rng, HC_OPERATION_COUNT + 1);
    int is_request = operation < HC_OPERATION_COUNT && !hc_operation_has((int)operation, HC_OP_ONLY_EVENT);
    return (uint8_t)(is_request ? operation : HC_ALLREDUCE);
}

static void random_tensor(sim_random *rng, sim_signature *s, int i) {
    static const uint8_t dtypes[] = {HC_FLOAT32, HC_FLOAT32, HC_FLOAT16, HC_FLOAT64};
    s->tensor[i].dtype = dtypes[sim_below(rng, sizeof dtypes)];
    s->tensor[i].ndim = (uint8_t)sim_between(rng, hc_operation_has(s->operation, HC_OP_ELEMENTWISE) ? 0 : 1, 3);
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
    if (hc_operation_has(s.operation, HC_OP_REDUCES) && sim_chance(rng, 25))
        s.reduction = HC_MIN;
    s.wire = HC_WIRE_SAME;
    s.root = hc_operation_has(s.operation, HC_OP_ROOTED) ? sim_between(rng, 0, set_size - 1) : -1;
    s.prescale = s.postscale = 1.0;
    s.ntensors = hc_operation_has(s.operation, HC_OP_NO_TENSORS) ? 0 : 1;
    if (s.ntensors && sim_chance(rng, hc_operation_has(s.operation, HC_OP_FUSES) ? 20 : 5)) {
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
            if (hc_operation_has(t.operation, HC_OP_REDUCES))
                t.reduction = t.reduction == HC_SUM ? HC_MAX : HC_SUM;
            break;
        case 4:
            if (t.root >= 0)
                t.root = (t.root + 1) % set_size;
            if (hc_operation_has(t.operation, HC_OP_REDUCES))
                t.prescale += 0.5;
            break;
        default:
            if (hc_operation_has(t.operation, HC_OP_FUSES) && t.ntensors == 1)
                t.flags ^= HC_REQUEST_GROUP;
        }
        if (!sim_signature_agrees(&s, &t))
            return t;
    }
}

sim_signature sim_refusal(sim_signature asked) {
    return (sim_signature){.operation = asked.operation,
                           .reduction = HC_SUM,
                           .wire = HC_WIRE_SAME,
                           .flags = HC_REQUEST_REFUSED,
                           .root = -1,
                           .prescale = 1.0,
                           .postscale = 1.0};
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
