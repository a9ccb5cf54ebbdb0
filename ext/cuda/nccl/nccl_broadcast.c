/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_broadcast.c - the stages of a broadcast, where they differ from those of an allreduce.
 *
 *     the root's node   reduce    the root's tensors -> buffer -> ncclBroadcast: every driver of the net has its shard
 *                       spread    buffer -> tensors
 *     other nodes       reduce    nothing: the slot is free
 *                       spread    as for a sum: NCCL's allgather of the shards that the net brought, buffer -> tensors
 *
 * All ranks of a node know which of the two cases applies, so they call their communicator in one order. The root's
 * node sends every byte once and each other node receives it once, split among the rails; the same bytes cross PCIe.
 */
#include "cuda/nccl/nccl_node.h"

void hc__nccl_find_root(hc__nccl_node *n) {
    const hc__comms *c = n->comms;
    int32_t root = n->batch->root;
    n->root = -1;
    if (!n->moves || c->group_of[root] != c->group_of[c->rank])
        return;
    n->root = 0;
    for (int32_t r = 0; r < root; r++)
        n->root += c->group_of[r] == c->group_of[root];
}

int hc__nccl_gives(const hc__nccl_node *n) {
    return !n->moves || n->base.local_rank == n->root;
}

int hc__nccl_returns(const hc__nccl_node *n) {
    return n->rails > 0 && !(n->moves && n->root >= 0);
}

int hc__nccl_gathers(const hc__nccl_node *n) {
    return hc__nccl_returns(n) && !n->scatters;
}

char *hc__nccl_lies(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    if (slot->out_place)
        return slot->out_place;
    return hc__nccl_gives(n) && slot->in_place ? slot->in_place : slot->buffer;
}

int hc__nccl_call_broadcast(hc__nccl_node *n, const hc__nccl_slot *slot) {
    if (n->root < 0 || n->comms->alone)
        return HC_NCCL_SUCCESS;
    char *to = hc__nccl_lies(n, slot);
    const char *from = !hc__nccl_gives(n) ? to : slot->in_place ? slot->in_place : slot->buffer;
    return n->comms->nccl.broadcast(from, to, (size_t)(slot->n * n->units), n->dtype, n->root, n->comms->comm, n->work);
}
