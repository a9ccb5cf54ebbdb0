/* SPDX-License-Identifier: Apache-2.0
 *
 * doorbells.c - scenarios of the node control segment: doorbells, control messages, and what ranks show of themselves.
 *
 * A rank here sleeps without a limit, so a wake-up that is lost is a deadlock.
 */
#include "memory_model/nodes.h"

#include <stdatomic.h>
#include <string.h>

#include "memory_model/scenarios.h"
#include "transport/control/control.h"

/* ---- doorbells ------------------------------------------------------------------------------------------- */

enum { RINGS = 2 };

static _Atomic uint32_t *shown; /* by each rank, a line apart */

static void set_up_doorbells(int ranks) {
    mm_make_controls(ranks);
    shown = mm_shared(MM_THREADS * 64);
}

static void doorbells_of_two(void) {
    set_up_doorbells(2);
}

static void doorbells_of_three(void) {
    set_up_doorbells(3);
}

static _Atomic uint32_t *shown_by(int rank) {
    return shown + 16 * rank;
}

/* What is shown is neither released nor acquired: the doorbell alone must see to it that it comes. */
static int others_have_shown(int rank, uint32_t number) {
    int all = 1;
    for (int q = 0; q < MM_THREADS; q++)
        if (q != rank && q < hc__node_control_size(mm_controls[rank]))
            all &= atomic_load_explicit(shown_by(q), memory_order_relaxed) >= number;
    return all;
}

static void await_others(int rank, uint32_t number) {
    while (!others_have_shown(rank, number)) {
        uint32_t seen = hc_doorbell_listen(mm_controls[rank]);
        if (others_have_shown(rank, number))
            return;
        hc_doorbell_sleep(mm_controls[rank], seen, MM_LONG);
    }
}

/* Each waits for all others, as ranks do that exchange data. */
static void run_rounds(int rank) {
    for (uint32_t number = 1; number <= RINGS; number++) {
        atomic_store_explicit(shown_by(rank), number, memory_order_relaxed);
        hc_doorbell_ring_all(mm_controls[rank]);
        await_others(rank, number);
    }
}

/* Rank 0 alone waits: while one rank wakes it, the other finds that it does not listen. */
static void run_one_sleeper(int rank) {
    for (uint32_t number = 1; number <= RINGS; number++) {
        if (rank == 0) {
            await_others(0, number);
            continue;
        }
        atomic_store_explicit(shown_by(rank), number, memory_order_relaxed);
        hc_doorbell_ring(mm_controls[rank], 0);
    }
}

const mm_scenario mm_doorbells_of_two = {"doorbells-2", 2, doorbells_of_two, run_rounds, mm_free_controls, 2, 2};
const mm_scenario mm_doorbells_of_three = {"doorbells-3", 3, doorbells_of_three, run_rounds, mm_free_controls, 1, 1};
const mm_scenario mm_one_sleeper = {"sleeper-3", 3, doorbells_of_three, run_one_sleeper, mm_free_controls, 2, 2};

/* ---- control messages ------------------------------------------------------------------------------------ */

enum { LONG = 3000, MESSAGES = 6 }; /* a ring has room for two long ones */

static hc_control *controls[MM_THREADS];

static void set_up_control(int ranks) {
    mm_make_controls(ranks);
    for (int q = 0; q < ranks; q++)
        mm_check(hc_control_new(mm_controls[q], NULL, mm_ranks, ranks, &controls[q]) == HC_OK, "control");
}

static void control_of_two(void) {
    set_up_control(2);
}

static void control_of_three(void) {
    set_up_control(3);
}

static void free_control(void) {
    for (int q = 0; q < hc__node_control_size(mm_controls[0]); q++)
        controls[q]->ops->free(controls[q]);
    mm_free_controls();
}

static int takes(int rank, int to, size_t bytes) {
    return controls[rank]->ops->takes(controls[rank], to, bytes) ? HC_DONE : HC_IDLE;
}

static void send(int rank, int to, int number, size_t bytes) {
    static char message[MM_THREADS][LONG];
    memset(message[rank], number, bytes);
    MM_UNTIL_DONE(rank, 1, takes(rank, to, bytes));
    mm_check(controls[rank]->ops->send(controls[rank], to, message[rank], bytes) == HC_OK, "sent");
    mm_check(controls[rank]->ops->has_left(controls[rank], to), "what has room leaves at once");
}

/* Returns the rank of which the message is. */
static int receive(int rank, const int *numbers, size_t bytes) {
    int32_t from = -1;
    const uint8_t *message = NULL;
    size_t n = 0;
    MM_UNTIL_DONE(rank, 1, controls[rank]->ops->receive(controls[rank], &from, &message, &n));
    mm_check(n == bytes && message[0] == numbers[from] && message[n - 1] == numbers[from], "a message");
    return from;
}

static void run_long_messages(int rank) {
    for (int m = 1; m <= MESSAGES; m++)
        if (rank == 0)
            send(0, 1, m, LONG);
        else
            receive(1, (int[]){m, 0}, LONG);
}

/* Two ranks send to the third, which answers. */
static void run_answers(int rank) {
    int numbers[MM_THREADS] = {1, 1, 1};
    for (int m = 1; m <= 2; m++) {
        if (rank != 2) {
            send(rank, 2, m, 4);
            receive(rank, (int[]){0, 0, m}, 4);
            continue;
        }
        for (int i = 0; i < 2; i++) {
            int from = receive(2, numbers, 4);
            send(2, from, numbers[from]++, 4);
        }
    }
}

const mm_scenario mm_long_messages = {"control-2", 2, control_of_two, run_long_messages, free_control, 1, 1};
const mm_scenario mm_answers = {"control-3", 3, control_of_three, run_answers, free_control, 1, 1};

/* ---- what ranks show of themselves ------------------------------------------------------------------------ */

static hc_segment life_segment;

static void set_up_life(void) {
    life_segment = (hc_segment){
        .base = mm_shared(hc_node_control_bytes(2)), .bytes = hc_node_control_bytes(2), .fd = -1};
}

enum { PUBLISHED = 3 };

/* The words of a publication are those of its time, or later ones. */
static void look_at_published(int rank) {
    uint64_t words[HC_NODE_WORDS];
    uint64_t at = hc_node_control_published(mm_controls[rank], words);
    for (int i = 0; i < HC_NODE_WORDS; i++)
        mm_check(words[i] >= at && words[i] <= PUBLISHED, "published words");
}

static void publish_all(int rank) {
    for (uint64_t now = 1; now <= PUBLISHED; now++)
        hc_node_control_publish(mm_controls[rank], (uint64_t[]){now, now, now, now}, now);
}

/* Each begins by itself, looks at the other's cores, and leaves. */
static void run_lives(int rank) {
    hc_crowd crowd;
    hc_local_life life;
    mm_check(hc_node_control_new(&life_segment, rank, 2, mm_ranks, &mm_controls[rank]) == HC_OK, "a control segment");
    if (rank == 1)
        publish_all(rank);
    else
        look_at_published(rank);
    if (rank == 0)
        hc_node_control_l3s(mm_controls[rank]); /* of ranks that may not have begun */
    while (!hc_node_control_crowd(mm_controls[rank], 2, &crowd))
        mm_wait();
    mm_check(crowd.cores == 4, "the cores of both ranks");
    mm_check(hc_node_control_l3s(mm_controls[rank]) == 1, "the caches of both ranks");
    hc_node_control_wait(mm_controls[rank], 5);
    hc_node_control_look(mm_controls[rank], 1 - rank, &life);
    mm_check(hc_node_control_lost(mm_controls[rank]) < 0, "no rank is lost");
    hc_node_control_free(mm_controls[rank]);
}

static void nothing(void) {}

const mm_scenario mm_lives = {"lives", 2, set_up_life, run_lives, nothing, 2, 2};

/* ---- memory of a message that is withdrawn ------------------------------------------------------------------ */

static _Atomic uint32_t *message;
static _Atomic uint64_t *offered; /* 1 + the count that goes with the address */

static void set_up_withdrawn(void) {
    mm_make_controls(2);
    message = mm_shared(sizeof *message);
    offered = mm_shared(sizeof *offered);
}

/* The receiver copies what the sender may be writing, as the kernel does for it: so no access is plain here. */
static void run_withdrawn(int rank) {
    if (rank == 0) {
        atomic_store_explicit(message, 1, memory_order_relaxed);
        uint64_t count = hc__node_control_withdrawn(mm_controls[0], 0);
        atomic_store_explicit(offered, 1 + count, memory_order_release);
        hc__node_control_withdraw(mm_controls[0]);
        atomic_store_explicit(message, 2, memory_order_relaxed);
        return;
    }
    uint64_t count;
    while ((count = atomic_load_explicit(offered, memory_order_acquire)) == 0)
        mm_wait();
    uint32_t copy = atomic_load_explicit(message, memory_order_relaxed);
    if (hc__node_control_withdrawn(mm_controls[1], 0) == count - 1)
        mm_check(copy == 1, "a copy of what was withdrawn");
}

const mm_scenario mm_withdrawn = {"withdrawn", 2, set_up_withdrawn, run_withdrawn, mm_free_controls, 2, 2};
