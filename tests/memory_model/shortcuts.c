/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcuts.c - scenarios of shortcut.c: all ranks take a call, or one gives up or declines, or the calls differ; or
 * nodes vote, and rank 0 tells the others of its node.
 */
#include "memory_model/nodes.h"

#include <stdatomic.h>

#include "memory_model/scenarios.h"
#include "transport/shm/shm.h"
#include "transport/shm/shortcut.h"

enum { CALLS = 5, PARTS = 2 };

int mm_groups = 32;
static hc_node *nodes[MM_THREADS];
static int size, give_ups, refusals;
static _Atomic uint32_t *agreed_calls; /* of the engine: ranks that have come to them */

static void make_nodes(int ranks) {
    size_t bytes = hc_shm_bytes(ranks);
    hc_segment segment = {.base = mm_shared(bytes), .bytes = bytes, .fd = -1};
    size = ranks;
    agreed_calls = mm_shared(CALLS * sizeof *agreed_calls);
    mm_make_controls(ranks);
    for (int q = 0; q < ranks; q++)
        mm_check(hc_shm_node_new(segment, mm_controls[q], mm_ranks, q, ranks, &nodes[q]) == HC_OK, "a node");
    give_ups = refusals = 1;
}

static void nodes_of_two(void) {
    make_nodes(2);
}

static void nodes_of_three(void) {
    make_nodes(3);
}

/* Ranks 0 and 1 are a group, rank 2 is another one. */
static void groups_of_three(void) {
    mm_groups = 2;
    make_nodes(3);
}

static void tear_down(void) {
    for (int q = 0; q < size; q++)
        nodes[q]->ops->free(nodes[q]);
    mm_groups = 32;
    mm_free_controls();
}

static int32_t given(int rank, int call, int i) {
    return 1000 * rank + 10 * call + i;
}

/* What all ranks have published is there, and stays until this rank's next call. */
static void check_parts(const hc_shortcut *shortcut, int call) {
    for (int q = 0; q < size; q++) {
        const int32_t *counts = hc_shortcut_counts(shortcut, q);
        const int32_t *part = hc_shortcut_part(shortcut, q, size, PARTS * sizeof *part);
        mm_check(hc_shortcut_own(shortcut, q) == (uint64_t)given(q, call, 7), "a rank's own word");
        for (int i = 0; i < size; i++)
            mm_check(counts[i] == given(q, call, 3 + i), "a rank's counts");
        for (int i = 0; i < PARTS; i++)
            mm_check(part[i] == given(q, call, i), "a rank's part");
    }
}

static int join(hc_shortcut *shortcut, int rank, int call, uint64_t word) {
    uint64_t words[HC_SHORTCUT_WORDS] = {(uint64_t)call, word, 0, 0, 0, 0, 0};
    int32_t counts[MM_THREADS], part[PARTS];
    for (int i = 0; i < size; i++)
        counts[i] = given(rank, call, 3 + i);
    for (int i = 0; i < PARTS; i++)
        part[i] = given(rank, call, i);
    hc_shortcut_offer offer = {words, (uint64_t)given(rank, call, 7), counts, size, part, sizeof part, 0, 0, 0};
    return hc_shortcut_join(shortcut, &offer);
}

/* The engine agrees on a call: its messages order what all ranks did before it before what they do after it. A rank
 * that has taken the call does not come, and that is a deadlock. */
static void agree(hc_shortcut *shortcut, int number) {
    atomic_fetch_add_explicit(&agreed_calls[number], 1, memory_order_release);
    while (atomic_load_explicit(&agreed_calls[number], memory_order_acquire) < (uint32_t)size)
        mm_wait();
    hc_shortcut_renumber(shortcut, (uint64_t)number + 1);
}

static void run_patient(int rank) {
    hc_shortcut *shortcut = hc_shm_shortcut(nodes[rank]);
    for (int call = 0; call < CALLS; call++) {
        int state = join(shortcut, rank, call, 0);
        for (; state == HC_SHORTCUT_OPEN; state = hc_shortcut_look(shortcut))
            mm_wait();
        mm_check(state == HC_SHORTCUT_TAKEN, "all ranks came, and the call is off");
        check_parts(shortcut, call);
    }
}

/* One call of some rank is declined, one given up, and in one the ranks differ. */
static int call_of_many(hc_shortcut *shortcut, int rank, int call) {
    if (mm_choose_dear(&refusals, 2)) {
        hc_shortcut_decline(shortcut);
        return HC_SHORTCUT_OFF;
    }
    int state = join(shortcut, rank, call, call == 2 ? (uint64_t)rank : 0);
    for (; state == HC_SHORTCUT_OPEN; state = hc_shortcut_look(shortcut)) {
        if (mm_choose_dear(&give_ups, 2))
            return hc_shortcut_give_up(shortcut);
        mm_wait();
    }
    return state;
}

static void run_many(int rank) {
    hc_shortcut *shortcut = hc_shm_shortcut(nodes[rank]);
    int agreed = 0;
    for (int call = 0; call < CALLS; call++) {
        int state = call_of_many(shortcut, rank, call);
        if (state == HC_SHORTCUT_TAKEN)
            check_parts(shortcut, call);
        else
            agree(shortcut, agreed++);
        mm_check(call != 2 || state == HC_SHORTCUT_OFF, "the ranks' calls differ, and one is taken");
    }
}

/* The leader of a node in call `call`: the other nodes have taken it or not, and may ask before or after. */
static int lead(hc_shortcut *shortcut, int call) {
    int32_t result[PARTS] = {given(9, call, 0), given(9, call, 1)};
    int state = call % 3 == 2 ? HC_SHORTCUT_OFF : HC_SHORTCUT_TAKEN;
    uint64_t number = hc_shortcut_number(shortcut) - 1;
    mm_check(hc_shortcut_close(shortcut, number) == HC_SHORTCUT_TAKEN, "a full count");
    hc_shortcut_tell(shortcut, number, (enum hc_shortcut_state)state, result, sizeof result);
    return state;
}

static int follow(hc_shortcut *shortcut, int call) {
    int state;
    uint64_t number = hc_shortcut_number(shortcut) - 1;
    while ((state = hc_shortcut_told(shortcut, number)) == HC_SHORTCUT_OPEN)
        mm_wait();
    const int32_t *result = hc_shortcut_result(shortcut, number);
    for (int i = 0; i < PARTS && state == HC_SHORTCUT_TAKEN; i++)
        mm_check(result[i] == given(9, call, i), "the result");
    return state;
}

/* In one call of some rank 0 another node asks before all have come. */
static void run_votes(int rank) {
    hc_shortcut *shortcut = hc_shm_count(nodes[rank]);
    int agreed = 0;
    agree(shortcut, agreed++);
    for (int call = 0; call < CALLS - 1; call++) {
        if (rank == 0 && mm_choose_dear(&refusals, 2))
            hc_shortcut_close(shortcut, hc_shortcut_number(shortcut));
        int state = join(shortcut, rank, call, 0);
        for (; state == HC_SHORTCUT_OPEN; state = hc_shortcut_look(shortcut))
            mm_wait();
        if (state == HC_SHORTCUT_TAKEN) {
            check_parts(shortcut, call);
            state = rank == 0 ? lead(shortcut, call) : follow(shortcut, call);
        }
        if (state == HC_SHORTCUT_OFF)
            agree(shortcut, agreed++);
    }
}

const mm_scenario mm_shortcut_of_two = {"shortcut-2", 2, nodes_of_two, run_patient, tear_down, 2, 2};
const mm_scenario mm_shortcut_of_three = {"shortcut-3", 3, nodes_of_three, run_patient, tear_down, 1, 1};
const mm_scenario mm_shortcuts_off_of_two = {"shortcut-off-2", 2, nodes_of_two, run_many, tear_down, 1, 1};
const mm_scenario mm_shortcuts_off_of_three = {"shortcut-off-3", 3, nodes_of_three, run_many, tear_down, 1, 1};
const mm_scenario mm_shortcut_of_groups = {"shortcut-groups", 3, groups_of_three, run_patient, tear_down, 1, 1};
const mm_scenario mm_shortcuts_off_of_groups = {"shortcut-off-groups", 3, groups_of_three, run_many, tear_down, 1, 1};
const mm_scenario mm_votes_of_two = {"votes-2", 2, nodes_of_two, run_votes, tear_down, 1, 1};
const mm_scenario mm_votes_of_three = {"votes-3", 3, nodes_of_three, run_votes, tear_down, 1, 1};
