/* SPDX-License-Identifier: Apache-2.0
 *
 * list.h - the Worlds of this process.
 */
#pragma once

#include "api/base.h"

hpccoll_world *hc__world_new(hc__base *, uint32_t number, const int32_t *members, int32_t size, int32_t rank);
hpccoll_world *hc__world_newest(void); /* head of the list by `next` */
void hc__world_ended(hpccoll_world *, const char *by);
void hc__worlds_ended(const hc__base *, const char *by); /* all Worlds with this base */
/* OK, or a status (error set): the World is NULL, was freed, or has ended. */
int hc__world_check(const hpccoll_world *);
/* The order of a living World's calls without a name. */
static inline hc_order *hc__order(const hpccoll_world *world) {
    return &world->base->job->orders[world->number];
}
