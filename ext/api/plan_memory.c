/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_memory.c - memory and lists of plans.
 *
 * A freed plan's memory is reused for later plans, oldest first, so that a call with a stale pointer is an error and
 * not a crash.
 */
#include "api/base.h"
#include "api/codes.h"
#include "api/plans.h"

#include <stdlib.h>

#define KEPT 64 /* freed plans to keep before the oldest is reused */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hpccoll_plan *oldest, *newest;
static size_t many;

hpccoll_plan *hc__plan_new(hpccoll_world *world) {
    hpccoll_plan *plan = NULL;
    pthread_mutex_lock(&lock);
    if (many > KEPT) {
        plan = oldest;
        oldest = oldest->next;
        many--;
    }
    pthread_mutex_unlock(&lock);
    plan = plan ? plan : malloc(sizeof *plan);
    if (plan)
        *plan = (hpccoll_plan){.state = HC__PLAN_ALIVE, .world = world, .number = -1};
    else
        hc__error(HC_NO_MEMORY, "no memory for a plan");
    return plan;
}

void hc__plan_rest(hpccoll_plan *plan) {
    free(plan->parts);
    if (plan->after)
        plan->after->free(plan->after);
    plan->state = 0;
    plan->next = NULL;
    pthread_mutex_lock(&lock);
    if (many++)
        newest->next = plan;
    else
        oldest = plan;
    newest = plan;
    pthread_mutex_unlock(&lock);
}

void hc__plan_link(hpccoll_plan *plan) {
    hc__base *base = plan->world->base;
    pthread_mutex_lock(&base->lock);
    hc_job_take_plan_number(base->job, plan->number);
    plan->next = base->plans;
    plan->link = &base->plans;
    if (base->plans)
        base->plans->link = &plan->next;
    base->plans = plan;
    pthread_mutex_unlock(&base->lock);
}

static void unlink_plan(hpccoll_plan *plan, hc__base *base) {
    *plan->link = plan->next;
    if (plan->next)
        plan->next->link = plan->link;
    plan->link = NULL;
    hc_job_give_plan_number_back(base->job, plan->number);
}

static void end_plan(hpccoll_plan *plan, const hc__base *base) {
    if (plan->c)
        base->calls.plan_free(plan->c);
    if (plan->halo)
        base->calls.halo.free(plan->halo);
    hc_handle_release(plan->handle);
    if (plan->memory)
        hc_plan_memory_free(&base->job->plans, plan->memory);
    plan->steps = NULL;
    plan->c = NULL;
    plan->halo = NULL;
    plan->handle = NULL;
    plan->memory = NULL;
}

void hc__plan_give_back(hpccoll_plan *plan) {
    hc__base *base = plan->world->base;
    if (plan->link) {
        pthread_mutex_lock(&base->lock);
        unlink_plan(plan, base);
        pthread_mutex_unlock(&base->lock);
    }
    end_plan(plan, base);
}

void hc__plans_free(hc__base *base, const hpccoll_world *world) {
    pthread_mutex_lock(&base->lock);
    for (hpccoll_plan *plan = base->plans, *next; plan; plan = next) {
        next = plan->next;
        if (!world || plan->world == world) {
            unlink_plan(plan, base);
            end_plan(plan, base);
        }
    }
    pthread_mutex_unlock(&base->lock);
}
