/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.c - the process sets of this rank: each with its data plane and its batches in log order.
 *
 * One batch a set runs at a time, and sets share nothing (PROTOCOL B3): a batch that waits for other ranks
 * holds up its own set only.
 */
#include "driver.h"

#include <stdlib.h>

hc__set *hc__set_find(hc_loop *loop, uint32_t number)
{
    return number < HC__MAX_SETS && loop->sets[number].used ? &loop->sets[number] : NULL;
}

/* Whom to ask for a sign of life: see watch.c. */
static int note_neighbours(hc_loop *loop, const hc_set_config *place)
{
    int32_t own = loop->node_of[loop->config.engine.rank];
    loop->neighbours = malloc(((size_t)place->nchildren + 1) * sizeof(int32_t));
    if (!loop->neighbours) return HC_NO_MEMORY;
    if (place->parent >= 0 && loop->node_of[place->parent] != own)
        loop->neighbours[loop->nneighbours++] = place->parent;
    for (int32_t i = 0; i < place->nchildren; i++)
        if (loop->node_of[place->children[i].rank] != own)
            loop->neighbours[loop->nneighbours++] = place->children[i].rank;
    return HC_OK;
}

int hc__set_add(hc_loop *loop, hc_handle *handle)
{
    uint32_t number = handle->place->set;
    if (number >= HC__MAX_SETS || loop->sets[number].used) return HC_INVALID;
    if (number == 0 && note_neighbours(loop, handle->place) != HC_OK) return HC_NO_MEMORY;
    hc_event event = {.kind = HC_EV_ADD_SET, .set = number, .config = handle->place};
    int status = hc__step(loop, &event);
    if (status < 0) return status;
    hc__set *set = &loop->sets[number];
    *set = (hc__set){
        .used = 1, .number = number, .size = handle->place->set_size, .data = handle->data, .node = handle->node};
    set->tail = &set->head;
    if (number >= loop->nsets) loop->nsets = number + 1;
    return HC_OK;
}

static void count_node(hc_loop *loop, const hc__set *set)
{
    if (!set->node) return;
    loop->stats.packed_bytes += set->node->packed_bytes;
    loop->stats.reduced_bytes += set->node->reduced_bytes;
    loop->stats.spread_bytes += set->node->spread_bytes;
}

static void drop_batches(hc_loop *loop, hc__set *set)
{
    if (set->running) loop->nrunning--;
    set->running = 0;
    while (set->head) {
        hc__batch *next = set->head->next;
        hc__batch_free(set->head);
        set->head = next;
    }
    set->tail = &set->head;
}

void hc__set_remove(hc_loop *loop, hc__set *set)
{
    drop_batches(loop, set);
    while (set->spare) {
        hc__batch *next = set->spare->next;
        hc__batch_free(set->spare);
        set->spare = next;
    }
    count_node(loop, set);
    if (set->data) set->data->ops->free(set->data);
    *set = (hc__set){0};
}

/* The log of the set has ended: who asked for it learns so. */
void hc__set_stopped(hc_loop *loop, hc__set *set, int status, const char *text)
{
    set->stopped = 1;
    while (set->stops) {
        hc_handle *handle = set->stops;
        set->stops = handle->next;
        hc__handle_finish(loop, handle, status, text);
    }
}

void hc__set_queue(hc_loop *loop, hc__set *set, hc__batch *b)
{
    (void)loop;
    *set->tail = b;
    set->tail = &b->next;
}

void hc__sets_abandon(hc_loop *loop)
{
    for (uint32_t i = 0; i < loop->nsets; i++) {
        hc__set *set = &loop->sets[i];
        if (!set->used) continue;
        if (set->data) set->data->ops->abandon(set->data);
        drop_batches(loop, set);
    }
}

static void trace_batch(hc_loop *loop, int kind, const hc__set *set, const hc__batch *b)
{
    hc__trace(loop, &(hc_trace_record){
                        .kind = (uint8_t)kind,
                        .operation = b->batch.operation,
                        .set = set->number,
                        .batch = b->number,
                        .bytes = b->bytes,
                        .count = b->nitems,
                    });
}

static int start(hc_loop *loop, hc__set *set)
{
    hc__batch *b = set->head;
    set->running = 1;
    b->started = hc__now();
    if (!loop->nrunning++) loop->in_flight_since = b->started;
    loop->stats.batches++;
    loop->stats.cached_batches += b->cached;
    loop->stats.fused_requests += b->nitems;
    loop->stats.payload_bytes += b->bytes;
    trace_batch(loop, HC_TRACE_START, set, b);
    return set->data ? set->data->ops->start(set->data, &b->batch) : HC_UNSUPPORTED;
}

/* The results go to the handles before the engine hears of the end, which frees them to their waiters. */
static void finish(hc_loop *loop, hc__set *set)
{
    hc__batch *b = set->head;
    set->head = b->next;
    if (!set->head) set->tail = &set->head;
    set->running = 0;
    if (!--loop->nrunning) loop->stats.in_flight_ns += hc__now() - loop->in_flight_since;
    trace_batch(loop, HC_TRACE_END, set, b);
    hc__batch_deliver(b);
    hc_event event = {.kind = HC_EV_BATCH_DONE, .set = set->number, .batch = b->number, .status = HC_OK};
    b->next = set->spare;
    set->spare = b;
    hc__step(loop, &event);
}

static int test(hc_loop *loop, hc__set *set)
{
    int moved = 0;
    while (set->head) {
        int progress = set->running ? HC_OK : start(loop, set);
        if (progress >= 0) progress = set->data->ops->test(set->data);
        if (progress < 0) {
            hc__fail(loop, progress, -1, hc_status_text(progress));
            return 1;
        }
        if (progress != HC_DONE) return moved | (progress == HC_MOVED);
        finish(loop, set);
        moved = 1;
    }
    return moved;
}

int hc__sets_test(hc_loop *loop)
{
    int moved = 0;
    for (uint32_t i = 0; i < loop->nsets && !loop->failing; i++)
        if (loop->sets[i].head) moved |= test(loop, &loop->sets[i]);
    return moved;
}
