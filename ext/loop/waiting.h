/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.h - how a thread waits for other ranks: the one rule for callers, shortcuts, plans, the gate and the
 * background thread, and the reason for each number.
 *
 * Another rank of the node answers in a microsecond or two if it has a core. So a waiter polls for about as long as a
 * call inside a node takes, and then sleeps on its doorbell. Between two polls it spins or yields, which depends on the
 * cores:
 *
 * - Ranks that do not outnumber the cores that they may use spin, with the processor's instruction for that. A yield
 *   would give the core to any other process that wants it, for a whole turn of the scheduler: with one busy process
 *   beside each rank a blocking call took 4 to 12 ms. A waiter that sleeps has its core back as soon as it is woken.
 * - Ranks that share cores yield: the rank that is awaited may need this core. Spinning even 2 us instead made an
 *   allreduce of 8 bytes 68 us long instead of 8 (the scheduler owes each of two spinners as much as the other had).
 *
 * HPCCOLL_WAIT forces one of them, or sleep at once, for nodes whose cores belong to others.
 */
#pragma once

#include "loop/loop.h"

/* The number of polls before a waiter does anything else. A flag that is about to be set needs one transfer of a cache
 * line, about 100 ns; more polls would take the core from a partner that shares it. */
#define HC__LOOKS 200
/* The number of progress iterations, which cost more, before a driver does anything else while it waits for a
 * message. */
#define HC__LOOKS_OF_DRIVER 32
/* For how many ns a caller polls before it submits its call to the engine, or its plan to the loop, whose iterations
 * cost more than a poll; and for how long a driver polls before it sleeps. Calls of up to 64 KiB inside a node take no
 * longer, and no caller with a core polls for longer than the three together: less than 0.2 ms. */
#define HC__SHORTCUT_NS 50000ull
#define HC__PLAN_NS 20000ull
/* For how long a small call between nodes waits for the ranks of its node, and for the other nodes before it asks them.
 * Ranks come from a call between nodes about as far apart as its messages take. */
#define HC__VOTE_NS 200000ull
#define HC__DRIVER_NS 100000ull
/* An iteration of another thread of this rank, the driver, usually ends within this number of yields, or polls with a
 * pause. */
#define HC__YIELDS_TO_A_TURN 16
#define HC__PAUSES_TO_A_TURN 200
/* The background thread polls for this long; more would take a core from the computing program. */
#define HC__THREAD_NS 5000ull

void hc__wait_a_moment(hc_loop *);              /* spins or yields between two polls [any thread] */
uint64_t hc__looks_for(hc_loop *, uint64_t ns); /* ns; 0: sleep at once [any thread] */
/* The same for a wait for all ranks of the node: longer by the ranks per core, which have their turns meanwhile. */
uint64_t hc__looks_for_all(hc_loop *, uint64_t ns);
int hc__looks_to_a_turn(hc_loop *); /* polls while another thread of this rank drives [any thread] */
/* hc_loop_shortcut_wait(), for at most so long (shortcut.c). */
int hc__shortcut_wait(hc_loop *, hc_shortcut *, const hc_shortcut_call *, uint64_t ns);
int hc__has_a_core(hc_loop *); /* each rank of the node has one, as far as is known [any thread] */
void hc__wait_at_end(void);    /* at the end of a World, where other ranks may take long [any thread] */
