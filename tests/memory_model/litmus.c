/* SPDX-License-Identifier: Apache-2.0
 *
 * litmus.c - the explorer's own test: programs of a few operations whose outcomes under C11 are known.
 *
 * The names are those of the literature (Alglave, Maranget, Tautschnig, "Herding Cats", 2014). Each program notes what
 * its loads return; test_memory_model.py has the outcomes that C11 allows.
 */
#include <stdatomic.h>

#include "memory_model/explorer.h"
#include "memory_model/scenarios.h"

static _Atomic uint32_t *x, *y;
static uint32_t *plain;
static uint32_t seen[4];

static void set_up(void) {
    x = mm_shared(sizeof *x);
    y = mm_shared(sizeof *y);
    plain = mm_shared(sizeof *plain);
    for (int i = 0; i < 4; i++)
        seen[i] = 0;
}

static void note(void) {
    mm_outcome((int)(seen[0] + 10 * seen[1] + 100 * seen[2] + 1000 * seen[3]));
}

#define STORE(to, value, order) atomic_store_explicit(to, value, memory_order_##order)
#define LOAD(from, order) atomic_load_explicit(from, memory_order_##order)
#define FENCE(order) atomic_thread_fence(memory_order_##order)

#define TWO(name, title, first, second)  \
    static void run_##name(int thread) { \
        if (thread == 0) {               \
            first;                       \
        } else {                         \
            second;                      \
        }                                \
    }                                    \
    static const mm_scenario mm_##name = {title, 2, set_up, run_##name, note, 9, 9}

/* Message passing: data, then a flag. */
TWO(mp_relaxed, "MP", (STORE(x, 1, relaxed), STORE(y, 1, relaxed)),
    (seen[1] = LOAD(y, relaxed), seen[0] = LOAD(x, relaxed)));
TWO(mp, "MP+rel+acq", (STORE(x, 1, relaxed), STORE(y, 1, release)),
    (seen[1] = LOAD(y, acquire), seen[0] = LOAD(x, relaxed)));
TWO(mp_fences, "MP+fences", (STORE(x, 1, relaxed), FENCE(release), STORE(y, 1, relaxed)),
    (seen[1] = LOAD(y, relaxed), FENCE(acquire), seen[0] = LOAD(x, relaxed)));
TWO(mp_release, "MP+rel", (STORE(x, 1, relaxed), STORE(y, 1, release)),
    (seen[1] = LOAD(y, relaxed), seen[0] = LOAD(x, relaxed)));
/* Store buffering: each stores, then looks at the other's. */
TWO(sb, "SB+rel+acq", (STORE(x, 1, release), seen[0] = LOAD(y, acquire)),
    (STORE(y, 1, release), seen[1] = LOAD(x, acquire)));
TWO(sb_sc, "SB+sc", (STORE(x, 1, seq_cst), seen[0] = LOAD(y, seq_cst)),
    (STORE(y, 1, seq_cst), seen[1] = LOAD(x, seq_cst)));
TWO(sb_fences, "SB+fences", (STORE(x, 1, relaxed), FENCE(seq_cst), seen[0] = LOAD(y, relaxed)),
    (STORE(y, 1, relaxed), FENCE(seq_cst), seen[1] = LOAD(x, relaxed)));
TWO(sb_fence, "SB+fence+acq_rel", (STORE(x, 1, relaxed), FENCE(seq_cst), seen[0] = LOAD(y, relaxed)),
    (STORE(y, 1, relaxed), FENCE(acq_rel), seen[1] = LOAD(x, relaxed)));
TWO(sb_updates, "SB+updates", (atomic_fetch_add(x, 1), seen[0] = LOAD(y, relaxed)),
    (atomic_fetch_add(y, 1), seen[1] = LOAD(x, relaxed)));
/* Coherence: two reads of one location. */
TWO(corr, "CoRR", (STORE(x, 1, relaxed), STORE(x, 2, relaxed)),
    (seen[0] = LOAD(x, relaxed), seen[1] = LOAD(x, relaxed)));
/* Updates lose nothing. */
TWO(updates, "updates", (seen[0] = atomic_fetch_add_explicit(x, 1, memory_order_relaxed)),
    (seen[1] = atomic_fetch_add_explicit(x, 1, memory_order_relaxed)));

#define THREE(name, title, first, second, third) \
    static void run_##name(int thread) {         \
        if (thread == 0) {                       \
            first;                               \
        } else if (thread == 1) {                \
            second;                              \
        } else {                                 \
            third;                               \
        }                                        \
    }                                            \
    static const mm_scenario mm_##name = {title, 3, set_up, run_##name, note, 9, 9}

/* Write to read causality, and a release that another thread's update carries on. */
THREE(wrc, "WRC+rel+acq", STORE(x, 1, relaxed), (seen[0] = LOAD(x, relaxed), STORE(y, 1, release)),
      (seen[1] = LOAD(y, acquire), seen[2] = LOAD(x, relaxed)));
THREE(carried, "release-sequence", (STORE(x, 1, relaxed), STORE(y, 1, release)),
      (seen[0] = atomic_fetch_add_explicit(y, 1, memory_order_relaxed)),
      (seen[1] = LOAD(y, acquire), seen[2] = LOAD(x, relaxed)));
/* Two readers of two writers, as far as three threads go: one writer reads too. */
THREE(iriw, "RWC+acq", STORE(x, 1, release), (seen[0] = LOAD(x, acquire), seen[1] = LOAD(y, acquire)),
      (STORE(y, 1, relaxed), seen[2] = LOAD(x, acquire)));
THREE(iriw_sc, "RWC+sc", STORE(x, 1, seq_cst), (seen[0] = LOAD(x, seq_cst), seen[1] = LOAD(y, seq_cst)),
      (STORE(y, 1, seq_cst), seen[2] = LOAD(x, seq_cst)));
THREE(iriw_fences, "RWC+fences", STORE(x, 1, relaxed),
      (seen[0] = LOAD(x, relaxed), FENCE(seq_cst), seen[1] = LOAD(y, relaxed)),
      (STORE(y, 1, relaxed), FENCE(seq_cst), seen[2] = LOAD(x, relaxed)));

/* Plain data behind a flag. */
TWO(race, "race", (*plain = 1, STORE(y, 1, relaxed)), seen[0] = LOAD(y, acquire) ? *plain : 0);
TWO(no_race, "no-race", (*plain = 1, STORE(y, 1, release)), seen[0] = LOAD(y, acquire) ? *plain : 0);

const mm_scenario *const mm_litmus[] = {
    &mm_mp_relaxed, &mm_mp,          &mm_mp_fences, &mm_mp_release, &mm_sb,  &mm_sb_sc,   &mm_sb_fences,
    &mm_sb_fence,   &mm_sb_updates,  &mm_corr,      &mm_updates,    &mm_wrc, &mm_carried, &mm_iriw,
    &mm_iriw_sc,    &mm_iriw_fences, &mm_race,      &mm_no_race,    NULL};
