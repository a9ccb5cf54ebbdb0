/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast.c - broadcast: each member receives from its parent in the tree, then sends to its children.
 */
#include "transport/net/algorithms.h"

/* The chain has n - 1 links. The tree has log2(n) levels, and a member sends every segment once per child. */
static int chain_is_shorter(int32_t n, double segments) {
    int levels = 0;
    while (((int32_t)1 << levels) < n)
        levels++;
    return n - 2 + segments < levels * (segments + levels - 1);
}

hc__tree hc__tree_of(int32_t n, int32_t place, double segments) {
    hc__tree f = {.parent = -1};
    if (chain_is_shorter(n, segments)) {
        f.parent = place - 1;
        if (place + 1 < n)
            f.children[f.nchildren++] = place + 1;
        return f;
    }
    int32_t low = 1; /* below my lowest set bit: my children */
    while (low < n && !(place & low))
        low *= 2;
    if (place > 0)
        f.parent = place - low;
    for (low /= 2; low > 0; low /= 2)
        if (place + low < n)
            f.children[f.nchildren++] = place + low;
    return f;
}

static int32_t member(const hc__channel *channel, int32_t place) {
    return (channel->root + place) % channel->team->n;
}

static int round_broadcast(hc__channel *channel, int32_t round) {
    const hc__tree *f = &channel->tree;
    int status = HC_MOVED;
    if (round == 0 && f->parent >= 0)
        status = hc__receive_part(channel, member(channel, f->parent), 0, channel->count);
    for (int32_t i = 0; round == 1 && i < f->nchildren && status >= 0; i++)
        status = hc__send_part(channel, member(channel, f->children[i]), 0, channel->count);
    return status < 0 ? status : round < 2 ? HC_MOVED : HC_DONE;
}

int hc__net_broadcast_start(hc__channel *channel, void *data, int64_t count, int dtype, int32_t root,
                            int64_t segments) {
    int32_t n = channel->team->n;
    channel->rounds.call = round_broadcast;
    channel->data = channel->work = data;
    channel->count = count;
    channel->dtype = channel->kind = (uint8_t)dtype;
    channel->root = root;
    channel->tree = hc__tree_of(n, (channel->team->me - root + n) % n, (double)segments);
    channel->rounds.next = 0;
    channel->rounds.running = n > 1 && count > 0;
    return HC_OK;
}
