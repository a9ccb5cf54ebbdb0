/* SPDX-License-Identifier: Apache-2.0
 *
 * queries.c - ranks, counters and addresses of a World.
 */
#include "api/base.h"
#include "api/codes.h"
#include "api/list.h"

#include <string.h>

int hpccoll_rank(const hpccoll_world *world) {
    int status = hc__world_check(world);
    return status < 0 ? status : (int)world->rank;
}

int hpccoll_size(const hpccoll_world *world) {
    int status = hc__world_check(world);
    return status < 0 ? status : (int)world->size;
}

/* Counts the members on this rank's node before position `end` of the set. */
static int members_here(const hpccoll_world *world, int32_t end) {
    const hc__base *base = world->base;
    int n = 0;
    for (int32_t i = 0; i < end; i++)
        n += base->job->node_of[world->members[i]] == base->job->node_of[base->job->rank];
    return n;
}

int hpccoll_local_rank(const hpccoll_world *world) {
    int status = hc__world_check(world);
    return status < 0 ? status : members_here(world, world->rank);
}

int hpccoll_local_size(const hpccoll_world *world) {
    int status = hc__world_check(world);
    return status < 0 ? status : members_here(world, world->size);
}

int hpccoll_node_of(const hpccoll_world *world, int rank) {
    int status = hc__world_check(world);
    if (status < 0)
        return status;
    if (rank < 0 || rank >= world->size)
        return hc__error(HC_INVALID, "rank is %d: the World has ranks 0 to %d", rank, (int)world->size - 1);
    return (int)world->base->job->node_of[world->members[rank]];
}

int hpccoll_on_device(const void *address, const hpccoll_world *world) {
    int status = hc__world_check(world);
    if (status < 0)
        return status;
    const hc__devices *devices = &world->base->devices;
    return devices->on && address && hc_driver_memory(&devices->driver, address) >= 0;
}

int hpccoll_progress(hpccoll_world *world) {
    int status = hc__world_check(world);
    if (status >= 0)
        world->base->calls.progress(world->base->job->loop);
    return status;
}

/* ---- counters ------------------------------------------------------------------------------------------------ */

/* clang-format off */
#define OF_ENGINE(X) \
    X(messages_up) X(messages_down) X(bytes_up) X(bytes_down) X(entries) X(cached_commits) X(first_commits) \
    X(mismatches) X(evictions) X(conflicts)
#define OF_LOOP(X) \
    X(requests) X(shortcuts) X(counted) X(batches) X(cached_batches) X(fused_requests) X(payload_bytes) X(p2p_ops) \
    X(p2p_bytes) X(control_messages_local) X(control_bytes_local) X(control_messages_net) X(control_bytes_net) \
    X(packed_bytes) X(reduced_bytes) X(spread_bytes) X(net_sent_bytes) X(net_sent_messages) X(net_received_bytes) \
    X(waited_ns) X(in_flight_ns) X(wakes) X(sleeps) X(plan_starts)
/* clang-format on */

#define LOOP(name) {#name, offsetof(hc_loop_stats, name)},
#define ENGINE(name) {#name, offsetof(hc_loop_stats, engine.name)},
static const struct counter {
    const char *name;
    size_t offset;
} counters[] = {OF_LOOP(LOOP) OF_ENGINE(ENGINE){NULL, 0}};

const char *hpccoll_stat_name(int i) {
    return i >= 0 && i < (int)(sizeof counters / sizeof *counters) ? counters[i].name : NULL;
}

int hpccoll_stat(hpccoll_world *world, const char *name, uint64_t *value) {
    const struct counter *one = counters;
    hc_loop_stats stats;
    int status = hc__world_check(world);
    if (status < 0)
        return status;
    while (one->name && name && strcmp(one->name, name) != 0)
        one++;
    if (!name || !one->name || !value)
        return hc__error(HC_INVALID, "%s is no counter, or value is NULL", name ? name : "NULL");
    world->base->calls.get_stats(world->base->job->loop, &stats);
    memcpy(value, (const char *)&stats + one->offset, sizeof *value);
    return HC_OK;
}
