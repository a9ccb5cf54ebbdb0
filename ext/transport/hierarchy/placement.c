/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.c - maps set ranks to nodes, and nodes to set ranks.
 */
#include "transport/hierarchy/placement.h"

#include <stdlib.h>
#include <string.h>

static int check(const hc_hierarchy_config *c, int32_t *nodes) {
    *nodes = 0;
    if (c->set_size < 1 || c->set_rank < 0 || c->set_rank >= c->set_size || !c->members || !c->node_of)
        return HC_INVALID;
    for (int32_t r = 0; r < c->set_size; r++) {
        if (c->node_of[r] < 0 || c->node_of[r] >= c->set_size)
            return HC_INVALID;
        *nodes = c->node_of[r] >= *nodes ? c->node_of[r] + 1 : *nodes;
    }
    return HC_OK;
}

/* 0: a node has no ranks. */
static int count(hc__placement *p) {
    int full = 1;
    for (int32_t r = 0; r < p->size; r++)
        p->first[p->node_of[r] + 1]++;
    for (int32_t i = 0; i < p->nodes; i++) {
        full &= p->first[i + 1] > 0;
        p->first[i + 1] += p->first[i];
    }
    return full;
}

static void fill(hc__placement *p) {
    for (int32_t r = p->size - 1; r >= 0; r--) /* backwards, so that `first` ends as the first rank of each node */
        p->by_node[--p->first[p->node_of[r] + 1]] = r;
    memmove(p->first, p->first + 1, (size_t)p->nodes * sizeof *p->first);
    p->first[p->nodes] = p->size;
    p->smallest = p->size;
    for (int32_t i = 0; i < p->nodes; i++) {
        int32_t ranks = p->first[i + 1] - p->first[i];
        p->smallest = ranks < p->smallest ? ranks : p->smallest;
        p->largest = ranks > p->largest ? ranks : p->largest;
    }
    p->node = p->node_of[p->rank];
    p->local_size = p->first[p->node + 1] - p->first[p->node];
    while (hc__set_rank(p, p->node, p->local_rank) != p->rank)
        p->local_rank++;
}

int hc__placement_new(const hc_hierarchy_config *c, hc__placement *p) {
    memset(p, 0, sizeof *p);
    int status = check(c, &p->nodes);
    if (status < 0)
        return status;
    size_t n = (size_t)c->set_size;
    p->rank = c->set_rank;
    p->size = c->set_size;
    p->world = hc_malloc(n * sizeof *p->world);
    p->node_of = hc_malloc(n * sizeof *p->node_of);
    p->by_node = hc_malloc(n * sizeof *p->by_node);
    p->first = hc_calloc((size_t)p->nodes + 1, sizeof *p->first);
    if (!p->world || !p->node_of || !p->by_node || !p->first) {
        hc__placement_free(p);
        return HC_NO_MEMORY;
    }
    memcpy(p->world, c->members, n * sizeof *p->world);
    memcpy(p->node_of, c->node_of, n * sizeof *p->node_of);
    if (!count(p)) {
        hc__placement_free(p);
        return HC_INVALID;
    }
    fill(p);
    return HC_OK;
}

void hc__placement_free(hc__placement *p) {
    hc_free(p->world);
    hc_free(p->node_of);
    hc_free(p->by_node);
    hc_free(p->first);
    memset(p, 0, sizeof *p);
}
