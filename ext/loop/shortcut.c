/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcut.c - runs a small unnamed blocking call in the waiting thread: the ranks of a set on one node exchange in
 * shared memory (transport/shm/shortcut.h), without engine and driver.
 *
 * Unnamed calls match by their order, so the next call of each rank belongs to this call. If a rank is late, makes a
 * different call, or must learn of a preemption, all ranks submit their calls to the engine, which agrees on them,
 * refuses or reports them like all others.
 */
#include "loop/driver.h"

#include <string.h>

#define MISSES 16 /* in a row; after these a rank hardly waits for the others */

static int may_take(hc_loop *loop, uint32_t set) {
    return !atomic_load_explicit(&loop->preempted[set], memory_order_acquire) &&
           !atomic_load_explicit(&loop->broken, memory_order_relaxed) &&
           !atomic_load_explicit(&loop->forked, memory_order_relaxed) && !loop->config.debug;
}

int hc_loop_shortcut(hc_loop *loop, uint32_t set, hc_shortcut *shortcut, int32_t rank, const hc_shortcut_call *call) {
    uint64_t agreed[HC_SHORTCUT_WORDS];
    _Static_assert(sizeof agreed == sizeof call->agreed, "the words that the ranks compare are the agreed values");
    if (!may_take(loop, set))
        return HC_SHORTCUT_OFF;
    if (!shortcut)
        return HC_SHORTCUT_TAKEN;
    memcpy(agreed, &call->agreed, sizeof agreed);
    int gives = call->agreed.operation != HC_BROADCAST || call->agreed.root == rank;
    int state = hc_shortcut_join(shortcut, agreed, call->in, gives ? call->bytes : 0);
    for (int i = 0; state == HC_SHORTCUT_OPEN && i < HC__LOOKS; i++)
        state = hc_shortcut_look(shortcut);
    return state;
}

int hc_loop_shortcut_wait(hc_loop *loop, hc_shortcut *shortcut) {
    int busy = atomic_load_explicit(&loop->pending, memory_order_relaxed) != 0; /* pending requests need a flush (R1) */
    int state = HC_SHORTCUT_OPEN;
    uint64_t limit = busy || hc_shortcut_misses(shortcut) >= MISSES
                         ? 0
                         : hc__loop_now() + hc__looks_for(loop, HC__SHORTCUT_NS);
    while (limit && state == HC_SHORTCUT_OPEN && hc__loop_now() < limit) {
        hc__wait_a_moment(loop);
        state = hc_shortcut_look(shortcut);
    }
    return state == HC_SHORTCUT_OPEN ? hc_shortcut_give_up(shortcut) : state;
}

/* ---- the result of a taken shortcut ------------------------------------------------------------------ */

static int is_logical(int reduction) {
    return reduction == HC_LAND || reduction == HC_LOR ||
           reduction == HC_LXOR; /* turns even a single value into 0 or 1 */
}

static void reduce(const hc_shortcut *shortcut, int32_t rank, int32_t size, const hc_shortcut_call *call) {
    const hc_shortcut_agreed *agreed = &call->agreed;
    const void *parts[HC_SHORTCUT_RANKS];
    double scale = agreed->prescale * agreed->postscale; /* 1.0 for integers */
    double divisor = agreed->reduction == HC_AVERAGE ? size : 1.0;
    if (size == 1 && call->out == call->in && scale == 1.0 && !is_logical(agreed->reduction))
        return;
    for (int32_t q = 0; q < size; q++)
        parts[q] = q == rank ? call->in : hc_shortcut_part(shortcut, q);
    hc_host_reduce(call->out, agreed->dtype, parts, size, agreed->dtype, agreed->reduction, call->count, scale,
                   divisor);
}

void hc_loop_shortcut_end(hc_loop *loop, const hc_shortcut *shortcut, int32_t rank, int32_t size,
                          const hc_shortcut_call *call) {
    int32_t root = call->agreed.root;
    atomic_fetch_add_explicit(&loop->shortcuts, 1, memory_order_relaxed);
    if (!call->out)
        return;
    if (hc_operation_has(call->agreed.operation, HC_OP_REDUCES))
        reduce(shortcut, rank, size, call);
    else if (call->agreed.operation == HC_BROADCAST && (root != rank || call->out != call->in))
        memmove(call->out, root == rank ? call->in : hc_shortcut_part(shortcut, root), call->bytes);
}
