/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c - the time of the loop.
 */
#include "loop/clock.h"
#include "loop/state.h"

#include <time.h>

uint64_t hc__loop_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
