/* SPDX-License-Identifier: Apache-2.0
 *
 * flat.c - repeats one small batch inside a node, with one hand-off per start.
 *
 * The exchange is that of small.c, with separate slots. Two slots per rank are enough: part t + 2 replaces part t. If
 * all ranks give and take, a rank writes t + 2 after it has seen every flag t + 1, and each rank raises that flag after
 * it has read all of t. If only one rank gives or takes, a giving rank first checks that the taking ranks have raised
 * flag t + 1. Every rank raises its flag at each start, even if it gives nothing.
 */
#include "transport/shm/flat.h"

#include "transport/shm/control_segment.h"
#include "transport/shm/layout.h"
#include "transport/shm/pieces.h"
#include "transport/shm/shm_state.h"
#include "transport/shm/small.h"

#include <stdlib.h>
#include <string.h>

typedef struct hc__flat hc__flat;

typedef struct flat_slot {
    _Alignas(HC__LINE) _Atomic uint64_t sequence;
    _Alignas(16) uint8_t data[];
} flat_slot;

struct hc__flat {
    hc_data base;
    hc__shm shm; /* the part of a node that pieces.c reads */
    uint8_t *slots;
    size_t stride;
    uint64_t sequence; /* of the newest start */
    int is_sent, gives, takes;
    int32_t next;     /* index into givers: earlier ones have given their part */
    int32_t *locals;  /* local rank in the node control segment of each rank */
    int32_t *givers;  /* ranks whose part this rank needs */
    int32_t *readers; /* ranks that must have read part t before this rank writes t + 2 */
    int32_t ngivers, nreaders;
    hc_stream_read *reads;
    hc__range range;
};

size_t hc_flat_limit(int32_t local_size) {
    return hc__small_limit(local_size);
}

static size_t stride_of(size_t slot_bytes) {
    return (offsetof(flat_slot, data) + slot_bytes + HC__LINE - 1) / HC__LINE * HC__LINE;
}

size_t hc_flat_bytes(int32_t local_size, size_t slot_bytes) {
    return 2 * (size_t)local_size * stride_of(slot_bytes);
}

static flat_slot *slot(const hc__flat *flat, int32_t rank, uint64_t sequence) {
    return (flat_slot *)(void *)(flat->slots + (2 * (size_t)rank + sequence % 2) * flat->stride);
}

static int has_reached(const hc__flat *flat, int32_t rank, uint64_t sequence) {
    return atomic_load_explicit(&slot(flat, rank, sequence)->sequence, memory_order_acquire) >= sequence;
}

/* ---- one start ----------------------------------------------------------------------------------- */

static int may_write(const hc__flat *flat) {
    for (int32_t i = 0; i < flat->nreaders; i++)
        if (!has_reached(flat, flat->readers[i], flat->sequence - 1))
            return 0;
    return 1;
}

static void give(hc__flat *flat) {
    hc__shm *shm = &flat->shm;
    flat_slot *mine = slot(flat, shm->base.local_rank, flat->sequence);
    if (flat->gives)
        hc__pack(shm, (hc__range){0, shm->open.batch->count}, mine->data);
    atomic_store_explicit(&mine->sequence, flat->sequence, memory_order_release);
    hc__doorbells_ring(shm->node_control, &shm->peers);
}

static int all_gave(hc__flat *flat) {
    for (; flat->next < flat->ngivers; flat->next++)
        if (!has_reached(flat, flat->givers[flat->next], flat->sequence))
            return 0;
    return 1;
}

/* Reads this rank's part from its tensor, the others' from their slots. */
static void take_rows(hc__flat *flat) {
    hc__shm *shm = &flat->shm;
    const hc_piece *piece = &shm->open.batch->pieces[0];
    for (int32_t q = 0; q < shm->base.local_size; q++) {
        const hc_stream_read *read = &flat->reads[q];
        int own = q == shm->base.local_rank;
        if (!read->out || !read->bytes)
            continue;
        const uint8_t *from = (own ? (const uint8_t *)piece->in : slot(flat, q, flat->sequence)->data) + read->offset;
        if (own && from != read->out)
            memmove(read->out, from, (size_t)read->bytes);
        else if (!own)
            hc_host_copy(read->out, from, (size_t)read->bytes);
    }
}

static void take_sum(hc__flat *flat) {
    hc__shm *shm = &flat->shm;
    if (flat->range.from == flat->range.to)
        return;
    if (shm->base.local_size == 1) {
        hc__reduce_alone(shm, flat->range, NULL);
        return;
    }
    for (int32_t q = 0; q < shm->base.local_size; q++)
        shm->operands.inputs[q] = slot(flat, q, flat->sequence)->data + (size_t)flat->range.from * shm->open.size;
    hc__reduce(shm, flat->range, NULL, HC__TO_OUT);
}

static int start(hc_data *data, hc_batch *batch) {
    hc__flat *flat = (hc__flat *)data;
    if (batch != flat->shm.open.batch)
        return HC_INVALID;
    flat->sequence++;
    flat->is_sent = 0;
    flat->next = 0;
    return HC_OK;
}

static int test(hc_data *data) {
    hc__flat *flat = (hc__flat *)data;
    int moved = HC_IDLE;
    if (!flat->is_sent && flat->shm.base.local_size > 1) {
        if (!may_write(flat))
            return HC_IDLE;
        give(flat);
        flat->is_sent = 1;
        moved = HC_MOVED;
    }
    if (!all_gave(flat))
        return moved;
    if (flat->takes && flat->reads)
        take_rows(flat);
    else if (flat->takes)
        take_sum(flat);
    return HC_DONE;
}

int hc_flat_awaits(const hc_data *data, int32_t local) {
    const hc__flat *flat = (const hc__flat *)data;
    const int32_t *ranks = flat->is_sent ? flat->givers + flat->next : flat->readers;
    int32_t n = flat->is_sent ? flat->ngivers - flat->next : flat->nreaders;
    for (int32_t i = 0; i < n; i++)
        if (flat->locals[ranks[i]] == local)
            return !has_reached(flat, ranks[i], flat->sequence - !flat->is_sent);
    return 0;
}

/* ---- from start to end --------------------------------------------------------------------------- */

static void abandon(hc_data *data) {
    (void)data; /* only this plane's memory is in use */
}

static void destroy(hc_data *data) {
    hc__flat *flat = (hc__flat *)data;
    hc_segment_close(&flat->shm.segment);
    free(flat->shm.operands.inputs);
    free(flat->shm.operands.blocks);
    free(flat->shm.operands.scratch);
    free(flat->shm.operands.block);
    hc_free(flat->shm.open.starts);
    free(flat->locals);
    free(flat->reads);
    free(flat);
}

static const struct hc_data_ops flat_ops = {
    .name = "flat", .start = start, .test = test, .abandon = abandon, .free = destroy};

static void find_partners(hc__flat *flat, const hc_flat_config *config) {
    int32_t me = flat->shm.base.local_rank, size = flat->shm.base.local_size;
    int symmetric = config->source < 0 && config->target < 0;
    int gives = config->source < 0 || config->source == me;
    flat->takes = config->target < 0 || config->target == me;
    flat->gives = gives && config->slot_bytes > 0;
    for (int32_t q = 0; q < size; q++) {
        if (q != me && flat->takes && (config->source < 0 || config->source == q))
            flat->givers[flat->ngivers++] = q;
        if (q != me && gives && !symmetric && (config->target < 0 || config->target == q))
            flat->readers[flat->nreaders++] = q;
    }
}

static int allocate(hc__flat *flat, const hc_flat_config *config, const int32_t *locals) {
    hc__shm *shm = &flat->shm;
    size_t size = (size_t)shm->base.local_size;
    shm->operands.inputs = calloc(size, sizeof *shm->operands.inputs);
    shm->operands.blocks = calloc(size, sizeof *shm->operands.blocks);
    shm->operands.scratch = aligned_alloc(64, HC__SCRATCH);
    shm->operands.block = aligned_alloc(64, HC__SCRATCH);
    flat->locals = malloc(3 * size * sizeof *flat->locals);
    flat->reads = config->reads ? malloc(size * sizeof *flat->reads) : NULL;
    if (!shm->operands.inputs || !shm->operands.blocks || !shm->operands.scratch || !shm->operands.block ||
        !flat->locals || (config->reads && !flat->reads))
        return HC_NO_MEMORY;
    flat->givers = flat->locals + size;
    flat->readers = flat->givers + size;
    memcpy(flat->locals, locals, size * sizeof *locals);
    if (config->reads)
        memcpy(flat->reads, config->reads, size * sizeof *flat->reads);
    return hc__take_batch(shm, config->batch, config->batch->dtype);
}

int hc_flat_new(const hc_flat_config *config, hc_segment segment, hc_node_control *node_control, const int32_t *locals,
                int32_t local_rank, int32_t local_size, hc_data **data) {
    if (local_size < 1 || local_size > HC_NODE_RANKS || local_rank < 0 || local_rank >= local_size ||
        (local_size > 1 && segment.bytes < hc_flat_bytes(local_size, config->slot_bytes)))
        return HC_INVALID;
    hc__flat *flat = calloc(1, sizeof *flat);
    if (!flat)
        return HC_NO_MEMORY;
    flat->base.ops = &flat_ops;
    flat->shm.node_control = node_control;
    flat->shm.base.local_rank = local_rank;
    flat->shm.base.local_size = local_size;
    flat->shm.segment.fd = -1;
    int status = allocate(flat, config, locals);
    if (status != HC_OK) {
        destroy(&flat->base);
        return status;
    }
    config->batch->node_divisor = config->batch->divisor;
    if (!config->borrows)
        flat->shm.segment = segment;
    flat->slots = segment.base;
    flat->stride = stride_of(config->slot_bytes);
    flat->range = (hc__range){config->from, config->to};
    flat->shm.open.out_from = config->from;
    hc__shm_set_peers(&flat->shm, locals);
    find_partners(flat, config);
    *data = &flat->base;
    return HC_OK;
}
