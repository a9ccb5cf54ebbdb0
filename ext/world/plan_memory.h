/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_memory.h - the memory of a job's plans, so that no two plans that share it are started at the same time.
 *
 * A start must cost next to nothing. So a new plan is compared with all living ones, and a start looks only at those
 * that share memory with its plan, which are usually none.
 */
#pragma once

#include "world/in_flight.h"

#define HC_PLAN_WORDS 96

/* The memory of a living plan. */
typedef struct hc_plan_memory hc_plan_memory;
struct hc_plan_memory {
    hc_extent *extents;
    size_t n;
    int operation;         /* -1: a message */
    atomic_int is_started; /* and not over */
    atomic_size_t nothers; /* plans that share memory with this one, where one of the two writes it */
    hc_plan_memory **others;
    size_t room; /* of `others` */
    hc_plan_memory *next;
    char words[HC_PLAN_WORDS]; /* the plan, in errors */
};

typedef struct hc_plan_memories {
    pthread_mutex_t lock;
    hc_plan_memory *living;
} hc_plan_memories;

void hc_plan_memories_init(hc_plan_memories *);
/* Adds the memory of a new plan. The extents are copied; those of one plan do not conflict. NULL: no memory. [any
 * thread] */
hc_plan_memory *hc_plan_memory_new(hc_plan_memories *, const hc_extent *, size_t n, int operation, const char *words);
void hc_plan_memory_free(hc_plan_memories *, hc_plan_memory *); /* NULL is allowed [any thread] */
/* hc_plan_memory_start() for a plan that shares memory. */
const hc_plan_memory *hc_plan_memory_start_shared(hc_plan_memories *, hc_plan_memory *);

/* Notes that the plan is started. Returns NULL; or the started plan that shares memory with it, and notes nothing. */
static inline const hc_plan_memory *hc_plan_memory_start(hc_plan_memories *all, hc_plan_memory *memory) {
    if (atomic_load_explicit(&memory->nothers, memory_order_relaxed))
        return hc_plan_memory_start_shared(all, memory);
    atomic_store_explicit(&memory->is_started, 1, memory_order_relaxed);
    return NULL;
}

/* The start is over, as its program knows. */
static inline void hc_plan_memory_end(hc_plan_memory *memory) {
    atomic_store_explicit(&memory->is_started, 0, memory_order_relaxed);
}
