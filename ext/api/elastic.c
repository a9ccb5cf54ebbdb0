/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic.c - lost ranks of a World, and changes of the ranks of an elastic job.
 */
#include "api/elastic.h"
#include "api/codes.h"
#include "api/list.h"

#include "rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>

/* OK, or a status (error set): Python has what the function gives. */
static int check(const hpccoll_world *world, const char *function, const char *instead) {
    int status = hc__world_check(world);
    if (status >= 0 && world->base->python)
        return hc__error(HC_UNSUPPORTED, "%s: the World is Python's: %s", function, instead);
    return status;
}

/* ---- lost ranks -------------------------------------------------------------------------------------------- */

int hpccoll_lost_ranks(const hpccoll_world *world, int capacity, int *ranks, int *count) {
    int status = check(world, "lost_ranks", "World.lost_ranks() has them"), n = 0;
    if (status < 0)
        return status;
    if (!count || capacity < 0 || (capacity && !ranks))
        return hc__error(HC_INVALID, "lost_ranks: capacity is %d, ranks is %s, and count is %s: give room for ranks",
                         capacity, ranks ? "there" : "NULL", count ? "there" : "NULL");
    for (int32_t rank = 0; rank < world->size; rank++) {
        if (!hc_loop_has_lost(world->base->job->loop, world->members[rank]))
            continue;
        if (n < capacity)
            ranks[n] = (int)rank;
        n++;
    }
    *count = n;
    return HC_OK;
}

/* How a rank was lost. The text of the World names one rank; the connections of others have ended. */
static const char *how_it_was_lost(const hc__base *base, int32_t rank) {
    char who[32];
    int length = snprintf(who, sizeof who, "rank %d ", (int)rank);
    const char *named = strstr(hc_loop_broken_text(base->job->loop), who);
    const char *how = strstr(hc_loop_broken_text(base->job->loop), " was lost: ");
    int is_named = named && how && length > 0 && named < how;
    return is_named ? how + strlen(" was lost: ") : "its connection has ended";
}

void hc__report_lost(const hc__base *base) {
    for (int32_t rank = 0; base->elastic.generation && rank < base->job->size; rank++)
        if (hc_loop_has_lost(base->job->loop, rank))
            hc_coordinator_lost(base->elastic.generation, rank, how_it_was_lost(base, rank));
}

/* ---- changes ----------------------------------------------------------------------------------------------- */

/* Asks all ranks to stop after the same call, as preemption() in Python does. */
static int ask_to_stop(hpccoll_world *world) {
    hc_loop *loop = world->base->job->loop;
    hc_handle *h = hc_handle_new(HC_EV_PREEMPT, 0, 0, 0, NULL, 0, 0);
    if (!h)
        return hc__error(HC_NO_MEMORY, NULL);
    hc_order_agree(hc__order(world)); /* the calls after this request must be agreed in the log, to see the stop */
    world->base->calls.submit(loop, h, 0);
    hc_handle_release(h);
    world->base->calls.progress(loop);
    return HC_OK;
}

int hpccoll_world_changes(hpccoll_world *world, int *changes) {
    int status = check(world, "world_changes", "state.commit() looks for changes");
    if (status < 0)
        return status;
    if (!changes || world->number)
        return hc__error(HC_INVALID, changes ? "world_changes: give the World of all ranks, not a part of it"
                                             : "world_changes: changes is NULL");
    hc__elastic *elastic = &world->base->elastic;
    *changes = 0;
    if (!elastic->generation)
        return HC_OK;
    if (hc_coordinator_changes(elastic->generation) && !atomic_exchange(&elastic->asked, 1))
        status = ask_to_stop(world);
    *changes = hc_loop_preempted(world->base->job->loop, 0, atomic_load(&elastic->waited));
    return status;
}

int hpccoll_leave(const hpccoll_world *world) {
    char why[HC_RENDEZVOUS_WHY] = "";
    int status = check(world, "leave", "hpccoll.elastic.run() asks for it at SIGTERM");
    if (status >= 0 && !world->base->elastic.generation)
        return hc__error(HC_UNSUPPORTED, "leave: the job is not elastic: no launcher takes a rank out of it");
    if (status >= 0 && (status = hc_coordinator_leave(why)) < 0)
        hc__error(status, "leave: %s", *why ? why : hc_status_text(status));
    return status;
}
