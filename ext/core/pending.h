/* SPDX-License-Identifier: Apache-2.0
 *
 * pending.h - this rank's pending requests, not agreed yet, in the order of their enqueue.
 *
 * The older part of the list is raised, the newer part is not.
 */
#pragma once

#include "core/numbers.h"

typedef struct hc__pending {
    uint32_t oldest, newest; /* names */
    uint32_t unraised;       /* the first that is not raised */
    uint32_t nwaited;        /* requests that a caller waits for */
    uint32_t nbehind;        /* requests and refusals that wait for a refusal of the same name */
    uint64_t unraised_bytes;
    hc__numbers unnamed; /* the calls without a name */
} hc__pending;

void hc__pending_append(hc__set *, uint32_t name);
void hc__pending_unlink(hc__set *, uint32_t name);
