/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox.c - takes requests from many producers to one consumer.
 *
 * It is a stack: producers push with compare-and-swap; the driver takes all of it with one exchange and reverses it.
 * That keeps the order of each producer; no other order matters. A queue would need no reversal, but its
 * consumer would spin while a producer is between its two writes.
 *
 * Memory order: the push releases the handle's fields, the exchange acquires them. There is no ABA problem, because the
 * consumer never removes a single element.
 */
#include "loop/inbox.h"

#include "loop/handle.h"
#include "loop/state.h"

void hc__inbox_push(hc_loop *loop, hc_handle *handle) {
    hc_handle *top = atomic_load_explicit(&loop->inbox.newest, memory_order_relaxed);
    do {
        handle->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&loop->inbox.newest, &top, handle, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

hc_handle *hc__inbox_take(hc_loop *loop) {
    if (!atomic_load_explicit(&loop->inbox.newest, memory_order_relaxed))
        return NULL;
    return hc__handles_in_order(atomic_exchange_explicit(&loop->inbox.newest, NULL, memory_order_acquire));
}
