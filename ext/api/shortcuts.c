/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcuts.c - unnamed blocking calls of few bytes, without a request, if all ranks of a node call at about the same
 * time (loop/shortcut.c).
 */
#include "api/api.h"

int hc__shortcut(const hc__read *read, hpccoll_world *world) {
    const hc__base *base = world->base;
    hc_shortcut_call call;
    if (base->python || base->one_thread || atomic_load_explicit(&base->noted, memory_order_relaxed) ||
        atomic_load_explicit(&world->has_refused, memory_order_relaxed))
        return 0;
    if (atomic_load_explicit(&world->unnamed_open, memory_order_relaxed) != 1 || (world->size > 1 && !world->shortcut))
        return 0;
    if (!hc_arguments_shortcut(&read->arguments, &read->place, &call))
        return 0;
    int state = hc_loop_shortcut(base->job->loop, world->number, world->shortcut, world->rank, &call);
    if (state == HC_SHORTCUT_OPEN)
        state = hc_loop_shortcut_wait(base->job->loop, world->shortcut);
    if (state != HC_SHORTCUT_TAKEN)
        return 0;
    hc_loop_shortcut_end(base->job->loop, world->shortcut, world->rank, world->size, &call);
    return 1;
}
