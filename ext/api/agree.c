/* SPDX-License-Identifier: Apache-2.0
 *
 * agree.c - the ranks of a World agree on a plan (world/plan_agreement.h), by exchanges of that World.
 */
#include "api/base.h"
#include "api/calls.h"
#include "api/codes.h"
#include "api/plans.h"
#include "api/sets.h"

#include <stdio.h>

int hc__plan_agree(const hc__read *given, const hc__read *whole, hpccoll_world *world, const int32_t *node_of,
                   hc_plan_terms *terms) {
    char why[HC_WHY];
    hc_plans_used used = hc_job_used(world->base->job);
    const hc_plan_proposal proposal = {&given->arguments, &whole->arguments, &given->place, node_of, &used};
    const hc_exchange exchange = hc__exchange_of(world);
    int status = hc_plan_agree(&proposal, &exchange, terms, why);
    return status < 0 && *why ? hc__error(status, "%s", why) : status;
}

int hc__plan_refuse(const hc__call *call, hpccoll_world *world, int status) {
    char why[HC__ERROR_BYTES];
    const hc_exchange exchange = hc__exchange_of(world);
    snprintf(why, sizeof why, "%s", hpccoll_last_error());
    hc_plan_refuse(&exchange, call->operation, status, why);
    return hc__error(status, "%s", why);
}
