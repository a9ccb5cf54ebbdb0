/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_memory.c - which living plans of a process share memory.
 */
#include "world/plan_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hc_plan_memories_init(hc_plan_memories *all) {
    pthread_mutex_init(&all->lock, NULL);
    all->living = NULL;
}

/* As for calls in flight: broadcasts of exactly the same memory (tied weights) write equal values. */
static int are_alike(const hc_plan_memory *a, const hc_plan_memory *b) {
    if (a->operation != HC_BROADCAST || b->operation != HC_BROADCAST || a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (a->extents[i].begin != b->extents[i].begin || a->extents[i].end != b->extents[i].end)
            return 0;
    return 1;
}

static int overlap(const hc_plan_memory *a, const hc_plan_memory *b) {
    size_t of_b = 0;
    for (size_t i = 0; i < a->n; i++) { /* both are sorted */
        const hc_extent *e = &a->extents[i];
        while (of_b < b->n && b->extents[of_b].end <= e->begin)
            of_b++;
        for (size_t j = of_b; j < b->n && b->extents[j].begin < e->end; j++)
            if ((e->writes || b->extents[j].writes) && b->extents[j].end > e->begin)
                return 1;
    }
    return 0;
}

static int make_room(hc_plan_memory *memory) {
    if (memory->nothers < memory->room)
        return 1;
    size_t room = 2 * memory->room + 4;
    hc_plan_memory **grown = realloc(memory->others, room * sizeof *grown);
    if (!grown)
        return 0;
    memory->others = grown;
    memory->room = room;
    return 1;
}

static void forget(hc_plan_memory *memory, const hc_plan_memory *other) {
    for (size_t i = 0; i < memory->nothers; i++)
        if (memory->others[i] == other) {
            memory->others[i] = memory->others[memory->nothers - 1];
            memory->nothers--;
            return;
        }
}

static void forget_all(hc_plan_memory *memory) {
    for (size_t i = 0; i < memory->nothers; i++)
        forget(memory->others[i], memory);
    memory->nothers = 0;
}

/* 0: no memory. */
static int find_others(const hc_plan_memories *all, hc_plan_memory *memory) {
    for (hc_plan_memory *other = all->living; other; other = other->next) {
        if (!overlap(memory, other) || are_alike(memory, other))
            continue;
        if (!make_room(memory) || !make_room(other)) {
            forget_all(memory);
            return 0;
        }
        memory->others[memory->nothers++] = other;
        other->others[other->nothers++] = memory;
    }
    return 1;
}

static void destroy(hc_plan_memory *memory) {
    free(memory->others);
    free(memory->extents);
    free(memory);
}

static int earlier(const void *a, const void *b) {
    const hc_extent *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

hc_plan_memory *hc_plan_memory_new(hc_plan_memories *all, const hc_extent *extents, size_t n, int operation,
                                   const char *words) {
    hc_plan_memory *memory = calloc(1, sizeof *memory);
    if (!memory || !(memory->extents = malloc((n + 1) * sizeof *extents))) {
        free(memory);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (extents[i].begin < extents[i].end)
            memory->extents[memory->n++] = extents[i];
    qsort(memory->extents, memory->n, sizeof *extents, earlier);
    memory->operation = operation;
    snprintf(memory->words, sizeof memory->words, "%s", words);
    pthread_mutex_lock(&all->lock);
    int done = find_others(all, memory);
    if (done) {
        memory->next = all->living;
        all->living = memory;
    }
    pthread_mutex_unlock(&all->lock);
    if (done)
        return memory;
    destroy(memory);
    return NULL;
}

void hc_plan_memory_free(hc_plan_memories *all, hc_plan_memory *memory) {
    if (!memory)
        return;
    pthread_mutex_lock(&all->lock);
    forget_all(memory);
    for (hc_plan_memory **at = &all->living; *at; at = &(*at)->next)
        if (*at == memory) {
            *at = memory->next;
            break;
        }
    pthread_mutex_unlock(&all->lock);
    destroy(memory);
}

const hc_plan_memory *hc_plan_memory_start_shared(hc_plan_memories *all, hc_plan_memory *memory) {
    const hc_plan_memory *started = NULL;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < memory->nothers && !started; i++)
        if (atomic_load_explicit(&memory->others[i]->is_started, memory_order_relaxed))
            started = memory->others[i];
    if (!started)
        atomic_store_explicit(&memory->is_started, 1, memory_order_relaxed);
    pthread_mutex_unlock(&all->lock);
    return started;
}
