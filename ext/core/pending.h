/* SPDX-License-Identifier: Apache-2.0
 *
 * pending.h - this rank's requests that are not agreed yet, in the order in which they were enqueued.
 *
 * The older part of the list has been raised, the newer part has not.
 */
#ifndef HC_CORE_PENDING_H
#define HC_CORE_PENDING_H

#include "core/base.h"

typedef struct hc__pending {
    uint32_t oldest, newest; /* names */
    uint32_t unraised;       /* the first that is not raised */
    uint32_t nwaited;        /* requests that a caller waits for */
    uint32_t nbehind;        /* requests and refusals behind a refusal of the same name */
    uint64_t unraised_bytes;
} hc__pending;

void hc__pending_append(hc__set *, uint32_t name);
void hc__pending_unlink(hc__set *, uint32_t name);

#endif
