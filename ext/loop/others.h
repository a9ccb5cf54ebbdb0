/* SPDX-License-Identifier: Apache-2.0
 *
 * others.h - what a waiting caller drives beside its World: others without a background thread, and MPI.
 */
#pragma once

#include "loop/loop.h"

int hc__others_add(hc_loop *);     /* [any thread] of a loop without a background thread: OK or NO_MEMORY */
void hc__others_remove(hc_loop *); /* [any thread] returns when no thread looks at it any more; it may not be there */
/* [any thread] Runs an iteration of each loop but this one that this thread may drive, and makes MPI progress if
 * this one has been idle for long. 1: a loop has moved. */
int hc__others_drive(const hc_loop *, uint64_t idle_ns);
int hc__others_exist(const hc_loop *); /* [any thread] 1: there is something to drive besides this loop */
