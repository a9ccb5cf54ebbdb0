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

static int32_t member(const hc__channel *a, int32_t place) {
    return (a->root + place) % a->team->n;
}

static int round_tree(hc__channel *a, int32_t round) {
    const hc__tree *f = &a->tree;
    int status = HC_MOVED;
    if (round == 0) {
        for (int32_t i = 0; i < f->nchildren && status >= 0; i++)
            status = hc__receive_scratch(a, member(a, f->children[i]), i * a->count, a->count);
        return status < 0 ? status : HC_MOVED;
    }
    if (round == 2)
        return HC_DONE;
    const void *from[1 + sizeof f->children / sizeof *f->children] = {a->work};
    for (int32_t i = 0; i < f->nchildren; i++)
        from[1 + i] = a->scratch + i * a->count * (int64_t)hc_dtype_size(a->kind);
    if (f->nchildren > 0)
        hc__add_up(a, a->work, from, 1 + f->nchildren, a->count, hc__reduction_of(a, f->parent < 0));
    if (f->parent < 0)
        return HC_DONE;
    status = hc__send_part(a, member(a, f->parent), 0, a->count);
    return status < 0 ? status : HC_MOVED;
}

static int round_in_order(hc__channel *a, int32_t round) {
    const hc__team *t = a->team;
    int status = HC_MOVED;
    if (t->me != a->root && round == 0)
        status = hc__send_part(a, a->root, 0, a->count);
    for (int32_t q = 0, i = 0; t->me == a->root && round == 0 && q < t->n && status >= 0; q++)
        if (q != t->me)
            status = hc__receive_scratch(a, q, a->count * i++, a->count);
    if (t->me == a->root && round == 1)
        status = hc__sum_in_order(a);
    return status < 0 ? status : round == 1 ? HC_DONE : HC_MOVED;
}

int hc__net_reduce_start(hc__channel *a, void *data, int64_t count, int dtype, hc__reduction reduction, int32_t root,
                         int64_t segments, int in_order) {
    int32_t n = a->team->n, me = a->team->me;
    a->root = root;
    a->scatters = a->whole = a->divides = 0;
    a->partial = !in_order && n > 2;
    if (!a->partial)
        return hc__rounds_start(a, round_in_order, data, count, dtype, dtype, reduction,
                                me == root ? count * (n - 1) : 0);
    a->tree = hc__tree_of(n, (me - root + n) % n, (double)segments);
    return hc__rounds_start(a, round_tree, data, count, dtype, hc__accumulation_dtype(dtype), reduction,
                            count * a->tree.nchildren);
}
