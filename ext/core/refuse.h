/* SPDX-License-Identifier: Apache-2.0
 *
 * refuse.h - calls that this rank has refused before they were requests, of which the other ranks must hear.
 */
#ifndef HC_CORE_REFUSE_H
#define HC_CORE_REFUSE_H

#include "core/base.h"

/* HC_EV_REFUSE. */
void hc__refuse(hc__set *, const hc_request *);
/* The name is announced with a refusal of this rank, and not with a request. */
int hc__refusal_raised(const hc__set *, uint32_t name);
/* The ranks have agreed on the error of a raised refusal: what this rank has behind it is raised. */
void hc__refusal_settled(hc__set *, uint32_t name);
void hc__refusals_free(hc__set *);

#endif
