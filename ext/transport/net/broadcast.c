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

static int32_t member(const hc__channel *a, int32_t place) {
    return (a->root + place) % a->team->n;
}

static int round_broadcast(hc__channel *a, int32_t round) {
    const hc__tree *f = &a->tree;
    int status = HC_MOVED;
    if (round == 0 && f->parent >= 0)
        status = hc__receive_part(a, member(a, f->parent), 0, a->count);
    for (int32_t i = 0; round == 1 && i < f->nchildren && status >= 0; i++)
        status = hc__send_part(a, member(a, f->children[i]), 0, a->count);
    return status < 0 ? status : round < 2 ? HC_MOVED : HC_DONE;
}

int hc__net_broadcast_start(hc__channel *a, void *data, int64_t count, int dtype, int32_t root, int64_t segments) {
    int32_t n = a->team->n;
    a->round = round_broadcast;
    a->data = a->work = data;
    a->count = count;
    a->dtype = a->kind = (uint8_t)dtype;
    a->root = root;
    a->tree = hc__tree_of(n, (a->team->me - root + n) % n, (double)segments);
    a->next_round = 0;
    a->running = n > 1 && count > 0;
    return HC_OK;
}
