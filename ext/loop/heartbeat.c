/* SPDX-License-Identifier: Apache-2.0
 *
 * heartbeat.c - checks that other ranks are alive. It asks only while a rank waits, so an idle job sends nothing.
 *
 * On this node the kernel knows which process is gone (hc_node_control_lost), and each rank counts its progress
 * iterations in shared memory (node_life.c). Other nodes are asked by a one-byte control message, which their driver
 * answers; the engine's own messages are longer. A rank asks its neighbours in the World's tree, and passes a question
 * on to its other neighbours. So the whole tree is asked while a rank waits, each edge once per interval, however many
 * ranks wait. After its answer a rank sends its list of silent ranks.
 *
 * A lost leader cuts the tree: the failure that the engine floods ends at its node. So the ranks of its node tell its
 * neighbours on other nodes directly that it is gone, or stopped: without a thread on every rank nobody else finds out.
 */
#include "loop/clock.h"
#include "loop/counted.h"
#include "loop/failure.h"
#include "loop/place.h"
#include "loop/plan.h"
#include "loop/progress.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/trace_ring.h"
#include "loop/votes.h"
#include "loop/watch.h"

#include <stdlib.h>
#include <string.h>

enum { ARE_YOU_THERE = 0xA5, I_AM = 0x5A, IT_IS_SILENT = 0x3C, IT_IS_GONE = 0xC3, IT_IS_STOPPED = 0x99 };
#define LOST_BYTES 4        /* kind of message, rank (3) */
#define SILENT_BYTES 7      /* kind of message, kind of silence, rank (3), age in tenths of a second (2) */
#define ENGINES_LEAST 8     /* the fewest bytes of a message of the engine */
#define GAP (1000 * HC__MS) /* after a longer gap this rank itself did not run, so it expects no answers */

static void send(hc_loop *loop, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    loop->parts.control->ops->send(loop->parts.control, peer, bytes, nbytes);
}

/* ---- a process that is gone, or stopped ------------------------------------------------------------- */

/* Finds the rank's place in the World's tree. NULL, or its children, which the caller frees. */
static hc_child *place_of(const hc_loop *loop, int32_t rank, hc_set_config *place) {
    int32_t size = loop->config.engine.size, room = 2 * loop->config.fanout;
    int32_t *members = malloc((size_t)size * sizeof *members);
    hc_child *children = malloc((size_t)room * sizeof *children);
    hc_tree_index *index = NULL;
    for (int32_t i = 0; members && i < size; i++)
        members[i] = i;
    if (members && children)
        index = hc_tree_index_new(members, loop->ranks.node_of, size, loop->config.fanout);
    if (index)
        hc_tree_place(index, rank, place, children, room);
    else {
        free(children);
        children = NULL;
    }
    hc_tree_index_free(index);
    free(members);
    return children;
}

static void tell_other_node(hc_loop *loop, int32_t peer, int32_t lost, uint8_t kind) {
    uint32_t rank = (uint32_t)lost;
    uint8_t bytes[LOST_BYTES] = {kind, (uint8_t)rank, (uint8_t)(rank >> 8), (uint8_t)(rank >> 16)};
    if (peer >= 0 && loop->ranks.node_of[peer] != loop->ranks.node_of[lost])
        send(loop, peer, bytes, sizeof bytes);
}

static void tell_its_neighbours(hc_loop *loop, int32_t lost, uint8_t kind) {
    hc_set_config place;
    if (!loop->parts.net || !loop->config.fanout || (uint32_t)lost >> 24 || lost != loop->ranks.locals[0])
        return;
    hc_child *children = place_of(loop, lost, &place);
    if (!children)
        return;
    tell_other_node(loop, place.parent, lost, kind);
    for (int32_t i = 0; i < place.nchildren; i++)
        tell_other_node(loop, children[i].rank, lost, kind);
    free(children);
}

static void lose_stopped(hc_loop *loop, int32_t rank) {
    hc__loop_lose_in_time(loop, rank, "it has been stopped (state T)");
}

static void look_at_node(hc_loop *loop, uint64_t now) {
    int32_t stopped = loop->failure.is_next ? -1 : hc__node_look(loop, now);
    if (stopped < 0)
        return;
    tell_its_neighbours(loop, stopped, IT_IS_STOPPED);
    lose_stopped(loop, stopped);
}

static void watch_node(hc_loop *loop) {
    int32_t local = hc_node_control_lost(loop->parts.node_control);
    if (local < 0 || local == loop->config.local_rank || loop->failure.is_next)
        return;
    tell_its_neighbours(loop, loop->ranks.locals[local], IT_IS_GONE);
    hc__loop_lose(loop, loop->ranks.locals[local], "its process is gone");
}

/* ---- questions ------------------------------------------------------------------------------------- */

static void ask(hc_loop *loop, int32_t peer, uint64_t now) {
    uint8_t question = ARE_YOU_THERE;
    if (!loop->watch.owed[peer])
        loop->watch.owed[peer] = now;
    send(loop, peer, &question, 1);
}

static void ask_neighbours(hc_loop *loop, int32_t asker, uint64_t now) {
    for (int32_t i = 0; i < loop->watch.nneighbours; i++) {
        hc__neighbour *neighbour = &loop->watch.neighbours[i];
        if (neighbour->rank == asker || now - neighbour->asked < loop->watch.ask_every / 4 * 3)
            continue;
        neighbour->asked = now;
        ask(loop, neighbour->rank, now);
    }
}

static int is_neighbour(const hc_loop *loop, int32_t rank) {
    for (int32_t i = 0; i < loop->watch.nneighbours; i++)
        if (loop->watch.neighbours[i].rank == rank)
            return 1;
    return 0;
}

/* 1: a rank of this node waits, so this leader asks other nodes for it. */
static int node_waits(hc_loop *loop, uint64_t now) {
    hc_local_life life;
    for (int32_t i = 0; loop->watch.nneighbours && i < loop->config.local_size; i++)
        if (hc_node_control_look(loop->parts.node_control, i, &life) && now < life.waits + GAP)
            return 1;
    return 0;
}

static int is_asked(const hc_loop *loop, uint64_t now) {
    return loop->watch.asked_at && now - loop->watch.asked_at < 3 * loop->watch.ask_every;
}

/* Restarts all clocks when a wait begins, or after a gap in which this rank did not run. */
static void begin(hc_loop *loop, uint64_t now) {
    if (loop->watch.watching && now - loop->watch.watching < GAP) {
        loop->watch.watching = now;
        return;
    }
    loop->watch.watching = loop->watch.pinged = now;
    memset(loop->watch.owed, 0, (size_t)loop->config.engine.size * sizeof *loop->watch.owed);
    loop->watch.silent.count = 0;
    hc__node_begin(loop, now);
}

/* ---- ranks that do not answer ---------------------------------------------------------------------- */

/* Another rank of the node whose leader does not answer. It knows whether that process is stopped, unless it is silent,
 * too. */
static int32_t stand_in(const hc_loop *loop, int32_t rank) {
    for (int32_t other = 0; other < loop->config.engine.size; other++)
        if (other != rank && loop->ranks.node_of[other] == loop->ranks.node_of[rank])
            return other;
    return -1;
}

static int note_unanswered(hc_loop *loop, int32_t rank, uint64_t now) {
    uint64_t since = loop->watch.owed[rank];
    if (!since || now - since < loop->watch.patience)
        return 0;
    uint8_t kind = loop->config.heartbeat ? HC__SILENT : HC__AWAY;
    hc__silence_note(loop, &(hc__silent){.rank = rank, .kind = kind, .since = since, .from = HC__OWN}, now);
    return 1;
}

static int look_at_owed(hc_loop *loop, int32_t rank, uint64_t now) {
    uint64_t timeout = loop->config.peer_timeout, since = loop->watch.owed[rank];
    if (since && timeout && loop->config.heartbeat && now - since > timeout)
        hc__loop_lose_in_time(loop, rank, "no sign of life");
    return note_unanswered(loop, rank, now);
}

static void look_at_neighbours(hc_loop *loop, uint64_t now) {
    for (int32_t i = 0; i < loop->watch.nneighbours && !loop->failure.is_next; i++) {
        hc__neighbour *neighbour = &loop->watch.neighbours[i];
        int32_t other = look_at_owed(loop, neighbour->rank, now) ? stand_in(loop, neighbour->rank) : -1;
        if (other < 0)
            continue;
        note_unanswered(loop, other, now);
        if (now - neighbour->asked_other < loop->watch.ask_every)
            continue;
        neighbour->asked_other = now;
        ask(loop, other, now);
    }
}

/* Checks the peer of a message that a caller waits for; it may be no neighbour in the tree. */
static void watch_peer(hc_loop *loop, int32_t peer, uint64_t now) {
    if (loop->watch.watching)
        look_at_owed(loop, peer, now);
}

static void watch_and_ask_peer(hc_loop *loop, int32_t peer, uint64_t now) {
    watch_peer(loop, peer, now);
    ask(loop, peer, now);
}

/* ---- reports to neighbours ------------------------------------------------------------------------ */

static void tell(hc_loop *loop, const hc__silent *silent, int32_t peer, uint64_t now) {
    uint64_t age = (now - silent->since) / (100 * HC__MS);
    uint32_t rank = (uint32_t)silent->rank;
    if (peer == silent->from || peer == silent->rank || rank >> 24)
        return;
    age = age > UINT16_MAX ? UINT16_MAX : age;
    uint8_t bytes[SILENT_BYTES] = {IT_IS_SILENT,          silent->kind, (uint8_t)rank,      (uint8_t)(rank >> 8),
                                   (uint8_t)(rank >> 16), (uint8_t)age, (uint8_t)(age >> 8)};
    send(loop, peer, bytes, sizeof bytes);
}

static void spread_news(hc_loop *loop, uint64_t now) {
    for (uint32_t n = 0; n < loop->watch.silent.count; n++) {
        hc__silent *silent = &loop->watch.silent.of[n];
        for (int32_t i = 0; silent->is_new && i < loop->watch.nneighbours; i++)
            tell(loop, silent, loop->watch.neighbours[i].rank, now);
        silent->is_new = 0;
    }
}

/* ---- the check of all ranks ------------------------------------------------------------------------ */

/* The engine's reports name the silent ranks. */
static void tell_engine(hc_loop *loop, uint64_t now) {
    int had = loop->watch.silent.text[0] != 0;
    if (loop->watch.silent.count ? now - loop->watch.silent.listed_at < loop->watch.ask_every : !had)
        return;
    loop->watch.silent.listed_at = now;
    hc__silence_describe(loop, now);
    hc__loop_step(loop,
                  &(hc_event){.kind = HC_EV_SILENT, .text = loop->watch.silent.count ? loop->watch.silent.text : NULL});
}

static void look(hc_loop *loop, uint64_t now) {
    if (!loop->watch.watching)
        loop->watch.silent.count = 0;
    else
        look_at_node(loop, now);
    if (loop->watch.watching && loop->parts.net) {
        look_at_neighbours(loop, now);
        if (!loop->watch.nneighbours)
            hc__node_read(loop, now);
    }
    hc__silence_expire(loop, now);
    spread_news(loop, now);
    if (loop->watch.nneighbours)
        hc__node_publish(loop, now);
    tell_engine(loop, now);
}

void hc__heartbeat(hc_loop *loop, uint64_t now) {
    if (now - loop->watch.watched < HC__HEARTBEAT_NS || atomic_load(&loop->failure.broken))
        return;
    loop->watch.watched = now;
    watch_node(loop);
    int32_t ended = atomic_load_explicit(&loop->failure.ended, memory_order_relaxed);
    if (ended)
        hc__loop_lose(loop, ended - 1, "its process is gone, its launcher says");
    hc__trace_watch_signal(loop);
    hc__set_queues_watch(loop);
    int waits = !hc__loop_listens(loop);
    if (waits)
        hc_node_control_wait(loop->parts.node_control, now);
    else
        waits = node_waits(loop, now);
    if (waits || is_asked(loop, now))
        begin(loop, now);
    else
        loop->watch.watching = 0;
    int asks = waits && loop->parts.net && now - loop->watch.pinged >= loop->watch.ask_every;
    if (asks) {
        loop->watch.pinged = now;
        ask_neighbours(loop, -1, now);
    }
    hc__p2p_watch(loop, now, asks ? watch_and_ask_peer : watch_peer);
    hc__plans_watch(loop, now);
    hc__counted_watch(loop, now);
    hc__votes_watch(loop, now, asks ? watch_and_ask_peer : watch_peer);
    look(loop, now);
}

/* Called by a driver without work: another rank of the node may wait, or have asked. */
void hc__heartbeat_idle(hc_loop *loop) {
    if (!loop->watch.nneighbours && !loop->watch.asked_at && !loop->watch.watching)
        return;
    uint64_t now = hc__loop_now();
    if (now - loop->watch.watched >= HC__HEARTBEAT_NS &&
        (loop->watch.watching || is_asked(loop, now) || node_waits(loop, now)))
        hc__heartbeat(loop, now);
}

/* ---- received messages ----------------------------------------------------------------------------- */

static void take_question(hc_loop *loop, int32_t peer, uint64_t now) {
    uint8_t answer = I_AM;
    send(loop, peer, &answer, 1);
    begin(loop, now);
    loop->watch.asked_at = now;
    if (is_neighbour(loop, peer))
        ask_neighbours(loop, peer, now);
    for (uint32_t i = 0; i < loop->watch.silent.count; i++)
        tell(loop, &loop->watch.silent.of[i], peer, now);
}

static int take_silent(hc_loop *loop, int32_t peer, const uint8_t *bytes, uint64_t now) {
    uint64_t age = ((uint64_t)bytes[5] | (uint64_t)bytes[6] << 8) * 100 * HC__MS;
    hc__silent silent = {.rank = bytes[2] | bytes[3] << 8 | bytes[4] << 16,
                         .kind = bytes[1],
                         .since = age < now ? now - age : 1,
                         .from = peer};
    if (silent.rank >= loop->config.engine.size || silent.kind < HC__SILENT || silent.kind >= HC__SILENCES)
        return HC_BAD_MESSAGE;
    hc__silence_note(loop, &silent, now);
    spread_news(loop, now);
    return 1;
}

static int take_lost(hc_loop *loop, const uint8_t *bytes) {
    int32_t rank = bytes[1] | bytes[2] << 8 | bytes[3] << 16;
    if (rank >= loop->config.engine.size)
        return HC_BAD_MESSAGE;
    if (rank != loop->config.engine.rank && bytes[0] == IT_IS_STOPPED)
        lose_stopped(loop, rank);
    else if (rank != loop->config.engine.rank)
        hc__loop_lose(loop, rank, "its process is gone");
    return 1;
}

int hc__heartbeat_message(hc_loop *loop, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    if (loop->watch.owed[peer]) {
        loop->watch.owed[peer] = 0;
        hc__silence_end(loop, peer);
    }
    if (nbytes >= ENGINES_LEAST || nbytes == 0)
        return 0;
    uint64_t now = hc__loop_now();
    if (nbytes == SILENT_BYTES && bytes[0] == IT_IS_SILENT)
        return take_silent(loop, peer, bytes, now);
    if (nbytes == LOST_BYTES && (bytes[0] == IT_IS_GONE || bytes[0] == IT_IS_STOPPED))
        return take_lost(loop, bytes);
    if (nbytes != 1 || (bytes[0] != ARE_YOU_THERE && bytes[0] != I_AM))
        return HC_BAD_MESSAGE;
    if (bytes[0] == ARE_YOU_THERE)
        take_question(loop, peer, now);
    return 1;
}
