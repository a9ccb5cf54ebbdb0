/* SPDX-License-Identifier: Apache-2.0
 *
 * tree_place.c - the place of a member in its set's tree.
 *
 * The leaders of nodes form a k-ary heap in order of appearance; the other members of a node form a k-ary heap below
 * their leader. So a message between nodes is sent once, and the members of a node get it over shared memory.
 */
#include <stdlib.h>

#include "core/base.h"

struct hc_tree_index {
    int32_t n, nnodes, fanout;
    int32_t *member;  /* World rank of a set rank */
    int32_t *node;    /* number of its node */
    int32_t *local;   /* position in its node; the leader is 0 */
    int32_t *start;   /* node -> first index of its members in `list`; nnodes + 1 */
    int32_t *list;    /* set ranks, by node */
    int32_t *subtree; /* node -> number of members of it and of all nodes below it */
};

void hc_tree_index_free(hc_tree_index *index) {
    free(index);
}

typedef struct pair {
    int32_t node, first;
} pair;

static void sift(pair *at, int32_t i, int32_t n) {
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && at[child + 1].node >= at[child].node &&
            (at[child + 1].node > at[child].node || at[child + 1].first > at[child].first))
            child++;
        if (at[i].node > at[child].node || (at[i].node == at[child].node && at[i].first > at[child].first))
            return;
        pair swap = at[i];
        at[i] = at[child];
        at[child] = swap;
    }
}

/* Sorts by node and then by set rank, without the C library. */
static void sort_pairs(pair *at, int32_t n) {
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift(at, i, n);
    for (int32_t i = n - 1; i > 0; i--) {
        pair swap = at[0];
        at[0] = at[i];
        at[i] = swap;
        sift(at, 0, i);
    }
}

/* Numbers nodes by first appearance. `pairs` and `leader` have room for n. */
static void number_nodes(hc_tree_index *index, const int32_t *node_of, pair *pairs, int32_t *leader) {
    for (int32_t i = 0; i < index->n; i++)
        pairs[i] = (pair){node_of[i], i};
    sort_pairs(pairs, index->n);
    for (int32_t i = 0; i < index->n; i++) {
        int fresh = i == 0 || pairs[i].node != pairs[i - 1].node;
        leader[pairs[i].first] = fresh ? pairs[i].first : leader[pairs[i - 1].first];
    }
    for (int32_t i = 0; i < index->n; i++)
        index->node[i] = leader[i] == i ? index->nnodes++ : index->node[leader[i]];
}

static void fill(hc_tree_index *index, const int32_t *members) {
    for (int32_t i = 0; i < index->n; i++) {
        index->member[i] = members[i];
        index->start[index->node[i] + 1]++;
    }
    for (int32_t j = 0; j < index->nnodes; j++) {
        index->subtree[j] = index->start[j + 1];
        index->start[j + 1] += index->start[j];
    }
    for (int32_t i = 0; i < index->n; i++) {
        int32_t j = index->node[i], at = index->start[j] + index->local[index->n + j]++;
        index->list[at] = i;
        index->local[i] = at - index->start[j];
    }
    for (int32_t j = index->nnodes - 1; j > 0; j--)
        index->subtree[(j - 1) / index->fanout] += index->subtree[j];
}

hc_tree_index *hc_tree_index_new(const int32_t *members, const int32_t *node_of, int32_t n, int32_t fanout) {
    if (n < 1 || fanout < 1)
        return NULL;
    size_t many = (size_t)n;
    hc_tree_index *index = calloc(1, sizeof *index + (7 * many + 1) * sizeof(int32_t));
    pair *pairs = malloc(many * sizeof *pairs);
    int32_t *leader = malloc(many * sizeof *leader);
    if (index && pairs && leader) {
        index->n = n;
        index->fanout = fanout;
        index->member = (int32_t *)(index + 1);
        index->node = index->member + many;
        index->list = index->node + many;
        index->subtree = index->list + many;
        index->start = index->subtree + many;
        index->local = index->start + many + 1; /* followed by one counter per node */
        number_nodes(index, node_of, pairs, leader);
        fill(index, members);
    } else {
        free(index);
        index = NULL;
    }
    free(pairs);
    free(leader);
    return index;
}

/* The number of nodes in the subtree of i, in a heap of n. */
static int32_t heap_subtree(int64_t i, int64_t n, int64_t k) {
    int64_t total = 0, from = i, to = i;
    while (from < n) {
        total += (to < n ? to : n - 1) - from + 1;
        from = k * from + 1;
        to = k * to + k;
    }
    return (int32_t)total;
}

int32_t hc_tree_place(const hc_tree_index *index, int32_t set_rank, hc_set_config *out, hc_child *children,
                      int32_t room) {
    int64_t k = index->fanout, j = index->node[set_rank], i = index->local[set_rank];
    const int32_t *list = index->list + index->start[j];
    int64_t size = index->start[j + 1] - index->start[j];
    int32_t n = 0;
    for (int64_t c = k * j + 1; i == 0 && c <= k * j + k && c < index->nnodes; c++, n++)
        if (n < room)
            children[n] = (hc_child){index->member[index->list[index->start[c]]], index->subtree[c]};
    for (int64_t c = k * i + 1; c <= k * i + k && c < size; c++, n++)
        if (n < room)
            children[n] = (hc_child){index->member[list[c]], heap_subtree(c, size, k)};
    out->set_rank = set_rank;
    out->set_size = index->n;
    out->parent = -1;
    if (i > 0)
        out->parent = index->member[list[(i - 1) / k]];
    else if (j > 0)
        out->parent = index->member[index->list[index->start[(j - 1) / k]]];
    out->nchildren = n;
    out->children = children;
    return n;
}
