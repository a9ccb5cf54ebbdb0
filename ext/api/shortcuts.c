/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcuts.c - blocking calls of few bytes without a name: from their arguments to their result, without a request,
 * where all ranks of a node come at about the same time (loop/shortcut.c).
 */
#include "api/api.h"

static int is_small(const hc__call *call, const hpccoll_world *world) {
    int shortens = call->operation == HC_ALLREDUCE || call->operation == HC_REDUCE || call->operation == HC_BROADCAST ||
                   call->operation == HC_BARRIER;
    if (!shortens || call->is_group || call->is_last || call->n > 1)
        return 0;
    if (world->size > 1 && !world->shortcut)
        return 0;
    return !call->n || (call->arrays[0].count > 0 &&
                        call->arrays[0].count <= HC_SHORTCUT_BYTES / (int64_t)hc_dtype_size(call->arrays[0].dtype));
}

static hc_shortcut_call describe(const hc__call *call, const hpccoll_world *world) {
    hc_shortcut_call small = {.agreed = {.operation = call->operation, .root = -1, .prescale = 1, .postscale = 1}};
    const hpccoll_array *a = call->arrays;
    if (hc_operation_has(call->operation, HC_OP_ROOTED))
        small.agreed.root = call->root;
    if (!call->n)
        return small;
    small.agreed.dtype = (uint8_t)a->dtype;
    small.agreed.ndim = 1;
    small.agreed.dims[0] = a->count;
    if (hc_operation_has(call->operation, HC_OP_REDUCES)) {
        small.agreed.reduction = call->reduction;
        small.agreed.prescale = call->args->prescale;
        small.agreed.postscale = call->args->postscale;
    }
    small.in = a->in == HPCCOLL_IN_PLACE ? a->out : a->in;
    small.count = a->count;
    small.bytes = (size_t)a->count * hc_dtype_size((int)a->dtype);
    if (!hc_operation_has(call->operation, HC_OP_TO_ROOT) || call->root == world->rank)
        small.out = a->out;
    return small;
}

int hc__shortcut(const hc__call *call, hpccoll_world *world) {
    const hc__base *base = world->base;
    if (base->python || base->one_thread || atomic_load_explicit(&base->noted, memory_order_relaxed))
        return 0;
    if (atomic_load_explicit(&world->unnamed_open, memory_order_relaxed) != 1 || !is_small(call, world))
        return 0;
    const hc_shortcut_call small = describe(call, world);
    int state = hc_loop_shortcut(base->loop, world->number, world->shortcut, world->rank, &small);
    if (state == HC_SHORTCUT_OPEN)
        state = hc_loop_shortcut_wait(base->loop, world->shortcut);
    if (state != HC_SHORTCUT_TAKEN)
        return 0;
    hc_loop_shortcut_end(base->loop, world->shortcut, world->rank, world->size, &small);
    return 1;
}
