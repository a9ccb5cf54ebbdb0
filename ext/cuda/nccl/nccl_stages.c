/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_stages.c - the stages of a chunk over NCCL: each launches its part and returns.
 */
#include "cuda/nccl/nccl_node.h"

/* 1: a broadcast whose root is in another node, so the shards arrive over the net. */
static int comes_from_afar(const hc__nccl_node *n) {
    return n->moves && n->root < 0;
}

static hc__nccl_slot *slot_of(hc__nccl_node *n, int64_t chunk) {
    return &n->slots[chunk % HC__NCCL_DEPTH];
}

/* ---- reduce ----------------------------------------------------------------------------------------------------- */

static int begin_reduce(hc__nccl_node *n, hc__nccl_slot *slot) {
    int status = n->scatters ? hc__nccl_cut_shares(n, n->nreduced, slot) : hc__nccl_cut(n, n->nreduced, slot);
    if (status == HC_OK && hc__nccl_gives(n) && !slot->in_place)
        status = hc__nccl_pack(n, slot);
    if (status)
        return hc__nccl_again(n, status);
    hc__nccl_called(n, n->moves      ? hc__nccl_call_broadcast(n, slot)
                       : n->scatters ? hc__nccl_call_scatter(n, slot)
                                     : hc__nccl_call_reduce(n, slot));
    n->busy = HC__REDUCING;
    return HC_MOVED;
}

/* The shard on the device, in the wire's type. */
static char *shard_at(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    char *chunk = n->moves && n->root >= 0 ? hc__nccl_lies(n, slot) : hc__nccl_wire(n, slot);
    return chunk + n->base.local_rank * slot->part * n->wire_size;
}

/* Converts my shard to the wire's type and copies it to the host, unless the net reads device memory. In a broadcast
 * from another node it only makes room for the shard. */
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
        status = d->to_host(slot->host, hc__address(shard_at(n, slot)), (size_t)(slot->part * n->wire_size), n->down);
    if (!status)
        status = d->event_record(slot->arrived, n->down);
    return hc__nccl_failed(n, status, "bringing a shard to the host");
}

int hc__nccl_reduce(hc_node *base, int64_t chunk) {
    hc__nccl_node *n = hc__nccl_node_of(base);
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
    status = hc__nccl_drives(n) ? fetch_shard(n, slot) : HC_OK;
    n->busy = HC__FREE;
    n->nreduced++;
    base->packed_bytes += slot->in_place || !hc__nccl_gives(n) ? 0 : (uint64_t)(slot->n * n->size);
    return status < 0 ? status : HC_DONE;
}

/* ---- the net's part --------------------------------------------------------------------------------------------- */

static int64_t shard_elements(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    int64_t left = slot->n - n->base.local_rank * slot->part;
    return left < 0 ? 0 : left < slot->part ? left : slot->part;
}

int hc__nccl_shard(hc_node *base, int64_t chunk, void **data, int64_t *bounds) {
    hc__nccl_node *n = hc__nccl_node_of(base);
    hc__nccl_slot *slot = slot_of(n, chunk);
    hc_gpu_event event = n->sums ? slot->reduced : comes_from_afar(n) ? slot->returned : slot->arrived;
    int status = n->device->driver.event_query(event);
    n->waits |= status == HC_DRIVER_NOT_READY;
    if (status == HC_DRIVER_NOT_READY)
        return hc__nccl_wait_for_device(n, n->moves ? "the broadcast of a chunk" : "the sum of a chunk");
    *data = n->sums ? shard_at(n, slot) : slot->host;
    bounds[0] = 0;
    bounds[1] = shard_elements(n, slot);
    if (n->scatters)
        hc__nccl_node_bounds(n, slot, bounds);
    status = hc__nccl_failed(n, status, "bringing a shard to the host");
    return status < 0 ? status : HC_DONE;
}

int hc__nccl_publish(hc_node *base, int64_t chunk) {
    hc__nccl_node *n = hc__nccl_node_of(base);
    hc__nccl_slot *slot = slot_of(n, chunk);
    const hc_driver *d = &n->device->driver;
    int64_t count = n->scatters ? slot->part / n->groups : shard_elements(n, slot);
    int64_t own = n->scatters ? n->comms->group_of[n->comms->rank] * count * n->wire_size : 0;
    size_t bytes = n->sums ? 0 : (size_t)(count * n->wire_size);
    if (!hc__nccl_returns(n))
        return HC_OK; /* all ranks of the node have it */
    int status = comes_from_afar(n) ? d->stream_wait_event(n->up, slot->reduced, 0) : 0;
    if (bytes && !status)
        status = d->to_device(hc__address(shard_at(n, slot) + own), slot->host + own, bytes, n->up);
    if (!status)
        status = d->event_record(slot->returned, n->sums ? n->sums->stream : n->up);
    return hc__nccl_failed(n, status, "bringing a shard back to the device");
}

/* ---- spread ----------------------------------------------------------------------------------------------------- */

/* All ranks must call NCCL in one order: spread comes after the sums of the next `depth` chunks, or of all at the end.
 * In a broadcast a node makes calls of one kind only, so any time is right. */
static int may_spread(const hc__nccl_node *n, int64_t chunk) {
    return n->moves || n->nreduced == n->nchunks || n->nreduced == chunk + HC__NCCL_DEPTH;
}

static int begin_spread(hc__nccl_node *n, const hc__nccl_slot *slot) {
    int gathers = hc__nccl_gathers(n);
    int waits = hc__nccl_returns(n) && hc__nccl_drives(n);
    int status = waits ? n->device->driver.stream_wait_event(n->work, slot->returned, 0) : 0;
    if (status)
        return hc__nccl_failed(n, status, "waiting for a shard");
    n->busy = gathers ? HC__SPREADING : HC__SPREAD;
    if (gathers)
        hc__nccl_called(n, hc__nccl_call_gather(n, slot));
    return HC_OK;
}

int hc__nccl_spread(hc_node *base, int64_t chunk) {
    hc__nccl_node *n = hc__nccl_node_of(base);
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
