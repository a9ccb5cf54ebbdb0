/* SPDX-License-Identifier: Apache-2.0
 *
 * refuse.h - tells the other ranks of calls that this rank has refused before they became requests.
 */
#pragma once

#include "core/base.h"

/* HC_EV_REFUSE. */
void hc__refuse(hc__set *, const hc_request *);
/* L0: announces the refusals of calls without a name again, under the names that the calls have now. */
void hc__refuse_renamed(hc__set *);
/* 1: this rank has announced a refusal, and not a request, under the name. */
int hc__refusal_raised(const hc__set *, uint32_t name);
/* Call it when a raised refusal is agreed: raises the requests that waited for it. */
void hc__refusal_settled(hc__set *, uint32_t name);
/* A refusal of this rank that is not agreed yet, or NULL. */
const hc_request *hc__refusal(const hc__set *);
void hc__refusals_free(hc__set *);
