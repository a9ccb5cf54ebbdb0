/* SPDX-License-Identifier: Apache-2.0
 *
 * counted.c - runs requests that the ranks have counted (count_request.c), in an order that all ranks have.
 *
 * A set runs its batches in the order of its log. The batch of a counted request is in no log, and has one place among
 * them nevertheless:
 *
 *   - A rank joins the count only if it has nothing in flight. So all earlier batches of the log have ended on all
 *     ranks.
 *   - From before it joins until the batch is queued or the count is off, its driver keeps other requests of the set
 *     back, which only another thread can make. The log agrees on no batch without this rank, so all later batches
 *     follow on all ranks.
 *
 * The rank says that it counts before it reads `pending`, and a thread that submits changes `pending` before the driver
 * reads whether the rank counts. All four are sequentially consistent, so that one of the two sees the other.
 */
#include "loop/counted.h"

#include "loop/failure.h"
#include "loop/handle.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/watch.h"

#include <stdio.h>

void hc__counted_off(hc_loop *loop, uint32_t set) {
    atomic_store_explicit(&loop->sets.counting[set], 0, memory_order_release);
}

int hc__counted_keeps(hc_loop *loop, hc_handle *handle) {
    hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    if (!queue || !atomic_load(&loop->sets.counting[handle->set]))
        return 0;
    hc_handle **end = &queue->kept;
    while (*end)
        end = &(*end)->next;
    handle->next = NULL;
    *end = handle;
    loop->sets.keeps = 1;
    return 1;
}

hc_handle *hc__counted_kept(hc_loop *loop) {
    hc_handle *first = NULL, **end = &first;
    if (!loop->sets.keeps)
        return NULL;
    loop->sets.keeps = 0;
    for (uint32_t i = 0; i < loop->sets.nqueues; i++) {
        hc__set_queue *queue = &loop->sets.queues[i];
        if (queue->kept && atomic_load_explicit(&loop->sets.counting[i], memory_order_acquire)) {
            loop->sets.keeps = 1;
            continue;
        }
        *end = queue->kept;
        queue->kept = NULL;
        while (*end)
            end = &(*end)->next;
    }
    return first;
}

void hc__counted_take(hc_loop *loop, hc__set_queue *queue, hc_handle *handle) {
    const hc_item item = {
        .agreed = &handle->request, .ticket = handle->request.ticket, .count = handle->request.ntensors};
    const hc_action run = {
        .kind = HC_AC_RUN, .set = handle->set, .batch = HC__COUNTED_BATCH, .cached = 1, .items = &item, .nitems = 1};
    hc_count(&loop->counters.requests, 1);
    hc_count(&loop->counters.counted, 1);
    hc__trace_handle(loop, HC_TRACE_ENQUEUE, handle, 0);
    hc__handle_link(&loop->handles.requests, handle); /* a failure of the World ends it */
    hc__run *b = hc__run_build(loop, queue, &run);
    if (b) {
        hc__set_queue_push(queue, b);
        loop->sets.ncounted++;
    } else {
        hc__loop_fail_of_memory(loop, &run, NULL, "for its batch");
    }
    hc__counted_off(loop, handle->set);
}

void hc__counted_end(hc_loop *loop, const hc__run *b, int status) {
    hc_handle *handle = (hc_handle *)(uintptr_t)b->first;
    loop->sets.ncounted--;
    hc__handle_unlink(handle);
    hc__handle_finish(loop, handle, status, status < 0 ? hc_status_text(status) : NULL);
}

static void describe(hc_loop *loop, const hc_handle *handle, char *text, size_t room) {
    (void)loop;
    snprintf(text, room, "%s without a name was called by all ranks, but its data",
             hc_operation_name(handle->request.operation));
}

void hc__counted_watch(hc_loop *loop, uint64_t now) {
    for (uint32_t i = 0; loop->sets.ncounted && i < loop->sets.nqueues && !loop->failure.is_next; i++) {
        const hc__set_queue *queue = &loop->sets.queues[i];
        const hc__run *b = queue->running ? queue->head : NULL;
        if (b && b->number == HC__COUNTED_BATCH && b->started <= now)
            hc__watch_wait(loop, (hc_handle *)(uintptr_t)b->first, now - b->started, describe);
    }
}
