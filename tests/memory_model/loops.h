/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.h - a loop whose memory is watched, with an engine of a few lines (loops.c), for scenarios.
 */
#ifndef MM_LOOPS_H
#define MM_LOOPS_H

#include "loop/state.h"
#include "memory_model/explorer.h"

extern hc_loop *mm_loop;
extern _Atomic uint32_t *mm_counting; /* 1: between a count and its end */

void mm_make_loop(void); /* of one rank, with a trace */
void mm_free_loop(void);
/* loop_stubs.c; at once: a request does not wait for a flush, as if a timer raised it. */
void mm_begin_engine(int raises_at_once);

#endif
