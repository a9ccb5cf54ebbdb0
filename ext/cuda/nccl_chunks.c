/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_chunks.c - what a chunk of a batch holds, and its way between the tensors and the buffer.
 *
 * All that decides here is agreed: counts, types, scale factors. Where a rank's tensors lie is its own: whether it packs
 * them or lends them to NCCL as they are, no other rank can tell.
 */
#include "nccl_node.h"

int hc__nccl_failed(hc__nccl_node *n, int status, const char *what) {
    return hc__device_failed(n->device, status, what, n->text, sizeof n->text);
}

/* ---- layout ---------------------------------------------------------------------------------------------------------- */

int hc__nccl_layout(hc__nccl_node *n) {
    const hc_batch *b = n->batch;
    int64_t least = n->size < n->wire_size ? n->size : n->wire_size, unit = HC_PACK_UNIT / least;
    if (hc_starts_reserve(&n->starts, &n->starts_room, b->npieces) < 0)
        return HC_NO_MEMORY;
    n->starts[0] = 0;
    for (int32_t i = 0; i < b->npieces; i++)
        n->starts[i + 1] = n->starts[i] + (b->pieces[i].count + unit - 1) / unit * unit;
    n->nchunks = (n->starts[b->npieces] + n->chunk - 1) / n->chunk;
    return HC_OK;
}

/* The tensor in which an element of the whole lies. */
static int32_t piece_at(const hc__nccl_node *n, int64_t at) {
    return hc_piece_at(n->starts, n->batch->npieces, at);
}

static int add_range(hc__nccl_node *n, hc__nccl_slot *slot, int32_t i, int64_t from, int64_t to,
                     int64_t place) {
    const hc_piece *piece = &n->batch->pieces[i];
    int64_t at = from * n->size, bytes = (to - from) * n->size;
    int status = HC_OK;
    if (piece->in)
        status = hc__copies_add(&slot->in, (const char *)piece->in + at, bytes, place * n->size);
    if (status >= 0 && piece->out)
        status = hc__copies_add(&slot->out, (char *)piece->out + at, bytes, place * n->wire_size);
    return status;
}

/* The one range that is all of the chunk, as NCCL takes it: whole shards where there are rails. */
static char *in_place(const hc__nccl_node *n, const hc__nccl_slot *slot, const hc__copies *c) {
    int whole = c->n == 1 && c->of[0].bytes == slot->n * n->size &&
                (n->rails == 0 || slot->n == slot->part * n->rails);
    return whole ? (char *)(uintptr_t)c->of[0].address : NULL;
}

int hc__nccl_cut(hc__nccl_node *n, int64_t chunk, hc__nccl_slot *slot) {
    int64_t begin = chunk * n->chunk, total = n->starts[n->batch->npieces];
    int64_t end = begin + n->chunk < total ? begin + n->chunk : total;
    int32_t first = piece_at(n, begin), last = piece_at(n, end - 1);
    int64_t rails = n->rails > 0 ? n->rails : 1;
    int status = HC_OK;
    slot->in.n = slot->out.n = 0;
    slot->n = end - begin;
    slot->part = (slot->n + rails * HC__NCCL_PART - 1) / (rails * HC__NCCL_PART) * HC__NCCL_PART;
    for (int32_t i = first; i <= last && status >= 0; i++) {
        int64_t count = n->batch->pieces[i].count, from = begin > n->starts[i] ? begin - n->starts[i] : 0;
        int64_t to = end - n->starts[i] < count ? end - n->starts[i] : count;
        if (from < to)
            status = add_range(n, slot, i, from, to, n->starts[i] + from - begin);
    }
    slot->in_place = first == last && n->batch->pieces[first].scale == 1.0 ? in_place(n, slot, &slot->in)
                                                                           : NULL;
    slot->out_place = n->wire_dtype == n->dtype ? in_place(n, slot, &slot->out) : NULL;
    return status;
}

/* ---- neutral elements ------------------------------------------------------------------------------------------------- */

/* A rank that has joined, or gave only some of the tensors, brings neutral elements for the rest. */
static int fill_neutral(hc__nccl_node *n) {
    const hc_batch *b = n->batch;
    int64_t bytes = n->chunk * n->size;
    int reduction = b->reduction == HC_AVERAGE ? HC_SUM : b->reduction;
    if (n->neutral_bytes >= bytes && n->neutral_dtype == b->dtype && n->neutral_reduction == reduction)
        return HC_OK;
    int status = n->device->driver.event_query(n->neutral_used);
    if (status)
        return status == HC_DRIVER_NOT_READY ? 1 : hc__nccl_failed(n, status, "asking an event");
    if (n->neutral_bytes < bytes) {
        void *memory;
        hc__device_give(n->device, n->neutral);
        status = hc__device_take(n->device, HC__PINNED, (size_t)bytes, &memory);
        n->neutral = memory;
        n->neutral_bytes = status < 0 ? 0 : bytes;
        if (status < 0)
            return status;
    }
    hc_host_memory.neutral(n->neutral, b->dtype, reduction, n->neutral_bytes / n->size);
    n->neutral_dtype = b->dtype;
    n->neutral_reduction = reduction;
    return HC_OK;
}

static int bring_neutral(hc__nccl_node *n, hc__nccl_slot *slot) {
    int status = fill_neutral(n);
    if (status)
        return status;
    const hc_driver *d = &n->device->driver;
    status = d->to_device(hc__address(slot->buffer), n->neutral, (size_t)(slot->n * n->size), n->work);
    if (!status)
        status = d->event_record(n->neutral_used, n->work);
    return hc__nccl_failed(n, status, "bringing neutral elements");
}

static int is_complete(const hc__nccl_node *n, const hc__nccl_slot *slot, int64_t chunk) {
    int64_t begin = chunk * n->chunk, end = begin + slot->n;
    for (int32_t i = piece_at(n, begin); i <= piece_at(n, end - 1); i++)
        if (!n->batch->pieces[i].in)
            return 0;
    return 1;
}

/* ---- packing ---------------------------------------------------------------------------------------------------------- */

/* The factor of a range: that of its tensor. */
static double scale_of(const hc__nccl_node *n, int64_t chunk, const hc__copy *copy) {
    return n->batch->pieces[piece_at(n, chunk * n->chunk + copy->place / n->size)].scale;
}

/* One launch for all ranges of one factor; mostly there is one for all. The others' are left out: no address. */
static int pack_scaled(hc__nccl_node *n, hc__nccl_slot *slot, int64_t chunk, double scale) {
    int count = hc__copies_tensors(&slot->in, n->size, n->size), at = 0;
    for (int32_t i = 0; i < slot->in.n; i++, at++) {
        while (slot->in.tensors[at].address != slot->in.of[i].address)
            at++;
        if (scale_of(n, chunk, &slot->in.of[i]) != scale)
            slot->in.tensors[at].address = 0;
    }
    hc_pack_order order = {.tensors = slot->in.tensors,
                           .n = count,
                           .tensor = n->batch->dtype,
                           .buffer = n->batch->dtype,
                           .scale = scale,
                           .at = hc__address(slot->buffer + slot->in.of[0].place)};
    return hc__device_pack(n->device, &order, n->work, n->text, sizeof n->text);
}

int hc__nccl_pack(hc__nccl_node *n, hc__nccl_slot *slot) {
    int64_t chunk = n->nreduced;
    int status = is_complete(n, slot, chunk) ? HC_OK : bring_neutral(n, slot);
    for (int32_t i = 0; i < slot->in.n && status == HC_OK; i++) {
        double scale = scale_of(n, chunk, &slot->in.of[i]);
        int32_t first = 0;
        while (scale_of(n, chunk, &slot->in.of[first]) != scale)
            first++;
        if (first == i)
            status = pack_scaled(n, slot, chunk, scale);
    }
    return status;
}

int hc__nccl_unpack(hc__nccl_node *n, hc__nccl_slot *slot) {
    if (slot->out.n == 0)
        return HC_OK;
    hc_pack_order order = {.tensors = slot->out.tensors,
                           .n = hc__copies_tensors(&slot->out, n->size, n->wire_size),
                           .tensor = n->batch->dtype,
                           .buffer = n->rails > 0 ? n->batch->wire_dtype : n->batch->dtype,
                           .unpack = 1,
                           .scale = 1.0,
                           .at = hc__address(hc__nccl_wire(n, slot) + slot->out.of[0].place)};
    return hc__device_pack(n->device, &order, n->work, n->text, sizeof n->text);
}

int hc__nccl_narrow(hc__nccl_node *n, hc__nccl_slot *slot, int64_t at, int64_t count) {
    hc_pack_tensor shard = {hc__address(slot->buffer + at * n->size), count};
    hc_pack_order order = {.tensors = &shard,
                           .n = 1,
                           .tensor = n->batch->dtype,
                           .buffer = n->batch->wire_dtype,
                           .scale = 1.0,
                           .at = hc__address(hc__nccl_wire(n, slot) + at * n->wire_size)};
    return hc__device_pack(n->device, &order, n->work, n->text, sizeof n->text);
}
