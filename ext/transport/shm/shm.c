/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.c - a node of ranks that share memory: its segment, its marks, its table of operations.
 */
#include "transport/shm/node.h"

#include <stdlib.h>
#include <string.h>

#define REGION_MAX ((size_t)2 << 20)     /* of one rank */
#define REGIONS_BYTES ((size_t)56 << 20) /* of all: with the small slots below 64 MiB, docker's default */
#define DEPTH_MIN 4
#define PAGE 4096

/* ---- layout -------------------------------------------------------------------------------------- */

static size_t region_bytes(int32_t local_size) {
    size_t share = REGIONS_BYTES / ((size_t)local_size + 1) / (DEPTH_MIN * PAGE) * (DEPTH_MIN * PAGE);
    return share < REGION_MAX ? share : REGION_MAX;
}

int64_t hc_node_chunk_bytes(int32_t local_size) {
    return (int64_t)(region_bytes(local_size) / DEPTH_MIN);
}

static size_t head_bytes(int32_t local_size) {
    size_t bytes = sizeof(hc__mark) + (size_t)local_size * (sizeof(hc__marks) + 2 * sizeof(hc__small));
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

size_t hc_shm_bytes(int32_t local_size) {
    return head_bytes(local_size) + ((size_t)local_size + 1) * region_bytes(local_size);
}

int hc__cut_regions(hc__shm *shm, size_t bytes, size_t most) {
    size_t stride = (bytes + PAGE - 1) / PAGE * PAGE;
    if (stride == 0)
        stride = PAGE;
    size_t depth = shm->region / stride;
    if (depth < DEPTH_MIN)
        return HC_INVALID;
    shm->stride = stride;
    shm->depth = (int)(depth < most ? depth : most);
    return HC_OK;
}

uint8_t *hc__slot(const hc__shm *shm, int32_t rank, int64_t chunk) {
    return shm->slots + (size_t)rank * shm->region + (size_t)(chunk % shm->depth) * shm->stride;
}

uint8_t *hc__result(const hc__shm *shm, int64_t chunk) {
    return shm->results + (size_t)(chunk % shm->depth) * shm->stride;
}

/* ---- marks --------------------------------------------------------------------------------------- */

void hc__mark_set(hc__shm *shm, enum hc__mark_kind kind, uint64_t value) {
    atomic_store_explicit(&shm->marks[shm->base.local_rank].of[kind].value, value, memory_order_release);
    hc__bells_ring(shm->node_control, &shm->peers);
}

int hc__mark_reached(const hc__shm *shm, int32_t rank, enum hc__mark_kind kind, uint64_t value) {
    return atomic_load_explicit(&shm->marks[rank].of[kind].value, memory_order_acquire) >= value;
}

int hc__marks_reached(const hc__shm *shm, hc__watch *watch, int32_t first, int32_t step, enum hc__mark_kind kind,
                      uint64_t value) {
    if (watch->target != value)
        *watch = (hc__watch){value, first};
    while (watch->next < shm->base.local_size) {
        if (!hc__mark_reached(shm, watch->next, kind, value))
            return 0;
        watch->next += step;
    }
    return 1;
}

/* ---- coming and going ---------------------------------------------------------------------------- */

static void shm_release(hc__shm *shm) {
    free(shm->inputs);
    free(shm->blocks);
    free(shm->scratch);
    free(shm->own);
    free(shm->starts);
    free(shm);
}

static void shm_free(hc_node *node) {
    hc__shm *shm = hc__shm_of(node);
    int32_t others_left = (int32_t)atomic_fetch_add(&shm->left->value, 1);
    if (shm->segment.fd >= 0 || others_left + 1 == node->local_size)
        hc_segment_close(&shm->segment);
    shm_release(shm);
}

static const struct hc_node_ops shm_ops = {
    .name = "shm",
    .open = hc__shm_open,
    .depth = hc__shm_depth,
    .reduce = hc__shm_reduce,
    .shard = hc__shm_shard,
    .publish = hc__shm_publish,
    .spread = hc__shm_spread,
    .close = hc__shm_close,
    .exchange = hc__shm_exchange,
    .table = hc__shm_table,
    .scatter = hc__shm_scatter,
    .free = shm_free,
};

static void place(hc__shm *shm) {
    uint8_t *base = shm->segment.base;
    int32_t size = shm->base.local_size;
    shm->left = (hc__mark *)base;
    shm->marks = (hc__marks *)(shm->left + 1);
    shm->small = (hc__small *)(shm->marks + size);
    shm->region = region_bytes(size);
    shm->slots = base + head_bytes(size);
    shm->results = shm->slots + (size_t)size * shm->region;
}

int hc_shm_node_new(hc_segment segment, hc_node_control *node_control, const int32_t *locals, int32_t local_rank,
                    int32_t local_size, hc_node **out) {
    if (local_size < 1 || local_size > HC__LOCAL_MAX || local_rank < 0 || local_rank >= local_size ||
        segment.bytes < hc_shm_bytes(local_size))
        return HC_INVALID;
    hc__shm *shm = calloc(1, sizeof *shm);
    if (shm == NULL)
        return HC_NO_MEMORY;
    shm->base = (hc_node){.ops = &shm_ops, .local_rank = local_rank, .local_size = local_size};
    shm->segment = segment;
    shm->node_control = node_control;
    for (int32_t q = 0; q < local_size; q++)
        if (q != local_rank)
            hc__mask_add(&shm->peers, locals[q]);
    place(shm);
    shm->inputs = calloc((size_t)local_size, sizeof *shm->inputs);
    shm->blocks = calloc((size_t)local_size, sizeof *shm->blocks);
    shm->scratch = aligned_alloc(64, HC__SCRATCH);
    shm->own = aligned_alloc(64, HC__SCRATCH);
    if (shm->inputs == NULL || shm->blocks == NULL || shm->scratch == NULL || shm->own == NULL) {
        shm_release(shm);
        return HC_NO_MEMORY;
    }
    *out = &shm->base;
    return HC_OK;
}
