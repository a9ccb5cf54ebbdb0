/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - the engine's memory: permanent memory, and scratch memory that lives until the next step.
 *
 * When memory runs out, the engine sets `starved` and breaks the World at the end of the step, because a rank that has
 * applied only a part of an entry must not go on.
 */
#include "core/memory.h"
#include "core/reserve.h"

#include <stdlib.h>

#include "core/state.h"

#define KEEP_SCRATCH 16384u /* kept between steps */

void *hc__alloc(hc_engine *e, size_t bytes) {
    void *at = hc_calloc(1, bytes);
    if (at)
        e->bytes += bytes;
    else
        e->starved = 1;
    return at;
}

void hc__free(hc_engine *e, void *at, size_t bytes) {
    if (!at)
        return;
    e->bytes -= bytes;
    hc_free(at);
}

void *hc__resize(hc_engine *e, void *at, size_t old_bytes, size_t new_bytes) {
    uint8_t *moved = hc_realloc(at, old_bytes, new_bytes);
    if (!moved) {
        e->starved = 1;
        return NULL;
    }
    if (new_bytes > old_bytes)
        memset(moved + old_bytes, 0, new_bytes - old_bytes);
    e->bytes += new_bytes - old_bytes;
    return moved;
}

void *hc__scratch(hc_engine *e, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    hc__scratch_block *block = e->scratch;
    if (!block || block->room - block->used < bytes) {
        size_t room = block ? 2 * block->room : 512;
        while (room < bytes)
            room *= 2;
        hc__scratch_block *fresh = hc_malloc(sizeof *fresh + 16 + room);
        if (!fresh) {
            e->starved = 1;
            return NULL;
        }
        e->bytes += sizeof *fresh + 16 + room;
        *fresh = (hc__scratch_block){.next = block, .room = room};
        e->scratch = block = fresh;
    }
    uintptr_t base = ((uintptr_t)(block + 1) + 15) & ~(uintptr_t)15;
    void *at = (uint8_t *)base + block->used;
    block->used += bytes;
    return at;
}

const char *hc__scratch_text(hc_engine *e, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = hc__scratch(e, n);
    if (!copy)
        return "";
    memcpy(copy, text, n);
    return copy;
}

static void drop_block(hc_engine *e, hc__scratch_block *block) {
    e->bytes -= sizeof *block + 16 + block->room;
    hc_free(block);
}

/* Keeps only the newest block, which is the largest, unless it is too large. */
void hc__scratch_reset(hc_engine *e) {
    hc__scratch_block *block = e->scratch;
    if (block) {
        while (block->next) {
            hc__scratch_block *older = block->next;
            block->next = older->next;
            drop_block(e, older);
        }
        block->used = 0;
        if (block->room > KEEP_SCRATCH) {
            drop_block(e, block);
            e->scratch = NULL;
        }
    }
}

void hc__scratch_free(hc_engine *e) {
    while (e->scratch) {
        hc__scratch_block *next = e->scratch->next;
        drop_block(e, e->scratch);
        e->scratch = next;
    }
}
