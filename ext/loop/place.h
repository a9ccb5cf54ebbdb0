/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h - the driver's place: which thread drives, and how a thread that submits reaches it.
 */
#pragma once

#include "loop/clock.h"
#include "loop/loop.h"

#define HC__IDLE_TICK (250 * HC__MS) /* how often the background thread wakes when nothing is pending */

typedef struct hc__place {
    atomic_int driving;     /* [any] 1: a thread is the driver */
    atomic_int flush;       /* [any] a caller waits: raise everything (R1) */
    atomic_int call_me;     /* [any] the driver sleeps: the next submit must ring */
    atomic_int way_to_wait; /* [any] enum hc_wait; AUTO: not known yet */
    atomic_int turns;       /* [any] of other ranks on this core before its next one; known with way_to_wait */
    _Atomic uint32_t epoch; /* [any] futex: a handle is done, or the driver's place is free */
    atomic_int sleepers;    /* [any] on `epoch` */
} hc__place;

int hc__loop_idle(hc_loop *);    /* 1: nothing moves by itself; messages may wait for their peers */
int hc__loop_listens(hc_loop *); /* 1: idle, and no caller waits: open receives may stay open for long */
/* The work for a driver: nothing; receives that may have to answer; data that moves. */
enum hc__left { HC__QUIET, HC__LISTENS, HC__MOVES };
enum hc__left hc__loop_left(hc_loop *);
int hc__may_drive(const hc_loop *); /* [any thread] */
int hc__driver_try(hc_loop *);      /* [any thread] 1: this thread is the driver now */
/* A thread of the program leaves the driver's place. With the result it must drive again at once or call the background
 * thread, at least for new work; the background thread knows the work that existed before. */
enum hc__left hc__driver_leave(hc_loop *) __attribute__((warn_unused_result));
void hc__driver_vacate(hc_loop *); /* the background thread leaves */
/* [any thread] 1: there is no background thread, and this process still holds messages that other ranks wait for. */
int hc__loop_owes(hc_loop *);
void hc__ask_flush(hc_loop *); /* [any thread] a caller waits: raise everything that was submitted before this */
int hc__look_away(hc_loop *);  /* from now on submitters must ring; 1: the inbox already has a request */
uint64_t hc__sleep_limit(hc_loop *, uint64_t now, uint64_t idle_since, uint64_t limit); /* ns */
int hc__about_to_sleep(hc_loop *, uint64_t now); /* 0: a thread has submitted meanwhile, check again */
