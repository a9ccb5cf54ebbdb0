/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - the reduction of all members' data to one member.
 *
 * The broadcast's tree, upwards: a member adds its children's sums to its own data and sends the result to its parent.
 * Every member but the root sends the data once: (n - 1) times the data in all, half of an allreduce. One segment uses
 * a binomial tree. Many segments use a chain: each link carries every byte once, and all links work at the same time,
 * on different segments.
 *
 * The tree's sums depend on its shape, and float16 must travel in it as float32. With `in_order`, and between two
 * members, all members send their unconverted data to the root at once, and the root adds it in the order of the
 * members.
 */
#include "transport/net/algorithms.h"

static int32_t member(const hc__channel *channel, int32_t place) {
    return (channel->root + place) % channel->team->n;
}

static int round_tree(hc__channel *channel, int32_t round) {
    const hc__tree *f = &channel->tree;
    int status = HC_MOVED;
    if (round == 0) {
        for (int32_t i = 0; i < f->nchildren && status >= 0; i++)
            status = hc__receive_scratch(channel, member(channel, f->children[i]), i * channel->count, channel->count);
        return status < 0 ? status : HC_MOVED;
    }
    if (round == 2)
        return HC_DONE;
    const void *from[1 + sizeof f->children / sizeof *f->children] = {channel->work};
    for (int32_t i = 0; i < f->nchildren; i++)
        from[1 + i] = channel->scratch + i * channel->count * (int64_t)hc_dtype_size(channel->kind);
    if (f->nchildren > 0)
        hc__add_up(channel, channel->work, from, 1 + f->nchildren, channel->count,
                   hc__reduction_of(channel, f->parent < 0));
    if (f->parent < 0)
        return HC_DONE;
    status = hc__send_part(channel, member(channel, f->parent), 0, channel->count);
    return status < 0 ? status : HC_MOVED;
}

static int round_in_order(hc__channel *channel, int32_t round) {
    const hc__team *t = channel->team;
    int status = HC_MOVED;
    if (t->me != channel->root && round == 0)
        status = hc__send_part(channel, channel->root, 0, channel->count);
    for (int32_t q = 0, i = 0; t->me == channel->root && round == 0 && q < t->n && status >= 0; q++)
        if (q != t->me)
            status = hc__receive_scratch(channel, q, channel->count * i++, channel->count);
    if (t->me == channel->root && round == 1)
        status = hc__sum_in_order(channel);
    return status < 0 ? status : round == 1 ? HC_DONE : HC_MOVED;
}

int hc__net_reduce_start(hc__channel *channel, void *data, int64_t count, int dtype, hc__reduction reduction,
                         int32_t root, int64_t segments, int in_order) {
    int32_t n = channel->team->n, me = channel->team->me;
    channel->root = root;
    channel->form.scatters = channel->form.whole = channel->form.divides = 0;
    channel->form.partial = !in_order && n > 2;
    if (!channel->form.partial)
        return hc__rounds_start(channel, round_in_order, data, count, dtype, dtype, reduction,
                                me == root ? count * (n - 1) : 0);
    channel->tree = hc__tree_of(n, (me - root + n) % n, (double)segments);
    return hc__rounds_start(channel, round_tree, data, count, dtype, hc__accumulation_dtype(dtype), reduction,
                            count * channel->tree.nchildren);
}
