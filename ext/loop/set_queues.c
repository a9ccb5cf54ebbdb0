/* SPDX-License-Identifier: Apache-2.0
 *
 * set_queues.c - a lane for each process set of this rank: its data planes and its batches in log order.
 *
 * One batch a set runs at a time, and sets share nothing (rule B3 of docs/control-plane.md): a batch that waits for other ranks
 * holds up its own set only.
 */
#include "loop/driver.h"

#include <stdio.h>
#include <stdlib.h>

hc__lane *hc__lane_find(hc_loop *loop, uint32_t number) {
    return number < HC_MAX_SETS && loop->lanes[number].used ? &loop->lanes[number] : NULL;
}

static void drop_batches(hc_loop *loop, hc__lane *lane) {
    if (lane->running)
        loop->nrunning--;
    lane->running = NULL;
    while (lane->head) {
        hc__run *next = lane->head->next;
        hc__run_free(lane->head);
        lane->head = next;
    }
    lane->tail = &lane->head;
}

int hc__lane_plane(hc__lane *lane, int memory, hc_data **data, char *text) {
    int status = HC_OK;
    if (!lane->data[memory] && lane->maker)
        status = lane->maker->make(lane->maker, memory, &lane->data[memory], text);
    *data = lane->data[memory];
    if (status >= 0 && !*data) {
        snprintf(text, HC_PLANE_TEXT, "nothing here moves this kind of memory");
        status = HC_UNSUPPORTED;
    }
    return status;
}

/* Those of other memory first: they use the host's. */
static void abandon_planes(hc__lane *lane) {
    for (int memory = HC_MEMORY_KINDS; memory-- > 0;)
        if (lane->data[memory])
            lane->data[memory]->ops->abandon(lane->data[memory]);
}

static void free_planes(hc__lane *lane) {
    for (int memory = HC_MEMORY_KINDS; memory-- > 0;)
        if (lane->data[memory])
            lane->data[memory]->ops->free(lane->data[memory]);
    if (lane->maker)
        lane->maker->free(lane->maker);
}

void hc__lane_remove(hc_loop *loop, hc__lane *lane) {
    if (lane->running)
        abandon_planes(lane);
    drop_batches(loop, lane);
    while (lane->spare) {
        hc__run *next = lane->spare->next;
        hc__run_free(lane->spare);
        lane->spare = next;
    }
    free_planes(lane);
    *lane = (hc__lane){0};
}

void hc__lane_finish_stops(hc_loop *loop, hc__lane *lane, int status, const char *text) {
    while (lane->stops) {
        hc_handle *handle = lane->stops;
        lane->stops = handle->next;
        hc__handle_finish(loop, handle, status, text);
    }
}

void hc__lane_stopped(hc__lane *lane, const char *text) {
    if (!lane->stopped)
        snprintf(lane->last_words, sizeof lane->last_words, "%s", text ? text : "");
    lane->stopped = 1;
}

void hc__lane_queue(hc__lane *lane, hc__run *b) {
    *lane->tail = b;
    lane->tail = &b->next;
}

void hc__lanes_abandon(hc_loop *loop) {
    for (uint32_t i = 0; i < loop->nlanes; i++) {
        hc__lane *lane = &loop->lanes[i];
        if (!lane->used)
            continue;
        abandon_planes(lane);
        drop_batches(loop, lane);
    }
}

int hc__lanes_nap(const hc_loop *loop) {
    for (uint32_t i = 0; loop->nrunning && i < loop->nlanes; i++)
        if (loop->lanes[i].running && loop->lanes[i].running->needs_polling)
            return 1;
    return 0;
}
