/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_chunks.c - the ranges of tensors in a chunk of a batch, and their copies to and from the buffer.
 *
 * All ranks agree on counts, types and scale factors, and only these decide which calls of NCCL are made. The addresses
 * of tensors differ per rank; whether a rank packs its tensors or passes them to NCCL in place is invisible to the
 * others.
 */
#include "cuda/nccl/nccl_node.h"

#include <stdio.h>

#define NEUTRAL_BYTES ((int64_t)1 << 20) /* copied as often as needed */

int hc__nccl_failed(hc__nccl_node *n, int status, const char *what) {
    return hc__device_failed(n->device, status, what, n->text, sizeof n->text);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Work in `work` may still use the old memory; the other streams have ended by then. */
int hc__nccl_grow(hc__nccl_node *n, enum hc__memory_kind kind, char **at, int64_t bytes) {
    void *memory;
    hc_device_result_free(n->device, *at, n->work);
    int status = hc__device_take(n->device, kind, (size_t)bytes, &memory);
    *at = memory;
    if (status < 0)
        snprintf(n->text, sizeof n->text, "device %d (%s): no memory for a buffer of %lld bytes%s", n->device->number,
                 n->device->pci, (long long)bytes, kind == HC__PINNED ? ", pinned on the host" : "");
    return status;
}

/* ---- layout ----------------------------------------------------------------------------------------------------- */

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

/* The tensor that holds element `at` of the batch. */
static int32_t piece_at(const hc__nccl_node *n, int64_t at) {
    return hc_piece_at(n->starts, n->batch->npieces, at);
}

double hc__nccl_scale(const hc__nccl_node *n, int32_t i) {
    return n->moves ? 1.0 : n->batch->pieces[i].scale / n->shift;
}

static int add_range(hc__nccl_node *n, hc__nccl_slot *slot, int32_t i, int64_t from, int64_t to, int64_t place) {
    const hc_piece *piece = &n->batch->pieces[i];
    int64_t at = from * n->size, bytes = (to - from) * n->size;
    int is_there = n->moves && hc__nccl_gives(n) && piece->out == piece->in;
    int status = HC_OK;
    if (piece->in) {
        status = hc__copies_add(&slot->in, (const char *)piece->in + at, bytes, place * n->size);
        if (status >= 0)
            slot->in.of[slot->in.n - 1].scale = hc__nccl_scale(n, i);
    }
    if (status >= 0 && piece->out && !is_there)
        status = hc__copies_add(&slot->out, (char *)piece->out + at, bytes, place * n->wire_size);
    return status;
}

/* The address of the chunk, if it is one range that NCCL can use in place (with rails: only whole shards); else
 * NULL. */
static char *in_place(const hc__nccl_node *n, const hc__nccl_slot *slot, const hc__copies *c) {
    int whole = !n->comms->alone && c->n == 1 && c->of[0].bytes == slot->n * n->size &&
                (n->rails == 0 || slot->n == slot->part * n->rails);
    return whole ? (char *)(uintptr_t)c->of[0].address : NULL;
}

int hc__nccl_cut(hc__nccl_node *n, int64_t chunk, hc__nccl_slot *slot) {
    int64_t begin = chunk * n->chunk, total = n->starts[n->batch->npieces];
    int64_t end = begin + n->chunk < total ? begin + n->chunk : total;
    int32_t first = piece_at(n, begin), last = piece_at(n, end - 1);
    int64_t rails = n->rails > 0 ? n->rails : 1, end_of_last = n->starts[last] + n->batch->pieces[last].count;
    int status = HC_OK;
    slot->in.n = slot->out.n = 0;
    slot->complete = 1;
    if (first == last && end > end_of_last)
        end = end_of_last; /* without padding NCCL can use the tensor in place */
    slot->n = end - begin;
    slot->part = (slot->n + rails * HC__NCCL_PART - 1) / (rails * HC__NCCL_PART) * HC__NCCL_PART;
    for (int32_t i = first; i <= last && status >= 0; i++) {
        int64_t count = n->batch->pieces[i].count, from = begin > n->starts[i] ? begin - n->starts[i] : 0;
        int64_t to = end - n->starts[i] < count ? end - n->starts[i] : count;
        if (from < to)
            status = add_range(n, slot, i, from, to, n->starts[i] + from - begin);
        slot->complete &= n->batch->pieces[i].in != NULL;
    }
    slot->in_place = first == last && hc__nccl_scale(n, first) == 1.0 ? in_place(n, slot, &slot->in) : NULL;
    slot->out_place = n->wire_dtype == n->dtype && n->divisor == 1.0 ? in_place(n, slot, &slot->out) : NULL;
    return status;
}

/* ---- neutral elements ------------------------------------------------------------------------------------------- */

/* Neutral elements stand for tensors that a rank lacks, because it has joined or passed only some of them. */
static int fill_neutral(hc__nccl_node *n) {
    const hc_batch *b = n->batch;
    int reduction = b->reduction == HC_AVERAGE ? HC_SUM : b->reduction;
    if (n->neutral && n->neutral_dtype == b->dtype && n->neutral_reduction == reduction)
        return HC_OK;
    int status = n->device->driver.event_query(n->neutral_used);
    if (status)
        return status == HC_DRIVER_NOT_READY ? HC_PACK_BUSY : hc__nccl_failed(n, status, "asking an event");
    if (!n->neutral) {
        void *memory;
        status = hc__device_take(n->device, HC__PINNED, NEUTRAL_BYTES, &memory);
        n->neutral = memory;
        if (status < 0)
            return status;
    }
    n->fill_neutral(n->neutral, b->dtype, reduction, NEUTRAL_BYTES / (int64_t)hc_dtype_size(b->dtype));
    n->neutral_dtype = b->dtype;
    n->neutral_reduction = reduction;
    return HC_OK;
}

int hc__nccl_neutral(hc__nccl_node *n, char *to, int64_t bytes) {
    int status = fill_neutral(n);
    if (status)
        return status;
    const hc_driver *d = &n->device->driver;
    for (int64_t at = 0; at < bytes && !status; at += NEUTRAL_BYTES) {
        int64_t left = bytes - at;
        status = d->to_device(hc__address(to + at), n->neutral, (size_t)(left < NEUTRAL_BYTES ? left : NEUTRAL_BYTES),
                              n->work);
    }
    if (!status)
        status = d->event_record(n->neutral_used, n->work);
    return hc__nccl_failed(n, status, "bringing neutral elements");
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

int hc__nccl_pack(hc__nccl_node *n, hc__nccl_slot *slot) {
    const hc__launch to = hc__nccl_launch(n);
    int status = slot->complete ? HC_OK : hc__nccl_neutral(n, slot->buffer, slot->n * n->size);
    return status ? status : hc__copies_pack(&slot->in, &to, n->batch->dtype, slot->buffer);
}

int hc__nccl_unpack(hc__nccl_node *n, hc__nccl_slot *slot) {
    const hc__launch to = hc__nccl_launch(n);
    return hc__copies_unpack(&slot->out, &to, n->batch->dtype, hc__nccl_wire(n, slot), n->wire, n->divisor);
}

int hc__nccl_narrow(hc__nccl_node *n, hc__nccl_slot *slot, int64_t at, int64_t count) {
    hc_pack_tensor shard = {hc__address(slot->buffer + at * n->size), count};
    hc_pack_order order = {.tensors = &shard,
                           .n = 1,
                           .tensor = n->batch->dtype,
                           .buffer = n->wire,
                           .scale = 1.0,
                           .divisor = 1.0,
                           .at = hc__address(hc__nccl_wire(n, slot) + at * n->wire_size)};
    return hc__device_pack(n->device, &order, n->work, n->text, sizeof n->text);
}
