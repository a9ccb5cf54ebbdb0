/* SPDX-License-Identifier: Apache-2.0
 *
 * heartbeat.c - are the others alive? Asked only by a driver that waits, so an idle job stays silent.
 *
 * On this node the kernel knows (hc_node_control_lost). Other nodes are asked by a one-byte control message, which
 * their driver answers; the engine's own messages are longer. Only neighbours in the World's tree are asked, a
 * number that does not grow with the job: whoever finds a gap floods the failure.
 */
#include "loop/driver.h"

#include <stdio.h>
#include <string.h>

enum { ARE_YOU_THERE = 0xA5, I_AM = 0x5A };
#define ASK_EVERY (1000 * HC__MS)

static void watch_node(hc_loop *loop) {
    int32_t local = hc_node_control_lost(loop->parts.node_control);
    if (local < 0 || local == loop->config.local_rank)
        return;
    char text[96];
    int32_t rank = loop->locals[local];
    snprintf(text, sizeof text, "rank %d of the World was lost: its process is gone", rank);
    hc__loop_fail(loop, HC_PEER_LOST, rank, text);
}

static void ask(hc_loop *loop, int32_t peer, uint64_t now) {
    if (loop->heard[peer] && now - loop->heard[peer] > loop->config.peer_timeout) {
        char text[128];
        snprintf(text, sizeof text, "rank %d of the World was lost: no sign of life for %llu s", peer,
                 (unsigned long long)(loop->config.peer_timeout / 1000000000ull));
        hc__loop_fail(loop, HC_PEER_LOST, peer, text);
        return;
    }
    if (!loop->heard[peer])
        loop->heard[peer] = now;
    uint8_t question = ARE_YOU_THERE;
    loop->parts.control->ops->send(loop->parts.control, peer, &question, 1);
}

static void watch_net(hc_loop *loop, uint64_t now) {
    for (int32_t i = 0; i < loop->nneighbours; i++)
        ask(loop, loop->neighbours[i], now);
}

/* Whether other nodes are to be asked now. A driver that only listens for messages asks nobody: an idle job is silent.
 * A wait that began (or a gap in waiting) starts all clocks anew: nobody owes an answer to a question that was not
 * asked. */
static int asks(hc_loop *loop, uint64_t now) {
    if (!loop->config.heartbeat || !loop->parts.net || hc__loop_listens(loop))
        return 0;
    if (now - loop->waiting > 4 * HC__HEARTBEAT_NS) {
        loop->pinged = now;
        memset(loop->heard, 0, (size_t)loop->config.engine.size * sizeof *loop->heard);
    }
    loop->waiting = now;
    return now - loop->pinged >= ASK_EVERY;
}

void hc__heartbeat(hc_loop *loop, uint64_t now) {
    if (now - loop->watched < HC__HEARTBEAT_NS || atomic_load(&loop->broken))
        return;
    loop->watched = now;
    watch_node(loop);
    hc__set_queues_watch(loop);
    int asking = asks(loop, now);
    hc__p2p_watch(loop, now, asking ? ask : NULL);
    if (!asking)
        return;
    loop->pinged = now;
    watch_net(loop, now);
}

int hc__heartbeat_message(hc_loop *loop, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    if (loop->heard[peer])
        loop->heard[peer] = hc__loop_now();
    if (nbytes != 1)
        return 0;
    if (bytes[0] == ARE_YOU_THERE) {
        uint8_t answer = I_AM;
        loop->parts.control->ops->send(loop->parts.control, peer, &answer, 1);
    }
    return 1;
}
