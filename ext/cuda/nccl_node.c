/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_node.c - the stages of a chunk over NCCL: each launches its part and returns.
 */
#include "nccl_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((int64_t)64 << 20) /* without a net: one call for most batches. An estimate */
#define LEAST_BYTES ((int64_t)64 << 10)

static hc__nccl_node *node_of(hc_node *base) {
    return (hc__nccl_node *)base;
}

static int drives(const hc__nccl_node *n) {
    return n->base.local_rank < n->rails;
}

static hc__nccl_slot *slot_of(hc__nccl_node *n, int64_t chunk) {
    return &n->slots[chunk % HC__NCCL_DEPTH];
}

/* ---- what NCCL knows --------------------------------------------------------------------------------------------------- */

int hc__nccl_dtype(int dtype) {
    static const int codes[HC_DTYPE_COUNT] = {
        [HC_INT8] = 1 + HC_NCCL_INT8,       [HC_UINT8] = 1 + HC_NCCL_UINT8,
        [HC_INT32] = 1 + HC_NCCL_INT32,     [HC_UINT32] = 1 + HC_NCCL_UINT32,
        [HC_INT64] = 1 + HC_NCCL_INT64,     [HC_UINT64] = 1 + HC_NCCL_UINT64,
        [HC_FLOAT16] = 1 + HC_NCCL_FLOAT16, [HC_BFLOAT16] = 1 + HC_NCCL_BFLOAT16,
        [HC_FLOAT32] = 1 + HC_NCCL_FLOAT32, [HC_FLOAT64] = 1 + HC_NCCL_FLOAT64,
    };
    return codes[dtype] - 1;
}

/* The mean of integers is an exact sum that is divided, which NCCL does in another way. */
int hc__nccl_op(int reduction, int dtype) {
    static const int codes[HC_REDUCTION_COUNT] = {[HC_SUM] = 1 + HC_NCCL_SUM,
                                                  [HC_AVERAGE] = 1 + HC_NCCL_SUM,
                                                  [HC_MIN] = 1 + HC_NCCL_MIN,
                                                  [HC_MAX] = 1 + HC_NCCL_MAX,
                                                  [HC_PRODUCT] = 1 + HC_NCCL_PRODUCT};
    int divides = reduction == HC_AVERAGE && (dtype < HC_FLOAT16 || dtype > HC_FLOAT64);
    return hc__nccl_dtype(dtype) < 0 || divides ? -1 : codes[reduction] - 1;
}

enum hc_device_way hc_device_way(int operation, int reduction, int dtype) {
    int reduces = operation == HC_ALLREDUCE || operation == HC_REDUCESCATTER;
    if (operation > HC_ALLTOALL || (reduces && !hc_reduction_defined(reduction, dtype)))
        return HC_WAY_UNDEFINED;
    return !reduces || hc__nccl_op(reduction, dtype) >= 0 ? HC_WAY_NCCL : HC_WAY_STAGED;
}

/* A broadcast whose root is in another node: the net brings the shards. */
static int comes_from_afar(const hc__nccl_node *n) {
    return n->moves && n->root < 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

/* What is given back may still be used in `work`, behind which the other streams have come to their end. */
int hc__nccl_grow(hc__nccl_node *n, enum hc__memory_kind kind, char **at, int64_t bytes) {
    void *memory;
    hc_device_result_free(n->device, *at, n->work);
    int status = hc__device_take(n->device, kind, (size_t)bytes, &memory);
    *at = memory;
    if (status < 0)
        snprintf(n->text, sizeof n->text, "device %d (%s): no memory for a buffer of %lld bytes%s",
                 n->device->number, n->device->pci, (long long)bytes,
                 kind == HC__PINNED ? ", pinned on the host" : "");
    return status;
}

/* One kind of buffer of all slots; doubling, so that little is left behind. */
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
    int64_t all = n->scatters ? n->chunk : n->starts[n->batch->npieces],
            most = all < n->chunk ? all : n->chunk;
    int64_t rails = n->rails > 0 ? n->rails : 1, room = most + rails * HC__NCCL_PART;
    int status = reserve(n, HC__ON_DEVICE, offsetof(hc__nccl_slot, buffer), &n->buffer_bytes, room * n->size);
    if (status >= 0 && n->wire_dtype != n->dtype)
        status = reserve(n, HC__ON_DEVICE, offsetof(hc__nccl_slot, narrow), &n->narrow_bytes,
                         room * n->wire_size);
    if (status >= 0 && drives(n) && !n->sums)
        status = reserve(n, HC__PINNED, offsetof(hc__nccl_slot, host), &n->host_bytes,
                         (room / rails + HC__NCCL_PART) * n->wire_size);
    return status;
}

/* ---- open, close ------------------------------------------------------------------------------------------------------- */

int hc__nccl_begin(hc__nccl_node *n, const hc_batch *batch) {
    const hc_driver *d = &n->device->driver;
    int status = 0;
    n->batch = batch;
    n->busy = HC__FREE;
    n->waits = 0;
    for (int32_t i = 0; i < n->batch->ncalls && !status; i++)
        status = d->stream_wait_event(n->work, n->batch->ready[i], 0);
    if (!status)
        status = d->event_record(n->began, n->work);
    return hc__nccl_failed(n, status, "waiting for the callers' streams");
}

static int nccl_open(hc_node *base, const hc_batch *batch, const hc_parts *parts, int rails,
                     int64_t chunk_elements, int64_t *nchunks) {
    hc__nccl_node *n = node_of(base);
    if ((parts != NULL) != (batch->operation == HC_REDUCESCATTER) || rails < 0 || rails > base->local_size ||
        (rails > 0 && chunk_elements == 0))
        return HC_INVALID;
    int status = hc__nccl_begin(n, batch);
    n->rails = rails;
    n->moves = batch->operation == HC_BROADCAST;
    n->scatters = batch->operation == HC_REDUCESCATTER;
    n->wire = rails > 0 && !n->moves ? batch->wire_dtype : batch->dtype;
    n->size = (int64_t)hc_dtype_size(batch->dtype);
    n->wire_size = (int64_t)hc_dtype_size(n->wire);
    n->op = n->moves ? HC_NCCL_SUM : hc__nccl_op(batch->reduction, batch->dtype);
    n->dtype = n->moves ? HC_NCCL_UINT8 : hc__nccl_dtype(batch->dtype);
    n->wire_dtype = n->moves ? HC_NCCL_UINT8 : hc__nccl_dtype(n->wire);
    n->units = n->moves ? n->size : 1;
    hc__nccl_find_root(n);
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
    return hc__nccl_end(node_of(base));
}

/* ---- calls of NCCL ------------------------------------------------------------------------------------------------------ */

/* What was called has been taken in, so that what is launched next comes behind it. */
int hc__nccl_settle(hc__nccl_node *n, const char *call) {
    int status = hc__comms_settle(n->comms, call, n->called);
    n->waits = status == HC_IDLE;
    n->called = HC_NCCL_IN_PROGRESS;
    if (status < 0)
        snprintf(n->text, sizeof n->text, "%s", n->comms->text);
    return status;
}

/* Sums of all shards where they are driven: one call, or one a rail. */
static int call_reduce(hc__nccl_node *n, const hc__nccl_slot *slot) {
    const hc_nccl *nccl = &n->comms->nccl;
    const char *from = slot->in_place ? slot->in_place : slot->buffer;
    size_t part = (size_t)slot->part, bytes = part * (size_t)n->size;
    if (n->comms->alone)
        return HC_NCCL_SUCCESS;
    if (n->rails == 0)
        return nccl->all_reduce(from, slot->out_place ? slot->out_place : slot->buffer, (size_t)slot->n,
                                n->dtype, n->op, n->comms->comm, n->work);
    if (n->rails == n->base.local_size)
        return nccl->reduce_scatter(from, slot->buffer + (size_t)n->base.local_rank * bytes, part, n->dtype,
                                    n->op, n->comms->comm, n->work);
    int status = nccl->group_start();
    for (int j = 0; j < n->rails; j++)
        status = hc__nccl_worse(status,
                                nccl->reduce(from + (size_t)j * bytes, slot->buffer + (size_t)j * bytes, part,
                                             n->dtype, n->op, j, n->comms->comm, n->work));
    return hc__nccl_worse(status, nccl->group_end());
}

static int call_gather(hc__nccl_node *n, const hc__nccl_slot *slot) {
    const hc_nccl *nccl = &n->comms->nccl;
    char *wire = hc__nccl_wire(n, slot), *to = slot->out_place ? slot->out_place : wire;
    size_t part = (size_t)(slot->part * n->units), bytes = (size_t)(slot->part * n->wire_size);
    if (n->comms->alone)
        return HC_NCCL_SUCCESS;
    if (n->rails == n->base.local_size)
        return nccl->all_gather(wire + (size_t)n->base.local_rank * bytes, to, part, n->wire_dtype,
                                n->comms->comm, n->work);
    int status = nccl->group_start();
    for (int j = 0; j < n->rails; j++)
        status = hc__nccl_worse(status, nccl->broadcast(wire + (size_t)j * bytes, to + (size_t)j * bytes,
                                                        part, n->wire_dtype, j, n->comms->comm, n->work));
    return hc__nccl_worse(status, nccl->group_end());
}

/* ---- reduce -------------------------------------------------------------------------------------------------------------- */

static int begin_reduce(hc__nccl_node *n, hc__nccl_slot *slot) {
    int status = n->scatters ? hc__nccl_cut_shares(n, n->nreduced, slot) : hc__nccl_cut(n, n->nreduced, slot);
    if (status == HC_OK && hc__nccl_gives(n) && !slot->in_place)
        status = hc__nccl_pack(n, slot);
    if (status)
        return hc__nccl_again(n, status);
    hc__nccl_called(n, n->moves      ? hc__nccl_call_broadcast(n, slot)
                       : n->scatters ? hc__nccl_call_scatter(n, slot)
                                     : call_reduce(n, slot));
    n->busy = HC__REDUCING;
    return HC_MOVED;
}

/* Where it lies on the device, in the wire's type. */
static char *shard_at(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    char *chunk = n->moves && n->root >= 0 ? hc__nccl_lies(n, slot) : hc__nccl_wire(n, slot);
    return chunk + n->base.local_rank * slot->part * n->wire_size;
}

/* My shard, in the wire's type; to the host, unless the net takes it from the device. Of another node's broadcast there is
 * none yet, only room for it. */
static int fetch_shard(hc__nccl_node *n, hc__nccl_slot *slot) {
    const hc_driver *d = &n->device->driver;
    int64_t at = n->base.local_rank * slot->part;
    int status = n->wire_dtype == n->dtype ? HC_OK : hc__nccl_narrow(n, slot, at, slot->part);
    if (status < 0)
        return status;
    status = d->event_record(slot->reduced, n->work);
    if (status || n->sums || comes_from_afar(n))
        return hc__nccl_failed(n, status, "reducing a shard");
    status = d->stream_wait_event(n->down, slot->reduced, 0);
    if (!status)
        status = d->to_host(slot->host, hc__address(shard_at(n, slot)), (size_t)(slot->part * n->wire_size),
                            n->down);
    if (!status)
        status = d->event_record(slot->arrived, n->down);
    return hc__nccl_failed(n, status, "bringing a shard to the host");
}

static int nccl_reduce(hc_node *base, int64_t chunk) {
    hc__nccl_node *n = node_of(base);
    hc__nccl_slot *slot = slot_of(n, chunk);
    int status = HC_OK;
    if (chunk != n->nreduced || chunk >= n->nchunks)
        return HC_INVALID;
    if (n->busy == HC__FREE) {
        status = begin_reduce(n, slot);
        if (status < 0 || n->busy == HC__FREE)
            return status;
    }
    if (n->busy != HC__REDUCING)
        return HC_IDLE;
    status = hc__nccl_settle(n, n->moves ? "the broadcast of a chunk" : "the sum of a chunk");
    if (status != HC_DONE)
        return status;
    status = drives(n) ? fetch_shard(n, slot) : HC_OK;
    n->busy = HC__FREE;
    n->nreduced++;
    base->packed_bytes += slot->in_place || !hc__nccl_gives(n) ? 0 : (uint64_t)(slot->n * n->size);
    return status < 0 ? status : HC_DONE;
}

/* ---- the net's part ------------------------------------------------------------------------------------------------------ */

static int64_t shard_elements(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    int64_t left = slot->n - n->base.local_rank * slot->part;
    return left < 0 ? 0 : left < slot->part ? left : slot->part;
}

/* What the device has not done yet. Patience begins when the callers' streams have come so far. */
static int wait_for_device(hc__nccl_node *n, const char *what) {
    if (n->device->driver.event_query(n->began) == HC_DRIVER_NOT_READY)
        n->comms->since = hc__comms_now();
    int status = hc__comms_wait(n->comms, what);
    if (status < 0)
        snprintf(n->text, sizeof n->text, "%s", n->comms->text);
    return status;
}

static int nccl_shard(hc_node *base, int64_t chunk, void **data, int64_t *bounds) {
    hc__nccl_node *n = node_of(base);
    hc__nccl_slot *slot = slot_of(n, chunk);
    hc_gpu_event event = n->sums ? slot->reduced : comes_from_afar(n) ? slot->returned : slot->arrived;
    int status = n->device->driver.event_query(event);
    n->waits |= status == HC_DRIVER_NOT_READY;
    if (status == HC_DRIVER_NOT_READY)
        return wait_for_device(n, n->moves ? "the broadcast of a chunk" : "the sum of a chunk");
    *data = n->sums ? shard_at(n, slot) : slot->host;
    bounds[0] = 0;
    bounds[1] = shard_elements(n, slot);
    if (n->scatters)
        hc__nccl_node_bounds(n, slot, bounds);
    status = hc__nccl_failed(n, status, "bringing a shard to the host");
    return status < 0 ? status : HC_DONE;
}

static int nccl_publish(hc_node *base, int64_t chunk) {
    hc__nccl_node *n = node_of(base);
    hc__nccl_slot *slot = slot_of(n, chunk);
    const hc_driver *d = &n->device->driver;
    int64_t count = n->scatters ? slot->part / n->groups : shard_elements(n, slot);
    int64_t own = n->scatters ? n->comms->group_of[n->comms->rank] * count * n->wire_size : 0;
    size_t bytes = n->sums ? 0 : (size_t)(count * n->wire_size);
    if (!hc__nccl_returns(n))
        return HC_OK; /* all have it */
    int status = comes_from_afar(n) ? d->stream_wait_event(n->up, slot->reduced, 0) : 0;
    if (bytes && !status)
        status = d->to_device(hc__address(shard_at(n, slot) + own), slot->host + own, bytes, n->up);
    if (!status)
        status = d->event_record(slot->returned, n->sums ? n->sums->stream : n->up);
    return hc__nccl_failed(n, status, "bringing a shard back to the device");
}

/* ---- spread --------------------------------------------------------------------------------------------------------------- */

/* Its place in the order of calls: behind the sums of `depth` chunks, of all at the end. A broadcast has one kind of
 * calls in a node. */
static int may_spread(const hc__nccl_node *n, int64_t chunk) {
    return n->moves || n->nreduced == n->nchunks || n->nreduced == chunk + HC__NCCL_DEPTH;
}

static int begin_spread(hc__nccl_node *n, const hc__nccl_slot *slot) {
    int gathers = hc__nccl_gathers(n);
    int waits = hc__nccl_returns(n) && drives(n);
    int status = waits ? n->device->driver.stream_wait_event(n->work, slot->returned, 0) : 0;
    if (status)
        return hc__nccl_failed(n, status, "waiting for a shard");
    n->busy = gathers ? HC__SPREADING : HC__SPREAD;
    if (gathers)
        hc__nccl_called(n, call_gather(n, slot));
    return HC_OK;
}

static int nccl_spread(hc_node *base, int64_t chunk) {
    hc__nccl_node *n = node_of(base);
    hc__nccl_slot *slot = slot_of(n, chunk);
    int status = HC_OK;
    if (chunk != n->nspread || chunk >= n->nreduced)
        return HC_INVALID;
    if (n->busy == HC__FREE && (!hc__nccl_gathers(n) || may_spread(n, chunk)))
        status = begin_spread(n, slot);
    if (status < 0)
        return status;
    if (n->busy == HC__SPREADING) {
        status = hc__nccl_settle(n, "the gathering of a chunk");
        if (status != HC_DONE)
            return status;
        n->busy = HC__SPREAD;
    }
    if (n->busy != HC__SPREAD)
        return HC_IDLE;
    status = slot->out_place ? HC_OK : hc__nccl_unpack(n, slot);
    if (status)
        return hc__nccl_again(n, status);
    n->busy = HC__FREE;
    n->nspread++;
    base->spread_bytes += (uint64_t)(slot->n * n->size);
    return HC_DONE;
}

/* ---- coming and going ------------------------------------------------------------------------------------------------------ */

int hc__nccl_node_watch(hc__nccl_node *n) {
    const char *what = "a batch that was launched";
    int told = HC_NCCL_SUCCESS, status = n->device->driver.event_query(n->done);
    if (status != HC_DRIVER_NOT_READY || n->batch)
        return n->batch ? HC_OK : hc__nccl_failed(n, status, what);
    if (n->comms->alone)
        return wait_for_device(n, what);
    n->called = n->comms->nccl.get_async_error(n->comms->comm, &told) ? HC_NCCL_INTERNAL : told;
    return n->called == HC_NCCL_SUCCESS ? wait_for_device(n, what) : hc__nccl_settle(n, what);
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
    hc__nccl_node *n = node_of(base);
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
    free(n->starts);
    free(n->shares.starts);
    free(n->ranks);
    free(n);
}

static const struct hc_node_ops nccl_ops = {
    .name = "nccl",
    .open = nccl_open,
    .depth = nccl_depth,
    .reduce = nccl_reduce,
    .shard = nccl_shard,
    .publish = nccl_publish,
    .spread = nccl_spread,
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

int hc__nccl_node_new(hc_device *device, hc__comms *comms, hc__nccl_node **out) {
    hc__nccl_node *n = calloc(1, sizeof *n);
    *out = n;
    if (!n)
        return HC_NO_MEMORY;
    n->base = (hc_node){.ops = &nccl_ops, .local_rank = comms->group_rank, .local_size = comms->group_size};
    n->device = device;
    n->comms = comms;
    int status = hc__nccl_order_parts(n);
    return status < 0 ? status : make_streams(n);
}
