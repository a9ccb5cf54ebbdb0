/* SPDX-License-Identifier: Apache-2.0
 *
 * device_pool.c - a cache of memory blocks, on the device and pinned.
 */
#include "cuda/driver/device_pool.h"

#include <stdlib.h>

#define UNIT 512 /* bytes */

struct hc__block {
    hc__block *next;
    void *memory;
    size_t bytes;
    enum hc__memory_kind kind;
    uint8_t taken;
    hc_gpu_event used; /* of a result: follows the last work that may read it; or NULL */
};

static void free_block(hc__pool *p, hc__block **at) {
    hc__block *b = *at;
    *at = b->next;
    if (b->kind == HC__PINNED)
        p->driver->host_free(b->memory);
    else
        p->driver->memory_free(hc__address(b->memory));
    if (b->used)
        p->driver->event_free(b->used);
    free(b);
}

/* 1: the block was given back, and no launched work uses it. */
static int is_free(const hc__pool *p, const hc__block *b) {
    return !b->taken && (!b->used || p->driver->event_query(b->used) == 0);
}

/* The smallest block that fits. A block more than twice too large is left for large requests. */
static hc__block *find_free(const hc__pool *p, enum hc__memory_kind kind, size_t bytes) {
    hc__block *best = NULL;
    for (hc__block *b = p->blocks; b; b = b->next)
        if (b->kind == kind && b->bytes >= bytes && b->bytes / 2 <= bytes && (!best || b->bytes < best->bytes) &&
            is_free(p, b))
            best = b;
    return best;
}

static int new_memory(const hc__pool *p, enum hc__memory_kind kind, size_t bytes, void **memory) {
    if (kind == HC__PINNED)
        return p->driver->host_new(memory, bytes, HC_HOST_MEMORY_PORTABLE);
    hc_gpu_address address = 0;
    int status = p->driver->memory_new(&address, bytes);
    *memory = (void *)(uintptr_t)address;
    return status;
}

/* Frees unused blocks when memory has run out; this waits for the device. */
static int free_unused(hc__pool *p) {
    int freed = 0;
    for (hc__block **at = &p->blocks; *at;)
        if (is_free(p, *at)) {
            free_block(p, at);
            freed = 1;
        } else
            at = &(*at)->next;
    return freed;
}

static hc__block *new_block(hc__pool *p, enum hc__memory_kind kind, size_t bytes) {
    hc__block *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    int status = new_memory(p, kind, bytes, &b->memory);
    if (status && free_unused(p))
        status = new_memory(p, kind, bytes, &b->memory);
    if (status) {
        free(b);
        return NULL;
    }
    b->kind = kind;
    b->bytes = bytes;
    b->next = p->blocks;
    p->blocks = b;
    return b;
}

static hc__block *block_at(const hc__pool *p, const void *memory) {
    hc__block *b = p->blocks;
    while (b && b->memory != memory)
        b = b->next;
    return b;
}

int hc__pool_take(hc__pool *p, enum hc__memory_kind kind, size_t bytes, void **memory) {
    bytes = (bytes + UNIT - 1) / UNIT * UNIT + (bytes == 0) * UNIT;
    hc__block *b = find_free(p, kind, bytes);
    if (!b)
        b = new_block(p, kind, bytes);
    if (b)
        b->taken = 1;
    *memory = b ? b->memory : NULL;
    return b ? HC_OK : HC_NO_MEMORY;
}

void hc__pool_give(hc__pool *p, void *memory) {
    block_at(p, memory)->taken = 0;
}

void hc__pool_give_behind(hc__pool *p, void *memory, hc_gpu_stream stream) {
    hc__block *b = block_at(p, memory);
    int status = b->used ? 0 : p->driver->event_new(&b->used, HC_EVENT_DISABLE_TIMING);
    if (!status)
        status = p->driver->event_record(b->used, stream);
    b->taken = status != 0; /* without the event nothing shows when the block is free, so it stays taken */
}

void hc__pool_free(hc__pool *p) {
    while (p->blocks)
        free_block(p, &p->blocks);
}
