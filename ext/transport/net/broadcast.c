/* SPDX-License-Identifier: Apache-2.0
 *
 * broadcast.c - broadcast: down a tree, where each member receives from its parent and then sends to its children; or
 * scattered and then gathered, in stages.
 */
#include "transport/net/algorithms.h"

const hc__stages *hc__broadcast_stages(const hc__net_model *model, const hc__splits *splits, int64_t bytes,
                                       int64_t most) {
    hc__choice scattered = hc__choose_broadcast(model, splits, bytes);
    int64_t step = hc__tree_segment(model, splits->n, bytes, most);
    return hc__stages_or_tree(model, splits->n, &scattered, (double)bytes / (double)most,
                              hc__tree_seconds(model, splits->n, bytes, step));
}

static int round_tree(hc__channel *channel, int32_t round) {
    const hc__tree *f = &channel->tree;
    int status = HC_MOVED;
    if (round == 0 && f->parent >= 0)
        status = hc__receive_part(channel, hc__tree_member(channel, f->parent), 0, channel->count);
    for (int32_t i = 0; round == 1 && i < f->nchildren && status >= 0; i++)
        status = hc__send_part(channel, hc__tree_member(channel, f->children[i]), 0, channel->count);
    return status < 0 ? status : round < 2 ? HC_MOVED : HC_DONE;
}

int hc__net_broadcast_start(hc__channel *channel, void *data, int64_t count, int dtype, hc__way way) {
    int32_t n = channel->team->n;
    channel->stages = way.stages;
    channel->form = (hc__form){0};
    channel->rounds.call = way.stages ? hc__round_broadcast_stages : round_tree;
    channel->data = channel->work = data;
    channel->count = count;
    channel->dtype = channel->kind = (uint8_t)dtype;
    channel->root = way.root;
    channel->tree = hc__tree_of(n, (channel->team->me - way.root + n) % n, (double)way.segments);
    channel->rounds.next = 0;
    channel->rounds.running = n > 1 && count > 0;
    return HC_OK;
}
