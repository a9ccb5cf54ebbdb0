/* SPDX-License-Identifier: Apache-2.0
 *
 * run_batches.c - adds process sets and runs their batches: one per set at a time, in the order of its log.
 */
#include "loop/clock.h"
#include "loop/counted.h"
#include "loop/failure.h"
#include "loop/progress.h"
#include "loop/batch.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/votes.h"

#include <stdio.h>
#include <stdlib.h>

/* Finds the neighbours that heartbeat.c asks for a sign of life. */
static int note_neighbours(hc_loop *loop, const hc_set_config *place) {
    int32_t own = loop->ranks.node_of[loop->config.engine.rank];
    loop->watch.neighbours = calloc((size_t)place->nchildren + 1, sizeof *loop->watch.neighbours);
    if (!loop->watch.neighbours)
        return HC_NO_MEMORY;
    if (place->parent >= 0 && loop->ranks.node_of[place->parent] != own)
        loop->watch.neighbours[loop->watch.nneighbours++].rank = place->parent;
    for (int32_t i = 0; i < place->nchildren; i++)
        if (loop->ranks.node_of[place->children[i].rank] != own)
            loop->watch.neighbours[loop->watch.nneighbours++].rank = place->children[i].rank;
    return HC_OK;
}

int hc__set_queue_add(hc_loop *loop, hc_handle *handle) {
    const hc_set_parts *parts = handle->parts;
    uint32_t number = parts->place->set;
    if (number >= HC_MAX_SETS || loop->sets.queues[number].used)
        return HC_INVALID;
    if (number == 0 && note_neighbours(loop, parts->place) != HC_OK)
        return HC_NO_MEMORY;
    /* Complete before the step, which handles the messages that have come before the set. */
    hc__set_queue *queue = &loop->sets.queues[number];
    *queue = (hc__set_queue){.used = 1,
                             .number = number,
                             .wire = hc_set_wire(number, parts->place->generation),
                             .size = parts->place->set_size,
                             .data = {[HC_MEMORY_HOST] = parts->host},
                             .maker = parts->maker,
                             .votes = parts->votes,
                             .node = parts->node};
    queue->tail = &queue->head;
    if (queue->votes)
        queue->votes->wire = queue->wire;
    atomic_store(&loop->sets.preempted[number], 0);
    atomic_store(&loop->sets.compiled[number], 0);
    if (number >= loop->sets.nqueues)
        loop->sets.nqueues = number + 1;
    hc_event event = {.kind = HC_EV_ADD_SET, .set = number, .config = parts->place};
    int status = hc__loop_step(loop, &event);
    queue->used = status >= 0;
    if (status >= 0)
        hc__trace_set(loop, queue, parts->lead);
    return status < 0 ? status : HC_OK;
}

/* Adds the node's figures to the loop's, which outlive the node. */
static void count_node(hc_loop *loop, hc__set_queue *queue) {
    const hc_node *node = queue->node;
    if (!node)
        return;
    hc_count(&loop->counters.packed_bytes, node->packed_bytes - queue->packed);
    hc_count(&loop->counters.reduced_bytes, node->reduced_bytes - queue->reduced);
    hc_count(&loop->counters.spread_bytes, node->spread_bytes - queue->spread);
    queue->packed = node->packed_bytes;
    queue->reduced = node->reduced_bytes;
    queue->spread = node->spread_bytes;
}

/* Breaks the World, with the text of the data plane. */
static void fail(hc_loop *loop, const hc_data *data, const hc__run *b, int status) {
    const char *text = data->text;
    if (status == HC_NO_MEMORY && b) {
        char room[64];
        snprintf(room, sizeof room, "for its part of %llu bytes", (unsigned long long)b->bytes);
        hc__loop_fail_of_memory(loop, NULL, b, text ? text : room);
        return;
    }
    if (!text && loop->parts.net)
        text = loop->parts.net->text;
    hc__loop_fail(loop, status, -1, text ? text : hc_status_text(status));
}

static int start(hc_loop *loop, hc__set_queue *queue) {
    hc__run *b = queue->head;
    char text[HC_PLANE_TEXT];
    hc_data *data;
    int status = hc__set_queue_data(queue, b->batch.memory, &data, text);
    if (status < 0) {
        hc__loop_fail(loop, status, -1, text);
        return status;
    }
    queue->running = data;
    b->started = hc__loop_now();
    if (!loop->sets.nrunning++)
        loop->sets.running_since = b->started;
    hc_count(&loop->counters.batches, 1);
    hc_count(&loop->counters.cached_batches, b->cached);
    hc_count(&loop->counters.fused_requests, b->nitems);
    hc_count(&loop->counters.payload_bytes, b->bytes);
    hc__trace_batch(loop, HC_TRACE_START, queue->number, b);
    hc__run_take_results(b);
    return data->ops->start(data, &b->batch);
}

/* Delivers the results to the handles before the engine's step completes them for their waiters. */
static void finish(hc_loop *loop, hc__set_queue *queue, int status) {
    hc__run *b = queue->head;
    queue->head = b->next;
    if (!queue->head)
        queue->tail = &queue->head;
    queue->running = NULL;
    if (!--loop->sets.nrunning)
        hc_count(&loop->counters.in_flight_ns, hc__loop_now() - loop->sets.running_since);
    count_node(loop, queue);
    hc__trace_batch(loop, HC_TRACE_END, queue->number, b);
    hc__run_deliver(loop, b);
    hc_event event = {.kind = HC_EV_BATCH_DONE, .set = queue->number, .batch = b->number, .status = status};
    if (b->number == HC__COUNTED_BATCH)
        hc__counted_end(loop, b, status);
    else
        hc__loop_step(loop, &event);
    b->next = queue->spare;
    queue->spare = b;
    if (queue->stopped && !queue->head)
        hc__set_queue_finish_stops(loop, queue, HC_OK, NULL);
}

static int test(hc_loop *loop, hc__set_queue *queue) {
    int moved = 0;
    while (queue->head) {
        int progress = queue->running ? HC_OK : start(loop, queue);
        if (progress >= 0)
            progress = queue->running->ops->test(queue->running);
        if (progress < 0 && progress != HC_RESULT_SIZE) { /* after RESULT_SIZE the batch has ended, too */
            if (queue->running)
                fail(loop, queue->running, queue->head, progress);
            return 1;
        }
        if (progress == HC_IDLE || progress == HC_MOVED)
            return moved | (progress == HC_MOVED);
        finish(loop, queue, progress == HC_DONE ? HC_OK : progress);
        moved = 1;
    }
    return moved;
}

int hc__set_queues_test(hc_loop *loop) {
    int moved = 0;
    for (uint32_t i = 0; i < loop->sets.nqueues && !loop->failure.is_next; i++)
        if (loop->sets.queues[i].head)
            moved |= test(loop, &loop->sets.queues[i]);
    return moved;
}

void hc__set_queues_watch(hc_loop *loop) {
    for (uint32_t i = 0; i < loop->sets.nqueues * HC_MEMORY_KINDS && !loop->failure.is_next; i++) {
        hc_data *data = loop->sets.queues[i / HC_MEMORY_KINDS].data[i % HC_MEMORY_KINDS];
        int status = data && data->ops->watch ? data->ops->watch(data) : HC_OK;
        if (status < 0)
            fail(loop, data, NULL, status);
    }
}
