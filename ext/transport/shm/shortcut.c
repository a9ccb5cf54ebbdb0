/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcut.c - one exchange of few bytes in which all ranks of a node take part, or none.
 *
 * A rank writes its part and its call into its slot, and adds itself to a word that counts the ranks of this call; of
 * more than 32 ranks the last one of each group adds the group. The call is taken when the count is full. A rank that
 * does not want to wait longer replaces the count by OFF, and one that cannot take the call by DECLINED; both succeed
 * only while the count is not full, so all ranks read the same outcome at any time. If all ranks have arrived and one
 * has a different call, every rank sees a difference from its own.
 *
 * The number of a call is the position of the last call that the engine agreed on, which is the same on all ranks, plus
 * the calls taken since. A rank with a lower number than the word's is late. A rank with a higher number replaces an
 * earlier call in the word, to which no rank comes any more.
 *
 * Two words and two slots per rank are enough. A rank writes for call t + 2 after t + 1 was taken, and each rank joined
 * t + 1 after it had read all of t. If t + 1 was off, all ranks have been in a call of the engine since.
 *
 * Memory order: a rank that joins releases its slot, and one that finds the count full acquires all slots. No rank
 * reads a slot of a call that is off, so OFF and DECLINED release nothing.
 */
#include "transport/shm/shortcut.h"

#include "transport/shm/control_segment.h"
#include "transport/shm/shm_state.h"
#include "transport/shm/shortcut_state.h"
#include "transport/shm/stores.h"

#include <string.h>

#define OFF UINT64_C(255)
#define DECLINED UINT64_C(254)
#define COUNT UINT64_C(255) /* the bits of the word below the number */
#define UNSTREAMED (8u << 10)
#define AREA ((size_t)1 << 20) /* of two ranks; a rank's two areas are larger than a second-level cache */
#define ALL_PARTS (128u << 10) /* of three ranks or more: each reads all of them, in the time of an agreement */

static _Atomic uint64_t *word_of(const hc_shortcut *shortcut) {
    return &shortcut->words[shortcut->number % 2].value;
}

static hc__shortcut_slot *slot_of(const hc_shortcut *shortcut, int32_t rank, uint64_t number) {
    return &shortcut->slots[2 * rank + (int32_t)(number % 2)];
}

static uint8_t *place_of_result(const hc_shortcut *shortcut, uint64_t number) {
    return shortcut->results + number % 2 * HC_SHORTCUT_RESULT;
}

/* A rank has two areas for large parts, which two calls use in turn. Within an area the parts of calls take places in
 * turn, if there are some. */
static uint8_t *place_of_part(const hc_shortcut *shortcut, int32_t rank, uint64_t number, int32_t ncounts,
                              size_t bytes) {
    if (bytes <= HC__SHORTCUT_NEAR)
        return slot_of(shortcut, rank, number)->data + (size_t)ncounts * sizeof(int32_t);
    uint8_t *area = shortcut->far + (2 * (size_t)rank + number % 2) * shortcut->area;
    size_t stride = hc_node_stride(bytes), places = shortcut->area / stride;
    return bytes > UNSTREAMED && places > 1 ? area + number / 2 % places * stride : area;
}

/* Each of two ranks reads one part, as with an agreement, where the ranks share the work. */
size_t hc_shortcut_bytes(int32_t local_size) {
    return local_size <= 2 ? HC_SHORTCUT_BYTES : ALL_PARTS / (uint32_t)local_size / 64 * 64;
}

size_t hc__shortcut_area(int32_t local_size) {
    return local_size <= 2 ? AREA : hc_shortcut_bytes(local_size);
}

/* Only a rank that waited in vain counts it as a miss. */
static int off(hc_shortcut *shortcut, uint64_t word) {
    shortcut->misses += (word & COUNT) != DECLINED;
    return HC_SHORTCUT_OFF;
}

/* Compares the calls of all ranks, which have arrived. */
static int compare(hc_shortcut *shortcut) {
    const hc__shortcut_slot *mine = slot_of(shortcut, shortcut->rank, shortcut->number);
    for (int32_t q = 0; q < shortcut->size; q++)
        if (memcmp(slot_of(shortcut, q, shortcut->number)->agreed, mine->agreed, sizeof mine->agreed) != 0)
            return off(shortcut, OFF);
    shortcut->misses = 0;
    shortcut->number++;
    return HC_SHORTCUT_TAKEN;
}

/* The count of a call to which all ranks have come. */
static uint64_t full(const hc_shortcut *shortcut) {
    return (uint64_t)shortcut->group.n;
}

/* 1: this rank's call is not decided; ranks of an earlier one do not come any more. */
static int is_open(const hc_shortcut *shortcut, uint64_t word) {
    return word >> 8 < shortcut->number || (word >> 8 == shortcut->number && (word & COUNT) < full(shortcut));
}

static int state_of(hc_shortcut *shortcut, uint64_t word) {
    if (word == (shortcut->number << 8 | full(shortcut)))
        return compare(shortcut);
    return is_open(shortcut, word) ? HC_SHORTCUT_OPEN : off(shortcut, word);
}

/* Copies what other ranks read of the part. */
static void copy_shown(uint8_t *to, const hc_shortcut_offer *offer, enum hc_stores stores) {
    const uint8_t *from = offer->part;
    size_t behind = offer->own_from + offer->own_bytes;
    hc_shared_copy(to, from, offer->own_from, stores);
    hc_shared_copy(to + behind, from + behind, offer->bytes - behind, stores);
}

/* The same for many bytes. Streaming stores leave them in no cache; a reader on another core takes them from memory in
 * less time than from the writer's cache, if that is in another L3. Ordinary stores are better in one L3, but slow to
 * lines that the reader's second-level cache still holds: so only ranks with many places choose (stores.c). */
static void show(hc_shortcut *shortcut, uint8_t *to, const hc_shortcut_offer *offer) {
    int is_forced = hc_node_control_stores(shortcut->node_control) != HC_STORES_AUTO;
    if (is_forced || shortcut->area == shortcut->largest) {
        copy_shown(to, offer, HC_STORES_STREAM);
    } else if (hc__choice_looks(&shortcut->choice)) {
        hc__trial trial = hc__trial_begin(&shortcut->choice);
        copy_shown(to, offer, (enum hc_stores)trial.stores);
        hc__trial_end(&shortcut->choice, &trial, offer->bytes - offer->own_bytes);
    } else {
        copy_shown(to, offer, (enum hc_stores)shortcut->choice.stores);
    }
}

/* 0: few bytes, or ranks that take turns on a core and find the part in its cache. */
static int is_far(const hc_shortcut *shortcut, const hc_shortcut_offer *offer) {
    int stores = hc_node_control_stores(shortcut->node_control);
    if (offer->bytes - offer->own_bytes <= UNSTREAMED)
        return 0;
    return stores == HC_STORES_AUTO ? offer->has_core && !hc_host_rewrites_fast() : stores == HC_STORES_STREAM;
}

static void publish(hc_shortcut *shortcut, const hc_shortcut_offer *offer) {
    hc__shortcut_slot *mine = slot_of(shortcut, shortcut->rank, shortcut->number);
    size_t counts = (size_t)offer->ncounts * sizeof *offer->counts;
    memcpy(mine->agreed, offer->agreed, sizeof mine->agreed);
    mine->own = offer->own;
    if (counts > 0)
        memcpy(mine->data, offer->counts, counts);
    if (offer->bytes == 0)
        return;
    uint8_t *to = place_of_part(shortcut, shortcut->rank, shortcut->number, offer->ncounts, offer->bytes);
    if (is_far(shortcut, offer))
        show(shortcut, to, offer);
    else
        memcpy(to, offer->part, offer->bytes);
}

enum arrival { LATE, BEFORE_OTHERS, LAST };

/* Counts this rank in its group. Nothing is decided here: a call is off or taken by the count of the groups alone. */
static enum arrival arrive(const hc_shortcut *shortcut) {
    const hc__shortcut_group *group = &shortcut->group;
    if (group->n == shortcut->size)
        return LAST;
    _Atomic uint64_t *word = &shortcut->words[4 + 2 * (uint64_t)group->own + shortcut->number % 2].value;
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed), next;
    do {
        if (seen >> 8 > shortcut->number)
            return LATE;
        next = seen >> 8 == shortcut->number ? seen + 1 : shortcut->number << 8 | 1;
    } while (!atomic_compare_exchange_weak_explicit(word, &seen, next, memory_order_acq_rel, memory_order_relaxed));
    return (next & COUNT) == (uint64_t)group->ranks ? LAST : BEFORE_OTHERS;
}

int hc_shortcut_join(hc_shortcut *shortcut, const hc_shortcut_offer *offer) {
    _Atomic uint64_t *word = word_of(shortcut);
    publish(shortcut, offer);
    enum arrival arrival = arrive(shortcut);
    if (arrival == LATE)
        return off(shortcut, OFF);
    if (arrival == BEFORE_OTHERS)
        return hc_shortcut_look(shortcut);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed), next;
    do {
        if (!is_open(shortcut, seen))
            return off(shortcut, seen);
        next = seen >> 8 == shortcut->number ? seen + 1 : shortcut->number << 8 | 1;
    } while (!atomic_compare_exchange_weak_explicit(word, &seen, next, memory_order_acq_rel, memory_order_relaxed));
    return state_of(shortcut, next);
}

void hc_shortcut_decline(hc_shortcut *shortcut) {
    _Atomic uint64_t *word = word_of(shortcut);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (is_open(shortcut, seen) &&
           !atomic_compare_exchange_weak_explicit(word, &seen, shortcut->number << 8 | DECLINED, memory_order_relaxed,
                                                  memory_order_relaxed)) {}
}

int hc_shortcut_look(hc_shortcut *shortcut) {
    return state_of(shortcut, atomic_load_explicit(word_of(shortcut), memory_order_acquire));
}

int hc_shortcut_give_up(hc_shortcut *shortcut) {
    _Atomic uint64_t *word = word_of(shortcut);
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    while (is_open(shortcut, seen))
        if (atomic_compare_exchange_weak_explicit(word, &seen, shortcut->number << 8 | OFF, memory_order_acquire,
                                                  memory_order_acquire))
            return off(shortcut, OFF);
    return state_of(shortcut, seen);
}

uint64_t hc_shortcut_own(const hc_shortcut *shortcut, int32_t local_rank) {
    return slot_of(shortcut, local_rank, shortcut->number - 1)->own;
}

const int32_t *hc_shortcut_counts(const hc_shortcut *shortcut, int32_t local_rank) {
    return (const int32_t *)(const void *)slot_of(shortcut, local_rank, shortcut->number - 1)->data;
}

const void *hc_shortcut_part(const hc_shortcut *shortcut, int32_t local_rank, int32_t ncounts, size_t bytes) {
    return place_of_part(shortcut, local_rank, shortcut->number - 1, ncounts, bytes);
}

int hc_shortcut_misses(const hc_shortcut *shortcut) {
    return shortcut->misses;
}

void hc_shortcut_renumber(hc_shortcut *shortcut, uint64_t position) {
    uint64_t number = (position & UINT32_MAX) << 24; /* leaves room for 2^24 shortcuts */
    if (number > shortcut->number)
        shortcut->number = number;
}

/* ---- one node of several -------------------------------------------------------------------------------- */

#define NUMBERS UINT64_C(0xffffff) /* the shortcuts between two positions of the log */

/* The number of the next call, or 0: the numbers of this position of the log are used up, so the ranks agree on the
 * next call. If some nodes counted that call and others did not, their numbers would differ up to the next position. */
uint64_t hc_shortcut_number(const hc_shortcut *shortcut) {
    return (shortcut->number & NUMBERS) == NUMBERS ? 0 : shortcut->number;
}

static enum hc_shortcut_state count_at(const hc_shortcut *shortcut, uint64_t number, uint64_t word) {
    if (word >> 8 < number || (word >> 8 == number && (word & COUNT) < full(shortcut)))
        return HC_SHORTCUT_OPEN;
    return word == (number << 8 | full(shortcut)) ? HC_SHORTCUT_TAKEN : HC_SHORTCUT_OFF;
}

enum hc_shortcut_state hc_shortcut_at(const hc_shortcut *shortcut, uint64_t number) {
    return count_at(shortcut, number, atomic_load_explicit(&shortcut->words[number % 2].value, memory_order_relaxed));
}

enum hc_shortcut_state hc_shortcut_close(hc_shortcut *shortcut, uint64_t number) {
    _Atomic uint64_t *word = &shortcut->words[number % 2].value;
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (count_at(shortcut, number, seen) == HC_SHORTCUT_OPEN)
        if (atomic_compare_exchange_weak_explicit(word, &seen, number << 8 | OFF, memory_order_relaxed,
                                                  memory_order_relaxed))
            return HC_SHORTCUT_OFF;
    return count_at(shortcut, number, seen);
}

/* The outcome's memory and word follow those of the ranks and of the count, and are used again in the same way: the
 * leader writes for call t + 2 after all ranks have joined t + 1, and each joined that after it had read all of t. */
void hc_shortcut_tell(hc_shortcut *shortcut, uint64_t number, enum hc_shortcut_state state, const void *result,
                      size_t bytes) {
    if (bytes > 0)
        memcpy(place_of_result(shortcut, number), result, bytes);
    atomic_store_explicit(&shortcut->words[2 + number % 2].value, number << 8 | (uint64_t)state, memory_order_release);
}

enum hc_shortcut_state hc_shortcut_told(const hc_shortcut *shortcut, uint64_t number) {
    uint64_t word = atomic_load_explicit(&shortcut->words[2 + number % 2].value, memory_order_acquire);
    return word >> 8 == number ? (enum hc_shortcut_state)(word & COUNT) : HC_SHORTCUT_OPEN;
}

const void *hc_shortcut_result(const hc_shortcut *shortcut, uint64_t number) {
    return place_of_result(shortcut, number);
}

/* ---- the shortcut of a node ------------------------------------------------------------------------- */

hc_shortcut *hc_shm_count(const hc_node *node) {
    hc_shortcut *shortcut = &hc__shm_of((hc_node *)(uintptr_t)node)->shortcut;
    return shortcut->words ? shortcut : NULL;
}

hc_shortcut *hc_shm_shortcut(const hc_node *node) {
    return node->local_size > 1 ? hc_shm_count(node) : NULL;
}
