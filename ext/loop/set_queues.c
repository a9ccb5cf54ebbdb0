/* SPDX-License-Identifier: Apache-2.0
 *
 * set_queues.c - a queue per process set of this rank: its data planes and its batches in log order.
 *
 * A set runs one batch at a time, and sets share nothing (rule B3 of docs/control-plane.md): a batch that waits for
 * other ranks delays only its own set.
 */
#include "loop/handle.h"
#include "loop/batch.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"

#include <stdio.h>
#include <stdlib.h>

hc__set_queue *hc__set_queue_find(hc_loop *loop, uint32_t number) {
    return number < HC_MAX_SETS && loop->sets.queues[number].used ? &loop->sets.queues[number] : NULL;
}

static void drop_batches(hc_loop *loop, hc__set_queue *queue) {
    if (queue->running)
        loop->sets.nrunning--;
    queue->running = NULL;
    while (queue->head) {
        hc__run *next = queue->head->next;
        hc__run_free(queue->head);
        queue->head = next;
    }
    queue->tail = &queue->head;
}

int hc__set_queue_data(hc__set_queue *queue, int memory, hc_data **data, char *text) {
    int status = HC_OK;
    if (!queue->data[memory] && queue->maker)
        status = queue->maker->make(queue->maker, memory, &queue->data[memory], text);
    *data = queue->data[memory];
    if (status >= 0 && !*data) {
        snprintf(text, HC_PLANE_TEXT, "nothing here moves this kind of memory");
        status = HC_UNSUPPORTED;
    }
    return status;
}

/* Device planes first: they use the host's plane. */
static void abandon_planes(hc__set_queue *queue) {
    for (int memory = HC_MEMORY_KINDS; memory-- > 0;)
        if (queue->data[memory])
            queue->data[memory]->ops->abandon(queue->data[memory]);
}

static void free_planes(hc__set_queue *queue) {
    for (int memory = HC_MEMORY_KINDS; memory-- > 0;)
        if (queue->data[memory])
            queue->data[memory]->ops->free(queue->data[memory]);
    if (queue->maker)
        queue->maker->free(queue->maker);
}

void hc__set_queue_remove(hc_loop *loop, hc__set_queue *queue) {
    if (queue->running)
        abandon_planes(queue);
    drop_batches(loop, queue);
    while (queue->spare) {
        hc__run *next = queue->spare->next;
        hc__run_free(queue->spare);
        queue->spare = next;
    }
    hc_loop_votes_free(queue->votes); /* they use the count in the host's plane */
    free_planes(queue);
    queue->used = 0;
    hc__trace_set(loop, queue, loop->trace.header->sets[queue->number].lead);
    *queue = (hc__set_queue){0};
}

void hc__set_queue_finish_stops(hc_loop *loop, hc__set_queue *queue, int status, const char *text) {
    while (queue->stops) {
        hc_handle *handle = queue->stops;
        queue->stops = handle->next;
        hc__handle_finish(loop, handle, status, text);
    }
}

void hc__set_queue_stopped(hc__set_queue *queue, const char *text) {
    if (!queue->stopped)
        snprintf(queue->shutdown_reason, sizeof queue->shutdown_reason, "%s", text ? text : "");
    queue->stopped = 1;
}

void hc__set_queue_push(hc__set_queue *queue, hc__run *b) {
    *queue->tail = b;
    queue->tail = &b->next;
}

void hc__set_queues_abandon(hc_loop *loop) {
    loop->sets.ncounted = 0;
    for (uint32_t i = 0; i < loop->sets.nqueues; i++) {
        hc__set_queue *queue = &loop->sets.queues[i];
        if (!queue->used)
            continue;
        abandon_planes(queue);
        drop_batches(loop, queue);
    }
}

int hc__set_queues_need_polling(const hc_loop *loop) {
    for (uint32_t i = 0; loop->sets.nrunning && i < loop->sets.nqueues; i++)
        if (loop->sets.queues[i].running && loop->sets.queues[i].running->needs_polling)
            return 1;
    return 0;
}
