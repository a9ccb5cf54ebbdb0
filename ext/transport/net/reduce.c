/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c - the reduction of all members' data to one member.
 *
 * The broadcast's tree, upwards: a member adds its children's sums to its own data and sends the result to its parent.
 * Every member but the root sends the data once: (n - 1) times the data in all, half of an allreduce. One segment uses
 * a binomial tree. Many segments use a chain: each link carries every byte once, and all links work at the same time,
 * on different segments. Among many members parts of a segment are added up in stages, and then gathered on the root.
 *
 * The tree's sums depend on its shape, and float16 must travel in it as float32. In order, and between two members, all
 * members send their unconverted data to the root at once, and the root adds it in the order of the members.
 */
#include "transport/net/algorithms.h"

static int round_tree(hc__channel *channel, int32_t round) {
    const hc__tree *f = &channel->tree;
    int status = HC_MOVED;
    if (round == 0) {
        for (int32_t i = 0; i < f->nchildren && status >= 0; i++)
            status = hc__receive_scratch(channel, hc__tree_member(channel, f->children[i]), i * channel->count,
                                         channel->count);
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
    status = hc__send_part(channel, hc__tree_member(channel, f->parent), 0, channel->count);
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

int hc__net_reduce_in_order_start(hc__channel *channel, void *data, int64_t count, int dtype, hc__reduction reduction,
                                  int32_t root) {
    channel->root = root;
    channel->form = (hc__form){0};
    return hc__rounds_start(channel, round_in_order, data, count, dtype, dtype, reduction,
                            channel->team->me == root ? count * (channel->team->n - 1) : 0);
}

static int start_tree(hc__channel *channel, void *data, int64_t count, int dtype, hc__reduction reduction,
                      int64_t segments) {
    int32_t n = channel->team->n, me = channel->team->me;
    channel->form = (hc__form){.partial = 1};
    channel->tree = hc__tree_of(n, (me - channel->root + n) % n, (double)segments);
    return hc__rounds_start(channel, round_tree, data, count, dtype, hc__accumulation_dtype(dtype), reduction,
                            count * channel->tree.nchildren);
}

static int start_stages(hc__channel *channel, void *data, const hc__sum *sum, hc__reduction reduction,
                        const hc__stages *stages) {
    int kind = hc__kind_in_stages(stages, sum);
    channel->count = sum->count;
    channel->form = (hc__form){0};
    hc__take_stages(channel, stages, sum->dtype, kind, reduction);
    return hc__rounds_start(channel, hc__round_reduce_stages, data, sum->count, sum->dtype, kind, reduction,
                            hc__stages_scratch(channel));
}

int hc__net_reduce_start(hc__channel *channel, void *data, int64_t count, int dtype, hc__reduction reduction,
                         hc__way way, int exact) {
    hc__sum sum = {count, (uint8_t)dtype, (uint8_t)reduction.reduction, exact != 0, 0};
    channel->root = way.root;
    if (channel->team->n <= 2)
        return hc__net_reduce_in_order_start(channel, data, count, dtype, reduction, way.root);
    return way.stages ? start_stages(channel, data, &sum, reduction, way.stages)
                      : start_tree(channel, data, count, dtype, reduction, way.segments);
}

/* A step up the tree also adds what it brings to what is there. */
double hc__reduce_tree_seconds(const hc__net_model *model, int32_t n, const hc__sum *sum, int64_t segment) {
    int64_t wire = (int64_t)hc_dtype_size(sum->dtype),
            wide = (int64_t)hc_dtype_size(hc__accumulation_dtype(sum->dtype));
    hc__net_model adds = {model->alpha, model->beta + 2 * model->gamma, 0.0};
    return hc__tree_seconds(&adds, n, sum->count * wide, segment / wire * wide);
}

const hc__stages *hc__reduce_stages(const hc__net_model *model, const hc__splits *splits, const hc__sum *sum,
                                    int64_t segment, int64_t most) {
    double bytes = (double)(sum->count * (int64_t)hc_dtype_size(sum->dtype));
    hc__choice staged = hc__choose_reduce(model, splits, sum);
    return hc__stages_or_tree(model, splits->n, &staged, bytes / (double)most,
                              hc__reduce_tree_seconds(model, splits->n, sum, segment));
}
