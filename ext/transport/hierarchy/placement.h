/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.h - which ranks of a set share a node.
 */
#pragma once

#include "transport/hierarchy/hierarchy.h"

typedef struct hc__placement {
    int32_t rank, size;  /* in the set */
    int32_t nodes, node; /* number of nodes, and mine */
    int32_t local_rank, local_size;
    int32_t smallest, largest; /* ranks of the smallest and the largest node */
    int32_t *world;            /* World rank of each set rank */
    int32_t *node_of;          /* node of each set rank */
    int32_t *by_node;          /* the set ranks node after node, ascending in each */
    int32_t *first;            /* where a node begins in by_node; nodes + 1 entries */
} hc__placement;

int hc__placement_new(const hc_hierarchy_config *, hc__placement *);
void hc__placement_free(hc__placement *);
/* Set rank of local rank j of a node. */
static inline int32_t hc__set_rank(const hc__placement *p, int32_t node, int32_t j) {
    return p->by_node[p->first[node] + j];
}
static inline int hc__is_far(const hc__placement *p, int32_t rank) { /* on another node */
    return p->node_of[rank] != p->node;
}
