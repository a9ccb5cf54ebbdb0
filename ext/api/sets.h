/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.h - exchanges and agreements among the ranks of a World.
 */
#pragma once

#include "api/base.h"

/* An allgather of all ranks' values, under a name reserved for the library. */
int hc__exchange(hpccoll_world *, const char *name, const void *mine, size_t bytes, void *all);
hc_exchange hc__exchange_of(hpccoll_world *);
/* As hc_exchange_agree(): OK, or the same status on all ranks (error set). */
int hc__agree(hpccoll_world *, int status, const char *why);
