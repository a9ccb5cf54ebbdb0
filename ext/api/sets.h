/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.h - exchanges and agreements among the ranks of a World.
 */
#ifndef HC_API_SETS_H
#define HC_API_SETS_H

#include "api/base.h"

/* An allgather of all ranks' values, under a name reserved for the library. */
int hc__exchange(hpccoll_world *, const char *name, const void *mine, size_t bytes, void *all);
/* The `agree` of an hc__agreement among all ranks of a World. */
int hc__agree(void *world, int status, const char *why);

#endif
