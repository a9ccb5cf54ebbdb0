/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c - creates and ends a loop, and reads its figures.
 */
#include "loop/thread.h"
#include "loop/clock.h"
#include "loop/completion.h"
#include "loop/failure.h"
#include "loop/loop.h"
#include "loop/others.h"
#include "loop/place.h"
#include "loop/progress.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/tuning.h"
#include "loop/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LONG_WARNING (10000 * HC__MS)
#define LEAST_ASK (HC__MS * 250) /* an idle rank wakes at this interval */
#define LEAST_PATIENCE (4 * LEAST_ASK)
#define PATIENCE (1000 * HC__MS) /* with ranks that should learn of this rank's end */

static int allocate(hc_loop *loop, const hc_loop_config *config) {
    size_t size = (size_t)config->engine.size, local_size = (size_t)config->local_size;
    hc_engine_config engine = config->engine;
    engine.processes = loop->ranks.processes.hosts ? &loop->ranks.processes : NULL;
    loop->engine = hc_engine_new(&engine);
    loop->ranks.node_of = malloc(size * sizeof(int32_t));
    loop->ranks.locals = malloc(local_size * sizeof(int32_t));
    loop->ranks.unsent = calloc(size, 1);
    loop->watch.owed = calloc(size, sizeof(uint64_t));
    loop->watch.local = calloc(local_size, sizeof *loop->watch.local);
    if (!loop->engine || !loop->ranks.node_of || !loop->ranks.locals || !loop->ranks.unsent || !loop->watch.owed ||
        !loop->watch.local)
        return HC_NO_MEMORY;
    memcpy(loop->ranks.node_of, config->node_of, size * sizeof(int32_t));
    memcpy(loop->ranks.locals, config->locals, local_size * sizeof(int32_t));
    return HC_OK;
}

static void deallocate(hc_loop *loop) {
    hc_engine_free(loop->engine);
    free(loop->ranks.node_of);
    free(loop->ranks.locals);
    free(loop->ranks.unsent);
    free(loop->watch.owed);
    free(loop->watch.local);
    free(loop->watch.neighbours);
    hc__trace_not_at_signal(loop);
    hc__trace_free(&loop->trace);
    free(loop);
}

/* A silence is known before the first report, which comes at the stall warning. A rank is lost soon after the peer
 * timeout, which starts at the first question. */
static void set_clocks(hc_loop *loop) {
    uint64_t warning = loop->config.engine.stall_warning, timeout = loop->config.peer_timeout;
    warning = warning && warning < LONG_WARNING ? warning : LONG_WARNING;
    uint64_t every = timeout && timeout / 8 < warning / 10 ? timeout / 8 : warning / 10;
    loop->watch.ask_every = every > LEAST_ASK ? every : LEAST_ASK;
    loop->watch.patience = warning / 10 * 3 > LEAST_PATIENCE ? warning / 10 * 3 : LEAST_PATIENCE;
}

/* The first World of a process maps its reserve. */
static int map_reserve(void) {
    if (hc_reserve_exists())
        return HC_OK;
    void *region = mmap(NULL, HC_RESERVE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return HC_NO_MEMORY;
    if (!hc_reserve_give(region, HC_RESERVE_BYTES))
        munmap(region, HC_RESERVE_BYTES); /* another thread has mapped it meanwhile */
    return HC_OK;
}

int hc_loop_new(const hc_loop_config *config, const hc_loop_parts *parts, hc_loop **out) {
    hc_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return HC_NO_MEMORY;
    if (config->engine.processes)
        loop->ranks.processes = *config->engine.processes;
    loop->config = *config;
    if (!config->machine_size)
        loop->config.machine_size = config->local_size;
    int status = allocate(loop, config);
    if (status == HC_OK)
        status = hc__trace_new(loop);
    if (status == HC_OK)
        status = map_reserve();
    loop->parts = *parts;
    set_clocks(loop);
    hc__tuning_begin(loop);
    loop->watch.turns = hc_node_control_turns(parts->node_control);
    hc_node_control_answers(parts->node_control, config->background);
    if (!config->background)
        hc_p2p_hold(parts->p2p);
    hc_node_control_set_stores(parts->node_control, config->stores);
    if (config->single_copy)
        hc_node_control_read_memory(parts->node_control);
    loop->wake_at = UINT64_MAX;
    loop->background.maker = pthread_self();
    if (status == HC_OK)
        status = config->background ? hc__thread_start(loop) : hc__others_add(loop);
    if (status != HC_OK) {
        deallocate(loop);
        return status;
    }
    if (config->engine.size > 1)
        hc__trace_at_signal(loop);
    *out = loop;
    return HC_OK;
}

void hc_loop_parts_free(hc_loop_parts *parts) {
    hc_p2p_free(parts->p2p);
    if (parts->control)
        parts->control->ops->free(parts->control);
    if (parts->node_control)
        hc_node_control_free(parts->node_control);
}

/* Makes progress until left() is 0, the World is broken, or the time is over. */
static void drain(hc_loop *loop, uint64_t limit, int (*left)(const hc_loop *)) {
    while (left(loop) && !atomic_load(&loop->failure.broken) && hc__loop_now() < limit) {
        if (!hc__progress_once(loop))
            hc__wait_at_end();
    }
}

static int handles_left(const hc_loop *loop) {
    return atomic_load(&loop->handles.pending) > 0;
}

static int messages_left(const hc_loop *loop) {
    return loop->parts.control->waiting > 0;
}

/* Callers may hold handles for ever, so all handles end here: by the end of their sets' logs, if that comes soon, or
 * else by a failure. So no peer waits for this rank's part. */
static void end_all(hc_loop *loop) {
    drain(loop, hc__loop_now() + PATIENCE, handles_left);
    if (!handles_left(loop))
        return;
    hc__loop_fail(loop, HC_TRANSPORT, loop->config.engine.rank, "the World was freed with requests in flight");
    hc__progress_once(loop);
}

void hc_loop_describe_stores(hc_loop *loop, char *text, size_t room) {
    int stores = loop->config.stores;
    int measured = hc_node_control_measured(loop->parts.node_control);
    int32_t l3s = hc_node_control_l3s(loop->parts.node_control);
    if (stores != HC_STORES_AUTO)
        snprintf(text, room, "%s (HPCCOLL_STORES)", stores == HC_STORES_PLAIN ? "plain" : "stream");
    else if (measured != HC_STORES_AUTO)
        snprintf(text, room, "%s (measured)", measured == HC_STORES_PLAIN ? "plain" : "stream");
    else if (l3s)
        snprintf(text, room, "%s (ranks on %d L3%s)", l3s > 1 ? "stream" : "plain", (int)l3s, l3s > 1 ? "s" : "");
    else
        snprintf(text, room, "plain until measured (which L3 a rank is on is not known)");
}

int hc_loop_pending(hc_loop *loop) {
    return atomic_load_explicit(&loop->handles.pending, memory_order_acquire);
}

void hc_loop_free(hc_loop *loop) {
    if (!loop)
        return;
    hc__others_remove(loop);
    hc__thread_stop(loop);
    while (!hc__driver_try(loop))
        hc__wait_at_end();
    end_all(loop);
    hc__completion_stop(loop);
    drain(loop, hc__loop_now() + PATIENCE, messages_left); /* other ranks need the end of the log */
    if (loop->parts.net) {
        loop->parts.net->abandoned = atomic_load(&loop->failure.broken) != HC_OK;
        loop->parts.net->dead = loop->failure.lost;
    }
    for (uint32_t i = 0; i < loop->sets.nqueues; i++)
        if (loop->sets.queues[i].used)
            hc__set_queue_remove(loop, &loop->sets.queues[i]);
    hc_loop_parts_free(&loop->parts);
    deallocate(loop);
}

/* Threads do not survive a fork, and the child must not touch the parent's shared memory and network. */
void hc_loop_forked(hc_loop *loop) {
    loop->background.has_thread = 0;
    loop->completion.has_thread = 0;
    hc__trace_not_at_signal(loop);
    hc__trace_forked(&loop->trace);
    atomic_store(&loop->forked, 1);
}

int hc_loop_broken(hc_loop *loop) {
    return atomic_load(&loop->failure.broken);
}

int hc_loop_has_lost(hc_loop *loop, int32_t rank) {
    const uint8_t *lost = loop->parts.net ? loop->parts.net->lost_peers : NULL;
    return hc_loop_broken(loop) && ((uint32_t)rank + 1 == loop->failure.lost || (lost && lost[rank]));
}

void hc_loop_process_ended(hc_loop *loop, const char *host, int32_t pid) {
    const hc_processes *p = &loop->ranks.processes;
    for (int32_t rank = 0; p->hosts && rank < loop->config.engine.size; rank++)
        if (p->pids[rank] == pid && !strcmp(p->hosts[p->host_of[rank]], host) && rank != loop->config.engine.rank)
            atomic_store(&loop->failure.ended, rank + 1);
}

const char *hc_loop_broken_text(const hc_loop *loop) {
    return loop->failure.broken_text;
}

void hc_loop_note_compiled(hc_loop *loop, const hc_handle *handle) {
    unsigned long long position = hc_handle_position(handle);
    if (!position || handle->set >= HC_MAX_SETS)
        return;
    atomic_ullong *last = &loop->sets.compiled[handle->set];
    unsigned long long before = atomic_load(last);
    while (before < position && !atomic_compare_exchange_weak(last, &before, position)) {}
}

int hc_loop_preempted(hc_loop *loop, uint32_t set, uint64_t waited) {
    if (set >= HC_MAX_SETS)
        return 0;
    uint64_t position = atomic_load(&loop->sets.preempted[set]);
    return position != 0 && (position <= waited || position <= atomic_load(&loop->sets.compiled[set]));
}

static void add_net(const hc_loop *loop, hc_loop_stats *stats) {
    const hc_control *control = loop->parts.control;
    stats->control_messages_local = hc_counted(&control->local_messages);
    stats->control_bytes_local = hc_counted(&control->local_bytes);
    stats->control_messages_net = hc_counted(&control->net_messages);
    stats->control_bytes_net = hc_counted(&control->net_bytes);
    const hc_net *net = loop->parts.net;
    if (!net)
        return;
    stats->net_sent_bytes = hc_counted(&net->sent_bytes);
    stats->net_sent_messages = hc_counted(&net->sent_messages);
    stats->net_received_bytes = hc_counted(&net->received_bytes);
}

void hc_loop_get_stats(hc_loop *loop, hc_loop_stats *stats) {
    const hc__counters_of_loop *c = &loop->counters;
    *stats = (hc_loop_stats){
        .packed_bytes = hc_counted(&c->packed_bytes),
        .reduced_bytes = hc_counted(&c->reduced_bytes),
        .spread_bytes = hc_counted(&c->spread_bytes),
        .requests = hc_counted(&c->requests) + atomic_load(&loop->calls.alone) + atomic_load(&loop->calls.shortcuts),
        .shortcuts = atomic_load(&loop->calls.shortcuts),
        .counted = hc_counted(&c->counted),
        .batches = hc_counted(&c->batches),
        .cached_batches = hc_counted(&c->cached_batches),
        .fused_requests = hc_counted(&c->fused_requests),
        .payload_bytes = hc_counted(&c->payload_bytes),
        .p2p_ops = hc_counted(&c->p2p_ops),
        .p2p_bytes = hc_counted(&c->p2p_bytes),
        .in_flight_ns = hc_counted(&c->in_flight_ns),
        .sleeps = hc_counted(&c->sleeps),
        .plan_starts = atomic_load(&loop->calls.plan_starts),
        .waited_ns = atomic_load(&loop->calls.waited_ns),
        .wakes = atomic_load(&loop->calls.wakes),
    };
    hc_engine_counters(loop->engine, &stats->engine);
    add_net(loop, stats);
}
