/* SPDX-License-Identifier: Apache-2.0
 *
 * staged.c - the pipeline of a batch through the host: three stages that overlap.
 *
 * It polls events. A host function in a stream (cuLaunchHostFunc) would wake the loop some microseconds earlier, but it
 * blocks its stream while it runs, runs in a thread of the CUDA driver, and must not run after the World is gone. So
 * the loop polls as it does for messages between nodes (hc_data.needs_polling).
 */
#include "cuda/staged/staged.h"

#include <stdlib.h>

static const struct {
    int (*begin)(hc__staged *);
    int (*count)(hc__staged *); /* NULL: all ranks know all sizes */
    int (*cut)(hc__staged *, int64_t, hc__staged_slot *);
} cutters[HC_OPERATION_COUNT] = {
    [HC_ALLREDUCE] = {hc__staged_even_begin, NULL, hc__staged_even_cut},
    [HC_BROADCAST] = {hc__staged_even_begin, NULL, hc__staged_even_cut},
    [HC_REDUCESCATTER] = {hc__staged_scatter_begin, NULL, hc__staged_scatter_cut},
    [HC_ALLGATHER] = {hc__staged_uneven_begin, hc__staged_uneven_count, hc__staged_uneven_cut},
    [HC_ALLTOALL] = {hc__staged_uneven_begin, hc__staged_uneven_count, hc__staged_uneven_cut},
    [HC_REDUCE] = {hc__staged_even_begin, NULL, hc__staged_even_cut},
    [HC_GATHER] = {hc__staged_uneven_begin, hc__staged_uneven_count, hc__staged_uneven_cut},
    [HC_SCATTER] = {hc__staged_uneven_begin, hc__staged_uneven_count, hc__staged_uneven_cut},
    [HC_SCAN] = {hc__staged_even_begin, NULL, hc__staged_even_cut},
    [HC_EXSCAN] = {hc__staged_even_begin, NULL, hc__staged_even_cut},
};

static int failed(hc__staged *s, int status, const char *what) {
    return hc__device_failed(s->device, status, what, s->text, sizeof s->text);
}

/* ---- open, close ----------------------------------------------------------------------------------------------- */

int hc__staged_open(hc__staged *s) {
    const hc_driver *d = &s->device->driver;
    s->chunk_bytes = hc__aligned(s->chunk_bytes);
    int status = d->stream_new(&s->down, HC_STREAM_NON_BLOCKING, 0);
    if (!status)
        status = d->stream_new(&s->up, HC_STREAM_NON_BLOCKING, 0);
    for (int i = 0; i < HC__SLOTS && !status; i++) {
        s->slots[i].stage.device = s->device;
        status = d->event_new(&s->slots[i].arrived, HC_EVENT_DISABLE_TIMING);
        if (!status)
            status = d->event_new(&s->slots[i].left, HC_EVENT_DISABLE_TIMING);
    }
    return failed(s, status, "making streams and events");
}

static void free_slot(const hc_driver *d, hc__staged_slot *slot, int over) {
    if (over)
        hc__stage_free(&slot->stage);
    if (slot->arrived)
        d->event_free(slot->arrived);
    if (slot->left)
        d->event_free(slot->left);
    hc__copies_free(&slot->down);
    hc__copies_free(&slot->up);
    free(slot->pieces);
}

void hc__staged_close(hc__staged *s) {
    if (!s->device)
        return;
    const hc_driver *d = &s->device->driver;
    int over = hc__stream_ends(s->device, s->down) & hc__stream_ends(s->device, s->up);
    for (int i = 0; i < HC__SLOTS; i++)
        free_slot(d, &s->slots[i], over);
    if (s->down && over)
        d->stream_free(s->down);
    if (s->up && over)
        d->stream_free(s->up);
    hc__staged_uneven_end(s);
    hc__staged_scatter_end(s);
    hc_free(s->even.starts);
}

/* ---- the stages -------------------------------------------------------------------------------------------------- */

/* 1: the event has occurred; 0: not yet; else a status. */
static int has_occurred(hc__staged *s, hc_gpu_event event) {
    int status = s->device->driver.event_query(event);
    s->waits |= status == HC_DRIVER_NOT_READY;
    if (status == HC_DRIVER_NOT_READY)
        return 0;
    status = failed(s, status, "copying between device and host");
    return status < 0 ? status : 1;
}

/* Launches the slot's copies and records their event. 1: launched; 0: try again; else a status. */
static int launch(hc__staged *s, hc__staged_slot *slot, int up) {
    hc_gpu_stream stream = up ? s->up : s->down;
    const hc__launch to = {s->device, stream, s->text, sizeof s->text};
    int status = hc__copies_launch(up ? &slot->up : &slot->down, &to, &slot->stage, s->batch->dtype, up);
    s->waits |= status == HC_PACK_BUSY;
    if (status)
        return status == HC_PACK_BUSY ? 0 : status;
    status = failed(s, s->device->driver.event_record(up ? slot->left : slot->arrived, stream), "recording an event");
    return status < 0 ? status : 1;
}

static int fill_next(hc__staged *s) {
    hc__staged_slot *slot = &s->slots[s->filled % HC__SLOTS];
    if (s->filled == s->chunks || s->filled == s->drained + HC__SLOTS)
        return 0;
    int status = slot->cut ? 1 : has_occurred(s, slot->left);
    if (status == 1 && !slot->cut) {
        slot->down.n = slot->up.n = 0;
        status = cutters[s->batch->operation].cut(s, s->filled, slot);
        if (status < 0)
            return status;
        slot->cut = status = 1;
    }
    if (status == 1)
        status = launch(s, slot, 0);
    if (status == 1) {
        slot->cut = 0;
        s->filled++;
    }
    return status;
}

/* The host's data plane has one batch at a time. */
static int run_next(hc__staged *s) {
    hc__staged_slot *slot = &s->slots[s->run % HC__SLOTS];
    if (s->run == s->filled)
        return 0;
    int status = s->running ? 1 : has_occurred(s, slot->arrived);
    if (status != 1)
        return status;
    if (!s->running) {
        status = s->host->ops->start(s->host, &slot->batch);
        if (status < 0)
            return status;
        s->running = 1;
    }
    status = s->host->ops->test(s->host);
    if (status == HC_DONE) {
        s->running = 0;
        s->run++;
    }
    return status < 0 ? status : status != HC_IDLE;
}

static int drain_next(hc__staged *s) {
    if (s->drained == s->run)
        return 0;
    int status = launch(s, &s->slots[s->drained % HC__SLOTS], 1);
    s->drained += status == 1;
    return status;
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

/* The stream `up` need not wait: its copies follow the chunk's event `arrived`, which follows this, even if the chunk
 * has no copies. */
static int wait_until_ready(hc__staged *s) {
    int status = 0;
    for (int32_t i = 0; i < s->batch->ncalls && !status; i++)
        status = hc__follow(&s->device->driver, s->down, s->batch->ready[i]);
    return failed(s, status, "waiting for the callers' streams");
}

int hc__staged_start(hc__staged *s, hc_batch *batch) {
    if (batch->operation >= HC_OPERATION_COUNT || !cutters[batch->operation].begin)
        return HC_UNSUPPORTED;
    s->batch = batch;
    s->late = HC_OK;
    s->chunks = s->filled = s->run = s->drained = 0;
    s->running = 0;
    int status = wait_until_ready(s);
    return status < 0 ? status : cutters[batch->operation].begin(s);
}

/* All of `down` has ended; the work in `up` ends before these events. */
static int finish(hc__staged *s) {
    int status = 0;
    for (int32_t i = 0; i < s->batch->ncalls && !status; i++)
        status = s->device->driver.event_record(s->batch->finished[i], s->up);
    s->batch = NULL;
    s->waits = 0;
    status = failed(s, status, "recording that a batch has ended");
    return status < 0 ? status : s->late < 0 ? s->late : HC_DONE;
}

int hc__staged_test(hc__staged *s) {
    int (*const stages[])(hc__staged *) = {drain_next, run_next, fill_next};
    int (*count)(hc__staged *) = cutters[s->batch->operation].count;
    int moved = 0;
    s->waits = 0;
    if (count && !s->uneven.counted) {
        int status = count(s);
        if (status != HC_DONE)
            return status;
        s->uneven.counted = moved = 1;
    }
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        int status = stages[i](s);
        if (status < 0)
            return status;
        moved |= status;
    }
    if (s->drained == s->chunks)
        return finish(s);
    return moved ? HC_MOVED : HC_IDLE;
}
