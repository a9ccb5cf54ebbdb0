/* SPDX-License-Identifier: Apache-2.0
 *
 * node_life.c - the signs of life of the ranks on this node, and its leader's list of silent ranks on other nodes.
 *
 * Each rank counts its progress iterations in shared memory. If a count does not change, /proc tells whether the
 * process is stopped. Reports show this; a stopped process counts as lost after HPCCOLL_PEER_TIMEOUT.
 */
#include "loop/clock.h"
#include "loop/state.h"
#include "loop/watch.h"

#define ALL_SPEAK 64 /* ranks of a World */
#define FRESH (1000 * HC__MS)

/* 1: its process has been stopped for longer than the peer timeout. */
static int look_at_rank(hc_loop *loop, int32_t local, uint64_t now) {
    hc__local *seen = &loop->watch.local[local];
    int32_t rank = loop->ranks.locals[local];
    hc_local_life life;
    int is_there = hc_node_control_look(loop->parts.node_control, local, &life);
    if (!is_there || life.turns != seen->turns) {
        seen->turns = life.turns;
        seen->moved = now;
        hc__silence_end(loop, rank);
        return 0;
    }
    if (now - seen->moved < loop->watch.ask_every || now - seen->looked < loop->watch.ask_every / 2)
        return 0;
    seen->looked = now;
    char state = hc_node_control_state(loop->parts.node_control, local);
    uint8_t kind = state == 'T' ? HC__STOPPED : state == 't' ? HC__DEBUGGED : life.answers ? HC__SILENT : HC__AWAY;
    if (kind < HC__DEBUGGED && now - seen->moved < loop->watch.patience)
        return 0;
    hc__silence_note(loop, &(hc__silent){.rank = rank, .kind = kind, .since = seen->moved, .from = HC__OWN}, now);
    uint64_t timeout = loop->config.peer_timeout;
    return kind == HC__STOPPED && timeout && now - seen->moved > timeout;
}

/* The leader of a node publishes its list of silent ranks on other nodes in shared memory. A word has rank, kind, and
 * the time in milliseconds. */
void hc__node_publish(hc_loop *loop, uint64_t now) {
    uint64_t words[HC_NODE_WORDS] = {0};
    int n = 0;
    for (uint32_t i = 0; i < loop->watch.silent.count && n < HC_NODE_WORDS; i++) {
        const hc__silent *silent = &loop->watch.silent.of[i];
        if (loop->ranks.node_of[silent->rank] != loop->ranks.node_of[loop->config.engine.rank])
            words[n++] = (uint64_t)silent->rank << 40 | (uint64_t)silent->kind << 36 |
                         (silent->since / HC__MS & ((1ull << 36) - 1));
    }
    if (n || loop->watch.silent.published)
        hc_node_control_publish(loop->parts.node_control, words, now);
    loop->watch.silent.published = n > 0;
}

void hc__node_read(hc_loop *loop, uint64_t now) {
    uint64_t words[HC_NODE_WORDS], at = hc_node_control_published(loop->parts.node_control, words);
    if (!at || now > at + 2 * loop->watch.ask_every)
        return;
    for (int i = 0; i < HC_NODE_WORDS && words[i]; i++) {
        hc__silent silent = {.rank = (int32_t)(words[i] >> 40),
                             .kind = words[i] >> 36 & 15,
                             .since = (words[i] & ((1ull << 36) - 1)) * HC__MS,
                             .from = loop->ranks.locals[0]};
        if (silent.rank < loop->config.engine.size && silent.kind && silent.kind < HC__SILENCES)
            hc__silence_note(loop, &silent, now);
    }
}

/* 1: this rank prints the reports. In a large World one rank per node prints for all: the lowest rank that waits and
 * runs. */
int hc__node_reports(hc_loop *loop) {
    uint64_t now = hc__loop_now();
    hc_local_life life;
    for (int32_t i = 0; loop->config.engine.size > ALL_SPEAK && i < loop->config.local_rank; i++)
        if (hc_node_control_look(loop->parts.node_control, i, &life) && now - life.waits < FRESH &&
            now - loop->watch.local[i].moved < FRESH)
            return 0;
    return 1;
}

void hc__node_begin(hc_loop *loop, uint64_t now) {
    hc_local_life life;
    for (int32_t i = 0; i < loop->config.local_size; i++) {
        hc_node_control_look(loop->parts.node_control, i, &life);
        loop->watch.local[i] = (hc__local){.turns = life.turns, .moved = now};
    }
}

int32_t hc__node_look(hc_loop *loop, uint64_t now) {
    for (int32_t i = 0; i < loop->config.local_size; i++)
        if (i != loop->config.local_rank && look_at_rank(loop, i, now))
            return loop->ranks.locals[i];
    return -1;
}
