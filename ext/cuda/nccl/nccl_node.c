/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_node.c - a node of NCCL: its memory, streams and events; opens and closes a batch. Its stages are in
 * nccl_stages.c.
 */
#include "cuda/nccl/nccl_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((int64_t)64 << 20) /* without a net: one call for most batches. An estimate */
#define LEAST_BYTES ((int64_t)64 << 10)

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Grows one kind of buffer in all slots; doubling wastes little in the pool. */
static int reserve(hc__nccl_node *n, enum hc__memory_kind kind, size_t member, int64_t *room, int64_t bytes) {
    int status = HC_OK;
    if (bytes <= *room)
        return HC_OK;
    *room = *room ? *room : LEAST_BYTES;
    while (*room < bytes)
        *room *= 2;
    for (int i = 0; i < HC__NCCL_DEPTH && status >= 0; i++)
        status = hc__nccl_grow(n, kind, (char **)((char *)&n->slots[i] + member), *room);
    return status;
}

static int reserve_all(hc__nccl_node *n) {
    int64_t all = n->scatters ? n->chunk : n->starts[n->batch->npieces], most = all < n->chunk ? all : n->chunk;
    int64_t rails = n->rails > 0 ? n->rails : 1, room = most + rails * HC__NCCL_PART;
    int status = reserve(n, HC__ON_DEVICE, offsetof(hc__nccl_slot, buffer), &n->buffer_bytes, room * n->size);
    if (status >= 0 && n->wire_dtype != n->dtype)
        status = reserve(n, HC__ON_DEVICE, offsetof(hc__nccl_slot, narrow), &n->narrow_bytes, room * n->wire_size);
    if (status >= 0 && hc__nccl_drives(n) && !n->sums)
        status = reserve(n, HC__PINNED, offsetof(hc__nccl_slot, host), &n->host_bytes,
                         (room / rails + HC__NCCL_PART) * n->wire_size);
    return status;
}

/* ---- open, close ------------------------------------------------------------------------------------------------ */

int hc__nccl_begin(hc__nccl_node *n, const hc_batch *batch) {
    const hc_driver *d = &n->device->driver;
    int status = 0;
    n->batch = batch;
    n->busy = HC__FREE;
    n->waits = 0;
    for (int32_t i = 0; i < n->batch->ncalls && !status; i++)
        status = hc__follow(d, n->work, n->batch->ready[i]);
    if (!status)
        status = d->event_record(n->began, n->work);
    return hc__nccl_failed(n, status, "waiting for the callers' streams");
}

/* NCCL adds in the tensors' type. Packing divides the values by a power of two, which rounds nothing, so the sum fits
 * if the mean does; then the sum is divided by the remaining factor. */
static void split_divisor(hc__nccl_node *n) {
    double all = (double)n->batch->node_divisor;
    n->shift = 1.0;
    while (n->shift < all)
        n->shift *= 2.0;
    n->divisor = all / n->shift;
}

static int nccl_open(hc_node *base, const hc_batch *batch, const hc_parts *parts, const hc_rails *all_rails,
                     int64_t chunk_elements, int64_t *nchunks) {
    hc__nccl_node *n = hc__nccl_node_of(base);
    int32_t rails = all_rails->count;
    int reduces = hc_operation_has(batch->operation, HC_OP_REDUCES);
    int is_shared = reduces && !hc_operation_has(batch->operation, HC_OP_ELEMENTWISE); /* a reducescatter */
    if ((parts != NULL) != is_shared || rails < 0 || rails > base->local_size || (rails > 0 && chunk_elements == 0) ||
        all_rails->takes_turns)
        return HC_INVALID;
    int status = hc__nccl_begin(n, batch);
    n->rails = rails;
    n->moves = !reduces;
    n->scatters = is_shared;
    n->wire = rails > 0 && !n->moves ? batch->wire_dtype : batch->dtype;
    n->size = (int64_t)hc_dtype_size(batch->dtype);
    n->wire_size = (int64_t)hc_dtype_size(n->wire);
    n->op = n->moves ? HC_NCCL_SUM : hc__nccl_op(batch->reduction, batch->dtype);
    n->dtype = n->moves ? HC_NCCL_UINT8 : hc__nccl_dtype(batch->dtype);
    n->wire_dtype = n->moves ? HC_NCCL_UINT8 : hc__nccl_dtype(n->wire);
    n->units = n->moves ? n->size : 1;
    hc__nccl_find_root(n);
    split_divisor(n);
    n->chunk = chunk_elements > 0 ? chunk_elements : CHUNK_BYTES / n->size;
    n->chunk = (n->chunk + HC__NCCL_PART - 1) / HC__NCCL_PART * HC__NCCL_PART;
    n->nreduced = n->nspread = 0;
    if (n->op < 0 || n->wire_dtype < 0)
        return HC_UNSUPPORTED;
    if (status >= 0)
        status = n->scatters ? hc__nccl_lay_shares(n, chunk_elements) : hc__nccl_layout(n);
    if (status >= 0)
        status = reserve_all(n);
    *nchunks = n->nchunks;
    return status;
}

static int nccl_depth(hc_node *base) {
    (void)base;
    return HC__NCCL_DEPTH;
}

int hc__nccl_end(hc__nccl_node *n) {
    const hc_driver *d = &n->device->driver;
    int status = 0;
    for (int32_t i = 0; i < n->batch->ncalls && !status; i++)
        status = d->event_record(n->batch->finished[i], n->work);
    if (!status)
        status = d->event_record(n->done, n->work);
    n->batch = NULL;
    n->waits = 0;
    n->comms->since = hc__comms_now();
    return hc__nccl_failed(n, status, "recording that a batch has ended");
}

static int nccl_close(hc_node *base) {
    return hc__nccl_end(hc__nccl_node_of(base));
}

/* ---- create, watch, free ---------------------------------------------------------------------------------------- */

int hc__nccl_node_watch(hc__nccl_node *n) {
    const char *what = "a batch that was launched";
    int async_status = HC_NCCL_SUCCESS, status = n->device->driver.event_query(n->done);
    if (status != HC_DRIVER_NOT_READY || n->batch)
        return n->batch ? HC_OK : hc__nccl_failed(n, status, what);
    if (n->comms->alone)
        return hc__nccl_wait_for_device(n, what);
    n->called = n->comms->nccl.get_async_error(n->comms->comm, &async_status) ? HC_NCCL_INTERNAL : async_status;
    return n->called == HC_NCCL_SUCCESS ? hc__nccl_wait_for_device(n, what) : hc__nccl_settle(n, what);
}

static void free_slot(const hc__nccl_node *n, hc__nccl_slot *slot, int over) {
    const hc_driver *d = &n->device->driver;
    void *const memory[] = {slot->buffer, slot->narrow, slot->host};
    for (size_t i = 0; over && i < sizeof memory / sizeof *memory; i++)
        hc__device_give(n->device, memory[i]);
    hc_gpu_event const events[] = {slot->reduced, slot->arrived, slot->returned};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            d->event_free(events[i]);
    hc__copies_free(&slot->in);
    hc__copies_free(&slot->out);
}

static void nccl_free(hc_node *base) {
    hc__nccl_node *n = hc__nccl_node_of(base);
    const hc_driver *d = &n->device->driver;
    hc_gpu_stream const streams[] = {n->down, n->up, n->work};
    int over = 1;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        over &= hc__stream_ends(n->device, streams[i]);
    for (int i = 0; i < HC__NCCL_DEPTH; i++)
        free_slot(n, &n->slots[i], over);
    if (over) {
        hc__device_give(n->device, n->neutral);
        hc__device_give(n->device, n->spare);
    }
    hc_gpu_event const events[] = {n->began, n->done, n->neutral_used};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            d->event_free(events[i]);
    for (size_t i = 0; over && i < sizeof streams / sizeof *streams; i++)
        if (streams[i])
            d->stream_free(streams[i]);
    hc_free(n->starts);
    hc_free(n->shares.starts);
    free(n->ranks);
    free(n);
}

static const struct hc_node_ops nccl_ops = {
    .name = "nccl",
    .open = nccl_open,
    .depth = nccl_depth,
    .reduce = hc__nccl_reduce,
    .shard = hc__nccl_shard,
    .publish = hc__nccl_publish,
    .spread = hc__nccl_spread,
    .close = nccl_close,
    .free = nccl_free,
};

static int make_streams(hc__nccl_node *n) {
    const hc_driver *d = &n->device->driver;
    hc_gpu_stream *const streams[] = {&n->work, &n->down, &n->up};
    int status = 0;
    for (size_t i = 0; i < sizeof streams / sizeof *streams && !status; i++)
        status = d->stream_new(streams[i], HC_STREAM_NON_BLOCKING, 0);
    hc_gpu_event *const of_batch[] = {&n->began, &n->done, &n->neutral_used};
    for (size_t i = 0; i < sizeof of_batch / sizeof *of_batch && !status; i++)
        status = d->event_new(of_batch[i], HC_EVENT_DISABLE_TIMING);
    for (int i = 0; i < HC__NCCL_DEPTH && !status; i++) {
        hc_gpu_event *const events[] = {&n->slots[i].reduced, &n->slots[i].arrived, &n->slots[i].returned};
        for (size_t k = 0; k < sizeof events / sizeof *events && !status; k++)
            status = d->event_new(events[k], HC_EVENT_DISABLE_TIMING);
    }
    return hc__nccl_failed(n, status, "making streams and events");
}

int hc__nccl_node_new(hc_device *device, hc__comms *comms, void (*neutral)(void *, int dtype, int reduction, int64_t n),
                      hc__nccl_node **out) {
    hc__nccl_node *n = calloc(1, sizeof *n);
    *out = n;
    if (!n)
        return HC_NO_MEMORY;
    n->base = (hc_node){.ops = &nccl_ops, .local_rank = comms->group_rank, .local_size = comms->group_size};
    n->device = device;
    n->comms = comms;
    n->fill_neutral = neutral;
    int status = hc__nccl_order_parts(n);
    return status < 0 ? status : make_streams(n);
}
