/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h - the loop's clock.
 */
#ifndef HC_LOOP_CLOCK_H
#define HC_LOOP_CLOCK_H

#include <stdint.h>

#define HC__MS 1000000ull

uint64_t hc__loop_now(void); /* ns, CLOCK_MONOTONIC */

#endif
