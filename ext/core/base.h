/* SPDX-License-Identifier: Apache-2.0
 *
 * base.h - definitions for every file of the engine.
 */
#pragma once

#include <string.h>

#include "core/hc.h"

#define HC__NONE UINT32_MAX  /* no index */
#define HC__NEVER UINT64_MAX /* no time */

typedef struct hc__set hc__set; /* state.h */

static inline uint64_t hc__later(uint64_t from, uint64_t by) { /* never wraps */
    return by > HC__NEVER - from ? HC__NEVER : from + by;
}
