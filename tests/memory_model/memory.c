/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - the memory that the threads share: which stores a load may read, and which accesses are races.
 *
 * Each store to an atomic location is kept, with what its thread knew. A view is such a knowledge: for each location
 * the oldest store that may still be read, and for each thread how much of it has happened before. A load that acquires
 * takes over the view of the store that it reads. A fence that is sequentially consistent exchanges views of locations
 * with all other such fences, an operation that is sequentially consistent only that of its location. This is the model
 * of C11 with the repairs of C20, but for what explorer.h names.
 *
 * Plain data need no list of stores: a read that is ordered after the newest write returns it, and one that is not is a
 * race, which ends the execution.
 */
#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES ((size_t)32 << 20)
#define LINE 64
#define WORD 4 /* bytes that are watched as one */
#define LOCATIONS 120
#define STORES_MOST 4096
#define STORES_OF_ONE 512

typedef struct view {
    uint32_t clock[MM_THREADS];
    uint16_t oldest[LOCATIONS];
} view;

typedef struct store {
    uint64_t value;
    view view;
} store;

typedef struct location {
    volatile void *at;
    uint16_t nstores, stores[STORES_OF_ONE];
    uint16_t sc; /* the oldest store that an operation which is sequentially consistent may read */
} location;

/* What is known of a line of the arena; nothing while its execution is not this one. */
typedef struct word_state {
    uint32_t written, read[MM_THREADS];
    int8_t writer;
} word_state;
typedef struct line_state {
    uint32_t execution;
    uint16_t location[LINE / WORD]; /* 1 + its index; 0: none */
    word_state words[LINE / WORD];
} line_state;

void *__real_memset(void *, int, size_t);

static uint8_t *arena;
static line_state *lines;
static size_t given;
static const uint8_t *racy;
static size_t racy_bytes;
static uint32_t execution;
static location locations[LOCATIONS];
static store stores[STORES_MOST];
static int nlocations, nstores;
/* What each thread knows; what a fence would acquire; what a fence has released. */
static view known[MM_THREADS], fenced[MM_THREADS], acquirable[MM_THREADS];

static void *pages(size_t bytes) {
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        abort();
    return made;
}

void mm_memory_begin(int threads) {
    if (!arena) {
        arena = pages(ARENA_BYTES);
        lines = pages(ARENA_BYTES / LINE * sizeof *lines);
    }
    execution++;
    given = racy_bytes = 0;
    nlocations = nstores = 0;
    memset(known, 0, sizeof known);
    memset(fenced, 0, sizeof fenced);
    memset(acquirable, 0, sizeof acquirable);
    for (int t = 0; t < threads; t++)
        known[t].clock[t] = 1;
}

void *mm_shared(size_t bytes) {
    size_t whole = (bytes + 127) / 128 * 128;
    if (whole > ARENA_BYTES - given)
        abort();
    given += whole;
    return arena + given - whole;
}

int mm_is_watched(const volatile void *at) {
    return (uintptr_t)at - (uintptr_t)arena < given;
}

static size_t offset_of(const volatile void *at) {
    return (size_t)((uintptr_t)at - (uintptr_t)arena);
}

/* The state of a line. The first access of an execution zeroes the line. */
static line_state *line_of(const volatile void *at) {
    size_t number = offset_of(at) / LINE;
    line_state *line = &lines[number];
    if (line->execution != execution) {
        memset(line, 0, sizeof *line);
        __real_memset(arena + number * LINE, 0, LINE); /* not that of hooks.c, which comes here */
        line->execution = execution;
    }
    return line;
}

static void join(view *into, const view *from) {
    for (int t = 0; t < MM_THREADS; t++)
        into->clock[t] = into->clock[t] > from->clock[t] ? into->clock[t] : from->clock[t];
    for (int i = 0; i < nlocations; i++)
        into->oldest[i] = into->oldest[i] > from->oldest[i] ? into->oldest[i] : from->oldest[i];
}

/* ---- races -------------------------------------------------------------------------------------------- */

static void race(const uint8_t *at, const char *what, int other, const char *whose) {
    mm_fail("race: thread %d %s byte %zu of the memory, which thread %d %s, and nothing orders the two", mm_me(), what,
            offset_of(at), other, whose);
}

static void check_written(const word_state *word, const uint8_t *at, const char *what) {
    if (word->written > known[mm_me()].clock[(int)word->writer])
        race(at, what, word->writer, "has written");
}

static void check_read(const word_state *word, const uint8_t *at) {
    for (int t = 0; t < MM_THREADS; t++)
        if (word->read[t] > known[mm_me()].clock[t])
            race(at, "writes", t, "has read");
}

static void access_word(const uint8_t *at, int writes) {
    int me = mm_me();
    line_state *line = line_of(at);
    if (me < 0)
        return; /* before and after the threads */
    word_state *word = &line->words[offset_of(at) % LINE / WORD];
    check_written(word, at, writes ? "writes" : "reads");
    if (writes) {
        check_read(word, at);
        word->written = known[me].clock[me];
        word->writer = (int8_t)me;
    } else {
        word->read[me] = known[me].clock[me];
    }
}

static void access_line(const uint8_t *at, int writes); /* of memory that may race */

void mm_may_race(const void *at, size_t bytes) {
    racy = at;
    racy_bytes = bytes;
}

static void access_bytes(const void *from, size_t bytes, int writes) {
    const uint8_t *at = from;
    if (!mm_is_watched(at) || bytes == 0)
        return;
    int is_racy = mm_me() >= 0 && (uintptr_t)at - (uintptr_t)racy < racy_bytes;
    size_t step = is_racy ? LINE : WORD, before = (uintptr_t)at % step;
    if (is_racy)
        mm_point(); /* but not between the lines, because the bytes move after this */
    for (size_t i = 0; i < bytes + before; i += step)
        (is_racy ? access_line : access_word)(at - before + i, writes);
}

void mm_reads(const void *from, size_t bytes) {
    access_bytes(from, bytes, 0);
}

void mm_writes(void *to, size_t bytes) {
    access_bytes(to, bytes, 1);
}

/* ---- locations and their stores ------------------------------------------------------------------------ */

uint64_t mm_newest(const volatile void *at, size_t bytes) {
    line_of(at);
    switch (bytes) {
    case 1:
        return *(const volatile uint8_t *)at;
    case 4:
        return *(const volatile uint32_t *)at;
    case 8:
        return *(const volatile uint64_t *)at;
    default:
        abort();
    }
}

static void put(volatile void *at, size_t bytes, uint64_t value) {
    line_of(at);
    if (bytes == 1)
        *(volatile uint8_t *)at = (uint8_t)value;
    else if (bytes == 4)
        *(volatile uint32_t *)at = (uint32_t)value;
    else
        *(volatile uint64_t *)at = value;
}

static store *store_of(const location *place, int index) {
    return &stores[place->stores[index]];
}

static int newest(const location *place) {
    return place->nstores - 1;
}

static store *add_store(location *place, uint64_t value) {
    if (nstores == STORES_MOST || place->nstores == STORES_OF_ONE)
        mm_give_up();
    store *made = &stores[nstores];
    made->value = value;
    place->stores[place->nstores++] = (uint16_t)nstores++;
    return made;
}

/* The location at an address, whose first store is the value that it has before the threads use it. */
static int find_location(const volatile void *at, size_t bytes) {
    uint16_t *index = &line_of(at)->location[offset_of(at) % LINE / WORD];
    if (!*index) {
        if (nlocations == LOCATIONS) {
            fprintf(stderr, "more than %d atomic locations\n", LOCATIONS);
            abort();
        }
        location *made = &locations[nlocations++];
        made->at = (volatile void *)(uintptr_t)at;
        made->nstores = made->sc = 0;
        memset(&add_store(made, mm_newest(at, bytes))->view, 0, sizeof(view));
        *index = (uint16_t)nlocations;
    }
    return *index - 1;
}

/* An atomic access races with plain writes. */
static void touch(const volatile void *at, size_t bytes) {
    mm_reads((const void *)(uintptr_t)at, bytes);
}

/* ---- operations ---------------------------------------------------------------------------------------- */

static void learn(int number, int index, int order) {
    view *mine = &known[mm_me()];
    location *place = &locations[number];
    const view *theirs = &store_of(place, index)->view;
    if (index > mine->oldest[number])
        mine->oldest[number] = (uint16_t)index;
    join(order & MM_ACQUIRE ? mine : &acquirable[mm_me()], theirs);
    if ((order & MM_SC) && place->sc < index)
        place->sc = (uint16_t)index;
}

/* The oldest store that the running thread may read. */
static int oldest_for(int number, int order) {
    int oldest = known[mm_me()].oldest[number], sc = locations[number].sc;
    return (order & MM_SC) && sc > oldest ? sc : oldest;
}

/* One store more, whose value is in the memory. */
static void access_line(const uint8_t *at, int writes) {
    int number = find_location(at, sizeof(uint64_t)), me = mm_me();
    location *place = &locations[number];
    if (!writes) {
        learn(number, newest(place), 0);
        return;
    }
    store *made = add_store(place, 0);
    made->view = fenced[me];
    known[me].oldest[number] = made->view.oldest[number] = (uint16_t)newest(place);
}

uint64_t mm_load(const volatile void *at, size_t bytes, int order) {
    mm_point();
    touch(at, bytes);
    int number = find_location(at, bytes);
    location *place = &locations[number];
    int back = mm_choose_dear(mm_stale_left(), newest(place) - oldest_for(number, order) + 1);
    if (back)
        mm_read_stale();
    int index = newest(place) - back;
    learn(number, index, order);
    uint64_t value = store_of(place, index)->value;
    mm_trace("load  %6zu: %llu%s", offset_of(at), (unsigned long long)value, back ? " (old)" : "");
    return value;
}

/* `read`: the store that an operation which reads and writes has read, whose release it goes on; -1: none. */
static void add(int number, size_t bytes, uint64_t value, int order, int read) {
    int me = mm_me();
    location *place = &locations[number];
    store *made = add_store(place, value);
    int index = newest(place);
    known[me].oldest[number] = (uint16_t)index;
    made->view = order & MM_RELEASE ? known[me] : fenced[me];
    made->view.oldest[number] = (uint16_t)index;
    if (read >= 0)
        join(&made->view, &store_of(place, read)->view);
    if (order & MM_RELEASE)
        known[me].clock[me]++;
    if (order & MM_SC)
        place->sc = (uint16_t)index;
    if (value != store_of(place, index - 1)->value)
        mm_changed();
    put(place->at, bytes, value);
}

void mm_store(volatile void *at, size_t bytes, uint64_t value, int order) {
    mm_point();
    touch(at, bytes);
    mm_trace("store %6zu: %llu", offset_of(at), (unsigned long long)value);
    add(find_location(at, bytes), bytes, value, order, -1);
}

uint64_t mm_update(volatile void *at, size_t bytes, mm_operation *operation, uint64_t operand, int order) {
    mm_point();
    touch(at, bytes);
    int number = find_location(at, bytes), index = newest(&locations[number]);
    uint64_t before = store_of(&locations[number], index)->value;
    learn(number, index, order);
    mm_trace("update %5zu: %llu to %llu", offset_of(at), (unsigned long long)before,
             (unsigned long long)operation(before, operand));
    add(number, bytes, operation(before, operand), order, index);
    return before;
}

/* Where a compare-and-exchange fails it is a load, which may read an old store. A weak one may fail for no reason. */
static int index_to_compare(int number, uint64_t expected, int order_if_not, int is_weak, int *is_spurious) {
    location *place = &locations[number];
    int ways[STORES_OF_ONE + 2], n = 0, last = newest(place), oldest = oldest_for(number, order_if_not);
    int fits = store_of(place, last)->value == expected;
    ways[n++] = last;
    if (fits && is_weak)
        ways[n++] = last;
    for (int i = last - 1; i >= oldest; i--)
        if (store_of(place, i)->value != expected)
            ways[n++] = i;
    int way = mm_choose_dear(mm_stale_left(), n);
    *is_spurious = way == 1 && fits && is_weak;
    if (way > 0)
        mm_read_stale();
    return ways[way];
}

int mm_compare_exchange(volatile void *at, size_t bytes, uint64_t *expected, uint64_t value, int order,
                        int order_if_not, int is_weak) {
    mm_point();
    touch(at, bytes);
    int number = find_location(at, bytes), is_spurious;
    int index = index_to_compare(number, *expected, order_if_not, is_weak, &is_spurious);
    uint64_t before = store_of(&locations[number], index)->value;
    int fits = before == *expected && !is_spurious;
    mm_trace("compare %4zu: %llu, %s %llu", offset_of(at), (unsigned long long)before, fits ? "so now" : "so not",
             (unsigned long long)value);
    learn(number, index, fits ? order : order_if_not);
    if (fits)
        add(number, bytes, value, order, index);
    *expected = before;
    return fits;
}

void mm_fence(int order) {
    int me = mm_me();
    mm_point();
    mm_trace("fence");
    if (order & MM_ACQUIRE)
        join(&known[me], &acquirable[me]);
    for (int i = 0; (order & MM_SC) && i < nlocations; i++) {
        uint16_t oldest = known[me].oldest[i], sc = locations[i].sc;
        known[me].oldest[i] = locations[i].sc = oldest > sc ? oldest : sc;
    }
    if (order & MM_RELEASE) {
        fenced[me] = known[me];
        known[me].clock[me]++;
    }
}
