/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c - the layout of a node's segment, and the marks that tell which parts may be read or written.
 */
#include "transport/shm/layout.h"

#include "transport/shm/control_segment.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_state.h"
#include "transport/shm/shortcut_state.h"
#include "transport/shm/small.h"
#include "transport/shm/stores.h"

#include <string.h>

#define CHUNK_MAX ((size_t)512 << 10)
#ifndef CHUNKS_BYTES
#define CHUNKS_BYTES ((size_t)56 << 20) /* of all ranks: with the small slots below 64 MiB, docker's default */
#endif

/* ---- layout -------------------------------------------------------------------------------------- */

/* The longest chunks for which a node has room. */
static size_t longest_chunks(int32_t local_size) {
    return (size_t)local_size * HC_NODE_SLOTS + HC_NODE_RESULTS;
}

int64_t hc_node_chunk_bytes(int32_t local_size) {
    size_t share = CHUNKS_BYTES / longest_chunks(local_size) / HC_NODE_PAGE * HC_NODE_PAGE;
    return (int64_t)(share < CHUNK_MAX ? share : CHUNK_MAX);
}

static size_t head_bytes(int32_t local_size) {
    return hc_node_stride(sizeof(hc__mark) + (size_t)local_size * (sizeof(hc__marks) + 2 * sizeof(hc__small)));
}

/* Ranks per group of a node. */
static int32_t ranks_of_group(int32_t local_size) {
    return (local_size + HC__SHORTCUT_GROUPS - 1) / HC__SHORTCUT_GROUPS;
}

static int32_t groups_of(int32_t local_size) {
    return (local_size + ranks_of_group(local_size) - 1) / ranks_of_group(local_size);
}

static size_t words_of(int32_t local_size) {
    return 4 + (ranks_of_group(local_size) > 1 ? 2 * (size_t)groups_of(local_size) : 0);
}

/* A node with one rank needs it among other nodes, where all parts are small. */
static size_t shortcut_bytes(int32_t local_size) {
    if (local_size > HC_SHORTCUT_MOST)
        return 0;
    size_t slots = 2 * ((size_t)local_size * sizeof(hc__shortcut_slot) + HC_SHORTCUT_RESULT);
    size_t far = local_size > 1 ? 2 * (size_t)local_size * hc__shortcut_area(local_size) : 0;
    return hc_node_stride(words_of(local_size) * sizeof(hc__shortcut_word) + slots + far);
}

/* Where the shortcut begins. */
static size_t before_shortcut(int32_t local_size) {
    return head_bytes(local_size) + longest_chunks(local_size) * (size_t)hc_node_chunk_bytes(local_size);
}

size_t hc_shm_bytes(int32_t local_size) {
    return before_shortcut(local_size) + shortcut_bytes(local_size);
}

int hc__cut_regions(hc__shm *shm, size_t slot_bytes, size_t result_bytes, int depth) {
    hc__chunks *chunks = &shm->chunks;
    chunks->slot_stride = hc_node_stride(slot_bytes);
    chunks->result_stride = hc_node_stride(result_bytes);
    size_t slots = HC_NODE_SLOTS * shm->places.chunk / chunks->slot_stride;
    if (slots < HC_NODE_SLOTS || (size_t)depth > HC_NODE_RESULTS * shm->places.chunk / chunks->result_stride)
        return HC_INVALID;
    chunks->depth = depth;
    chunks->slots = slots < (size_t)depth ? (int)slots : depth;
    return HC_OK;
}

size_t hc_shm_bytes_for(int32_t local_size, int64_t *chunk) {
    int64_t most = hc_node_chunk_bytes(local_size), pages = (int64_t)hc_node_stride((size_t)*chunk);
    *chunk = pages > most ? most : pages;
    return head_bytes(local_size) + longest_chunks(local_size) * (size_t)*chunk;
}

uint8_t *hc__shm_slot(const hc__shm *shm, int32_t rank, int64_t chunk) {
    return shm->places.slots + (size_t)rank * HC_NODE_SLOTS * shm->places.chunk +
           (size_t)(chunk % shm->chunks.slots) * shm->chunks.slot_stride;
}

uint8_t *hc__shm_result(const hc__shm *shm, int64_t chunk) {
    return shm->places.results + (size_t)(chunk % shm->chunks.depth) * shm->chunks.result_stride;
}

void hc__shm_lay_out(hc__shm *shm) {
    uint8_t *base = shm->segment.base;
    int32_t size = shm->base.local_size;
    shm->places.left = (hc__mark *)base;
    shm->places.marks = (hc__marks *)(shm->places.left + 1);
    shm->places.small = (hc__small *)(shm->places.marks + size);
    shm->shortcut = (hc_shortcut){.rank = shm->base.local_rank, .size = size, .node_control = shm->node_control};
    int32_t each = ranks_of_group(size), own = shm->base.local_rank / each, rest = size - own * each;
    shm->shortcut.group = (hc__shortcut_group){own, rest < each ? rest : each, groups_of(size)};
    if (shm->segment.bytes >= hc_shm_bytes(size) && shortcut_bytes(size)) {
        shm->shortcut.words = (hc__shortcut_word *)(void *)(base + before_shortcut(size));
        shm->shortcut.slots = (hc__shortcut_slot *)(void *)(shm->shortcut.words + words_of(size));
        shm->shortcut.results = (uint8_t *)(shm->shortcut.slots + 2 * size);
        shm->shortcut.far = shm->shortcut.results + 2 * HC_SHORTCUT_RESULT;
        shm->shortcut.largest = hc_shortcut_bytes(size);
        shm->shortcut.area = hc__shortcut_area(size);
        hc__choice_begin(&shm->shortcut.choice, HC_STORES_STREAM);
    }
    size_t most = (size_t)hc_node_chunk_bytes(size);
    shm->places.chunk = (shm->segment.bytes - head_bytes(size)) / longest_chunks(size) / HC_NODE_PAGE * HC_NODE_PAGE;
    if (shm->places.chunk > most)
        shm->places.chunk = most;
    shm->places.slots = base + head_bytes(size);
    shm->places.results = shm->places.slots + (size_t)size * HC_NODE_SLOTS * shm->places.chunk;
}

void hc__shm_clear(void *base, int32_t local_size) {
    hc__mark *left = base;
    hc__marks *marks = (hc__marks *)(left + 1);
    hc__small *small = (hc__small *)(marks + local_size);
    memset(left, 0, (size_t)((uint8_t *)small - (uint8_t *)left));
    for (int32_t slot = 0; slot < 2 * local_size; slot++)
        atomic_store_explicit(&small[slot].sequence, 0, memory_order_relaxed);
    if (shortcut_bytes(local_size))
        memset((uint8_t *)base + before_shortcut(local_size), 0, words_of(local_size) * sizeof(hc__shortcut_word));
}

/* ---- peers --------------------------------------------------------------------------------------- */

void hc__shm_set_peers(hc__shm *shm, const int32_t *locals) {
    int is_apart = 0;
    for (int32_t q = 0; q < shm->base.local_size; q++) {
        if (q == shm->base.local_rank)
            continue;
        hc__mask_add(&shm->peers, locals[q]);
        is_apart |= hc__node_control_is_apart(shm->node_control, locals[q]);
    }
    int measured = hc_node_control_measured(shm->node_control);
    int known = is_apart ? HC_STORES_STREAM : HC_STORES_PLAIN;
    hc__choice_begin(&shm->choice, measured == HC_STORES_AUTO ? known : measured);
}

static void copy_timed(hc__shm *shm, void *to, const void *from, size_t bytes) {
    hc__trial trial = hc__trial_begin(&shm->choice);
    hc_shared_copy(to, from, bytes, (enum hc_stores)trial.stores);
    if (hc__trial_end(&shm->choice, &trial, bytes))
        hc__node_control_measure(shm->node_control, shm->choice.stores);
}

/* The stores for data of the open operation; AUTO: those that the rank has chosen by trials. An operation of one turn
 * writes the same few lines as the one before it. */
static enum hc_stores stores_for(const hc__shm *shm, size_t bytes) {
    int forced = hc_node_control_stores(shm->node_control);
    if (bytes < HC_STREAM_LEAST)
        return HC_STORES_PLAIN;
    if (forced != HC_STORES_AUTO)
        return (enum hc_stores)forced;
    return shm->base.turns <= 1 && hc_host_rewrites_fast() ? HC_STORES_PLAIN : HC_STORES_AUTO;
}

static void show_by(const hc__shm *shm, void *to, const void *from, size_t bytes, enum hc_stores stores) {
    if (stores == HC_STORES_AUTO)
        stores = (enum hc_stores)shm->choice.stores;
    if (stores == HC_STORES_PLAIN)
        hc_host_copy(to, from, bytes);
    else
        hc_shared_copy(to, from, bytes, stores);
}

void hc__shm_show(hc__shm *shm, void *to, const void *from, size_t bytes) {
    enum hc_stores stores = stores_for(shm, bytes);
    if (stores == HC_STORES_AUTO && hc__choice_looks(&shm->choice))
        copy_timed(shm, to, from, bytes);
    else
        show_by(shm, to, from, bytes, stores);
}

void hc__shm_show_cached(hc__shm *shm, void *to, const void *from, size_t bytes) {
    show_by(shm, to, from, bytes, stores_for(shm, bytes));
}

/* Input and results of so many bytes do not stay in a core's caches. Then stores that fetch no lines are faster, even
 * if the program reads its results at once: measured with operations of 8 MiB. With those of 4 MiB they gain nothing if
 * the results are read (Ice Lake; decision 127). */
#define PASSING_MOST ((int64_t)12 << 20)

void hc__shm_expect(hc_node *node, int64_t passing) {
    int forced = hc_node_control_stores(hc__shm_of(node)->node_control);
    int wanted = passing >= PASSING_MOST ? HC_STORES_STREAM : HC_STORES_PLAIN;
    node->results = (enum hc_stores)(forced != HC_STORES_AUTO ? forced : wanted);
}

/* ---- marks --------------------------------------------------------------------------------------- */

void hc__mark_set(hc__shm *shm, enum hc__mark_kind kind, uint64_t value) {
    atomic_store_explicit(&shm->places.marks[shm->base.local_rank].of[kind].value, value, memory_order_release);
    hc__doorbells_ring(shm->node_control, &shm->peers);
}

int hc__mark_reached(const hc__shm *shm, int32_t rank, enum hc__mark_kind kind, uint64_t value) {
    return atomic_load_explicit(&shm->places.marks[rank].of[kind].value, memory_order_acquire) >= value;
}

int hc__marks_reached(const hc__shm *shm, hc__mark_scan *watch, int32_t first, int32_t step, enum hc__mark_kind kind,
                      uint64_t value) {
    if (watch->target != value)
        *watch = (hc__mark_scan){value, first};
    while (watch->next < shm->base.local_size) {
        if (!hc__mark_reached(shm, watch->next, kind, value))
            return 0;
        watch->next += step;
    }
    return 1;
}
