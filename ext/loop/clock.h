/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h - the loop's clock.
 */
#pragma once

#include <stdint.h>

#define HC__MS 1000000ull

uint64_t hc__loop_now(void); /* ns, CLOCK_MONOTONIC */
