/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.h - how a thread waits for other ranks: the one rule for callers, shortcuts, plans, the gate and the
 * background thread, and the reason for each number.
 *
 * What a rank of the node does next is there in a microsecond or two, if that rank has a core. So a waiter looks again
 * and again, for about as long as a call inside a node takes, and then sleeps on its doorbell. What it does between two
 * looks depends on the cores:
 *
 * - Ranks that do not outnumber the cores that they may use spin, with the processor's instruction for that. A yield
 *   would give the core to any other process that wants it, for a whole turn of the scheduler: with one busy process
 *   beside each rank a blocking call took 4 to 12 ms. A waiter that sleeps has its core back as soon as it is woken.
 * - Ranks that share cores yield: the rank that is awaited may need this core. Spinning even 2 us instead made an
 *   allreduce of 8 bytes 68 us long instead of 8 (the scheduler owes each of two spinners as much as the other had).
 *
 * HPCCOLL_WAIT forces one of them, or sleep at once, for nodes whose cores belong to others.
 */
#ifndef HC_WAITING_H
#define HC_WAITING_H

#include "loop/loop.h"

/* Looks before anything else is done. A flag that is about to be raised takes one transfer of a cache line, about
 * 100 ns; more would take the core from a partner that shares it. */
#define HC__LOOKS 200
/* The same as progress iterations, which cost more, for a message that is about to come. */
#define HC__LOOKS_OF_DRIVER 32
/* How long a caller looks, ns, before it sends its call to the engine, or its plan to the loop, whose turns cost more
 * than a look; and how long a driver looks before it sleeps. Calls of up to 64 KiB inside a node take no longer than
 * that, and no caller looks for longer than the three together: less than 0.2 ms. */
#define HC__SHORTCUT_NS 50000ull
#define HC__PLAN_NS 20000ull
#define HC__DRIVER_NS 100000ull
/* A turn of another thread of this rank, which drives, is mostly over after so many yields, or looks with a pause. */
#define HC__YIELDS_TO_A_TURN 16
#define HC__PAUSES_TO_A_TURN 200
/* The background thread looks for this long: beside a computing program it takes a core from it. */
#define HC__THREAD_NS 5000ull

void hc__wait_a_moment(hc_loop *);              /* between two looks: spins or yields [any thread] */
uint64_t hc__looks_for(hc_loop *, uint64_t ns); /* ns, or 0: it is to sleep at once [any thread] */
int hc__looks_to_a_turn(hc_loop *);             /* where another thread of this rank drives [any thread] */
void hc__wait_at_end(void);                     /* of a World, where others may take long [any thread] */

#endif
