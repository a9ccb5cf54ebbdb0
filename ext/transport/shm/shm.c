/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.c - creates and frees a node of ranks that share memory, and has its table of operations.
 */
#include "transport/shm/shm.h"

#include "transport/shm/allreduce.h"
#include "transport/shm/exchange.h"
#include "transport/shm/layout.h"
#include "transport/shm/pieces.h"
#include "transport/shm/shm_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- create and free ----------------------------------------------------------------------------- */

static void shm_release(hc__shm *shm) {
    free(shm->operands.inputs);
    free(shm->operands.blocks);
    free(shm->operands.scratch);
    free(shm->operands.block);
    hc_free(shm->open.starts);
    free(shm);
}

static void shm_free(hc_node *node) {
    hc__shm *shm = hc__shm_of(node);
    /* The last node to be freed frees the shared memory of all of them. */
    int32_t others_left = (int32_t)atomic_fetch_add_explicit(&shm->places.left->value, 1, memory_order_acq_rel);
    if (shm->segment.fd != -1 || shm->segment.slice.of || others_left + 1 == node->local_size)
        hc_segment_close(&shm->segment);
    shm_release(shm);
}

static const struct hc_node_ops shm_ops = {
    .name = "shm",
    .takes_turns = 1,
    .open = hc__shm_open,
    .depth = hc__shm_depth,
    .reduce = hc__shm_reduce,
    .shard = hc__shm_shard,
    .publish = hc__shm_publish,
    .spread = hc__shm_spread,
    .close = hc__shm_close,
    .exchange = hc__shm_exchange,
    .scatter = hc__shm_scatter,
    .expect = hc__shm_expect,
    .abandon = hc__shm_exchange_abandon,
    .free = shm_free,
};

int hc_shm_node_new(hc_segment segment, hc_node_control *node_control, const int32_t *locals, int32_t local_rank,
                    int32_t local_size, hc_node **out) {
    if (local_size < 1 || local_size > HC_NODE_RANKS || local_rank < 0 || local_rank >= local_size ||
        segment.bytes < hc_shm_bytes_for(local_size, &(int64_t){0}))
        return HC_INVALID;
    hc__shm *shm = calloc(1, sizeof *shm);
    if (shm == NULL)
        return HC_NO_MEMORY;
    shm->base = (hc_node){.ops = &shm_ops, .local_rank = local_rank, .local_size = local_size};
    shm->segment = segment;
    shm->node_control = node_control;
    hc__shm_set_peers(shm, locals);
    hc__shm_lay_out(shm);
    shm->operands.inputs = calloc((size_t)local_size, sizeof *shm->operands.inputs);
    shm->operands.blocks = calloc((size_t)local_size, sizeof *shm->operands.blocks);
    shm->operands.scratch = aligned_alloc(64, HC__SCRATCH);
    shm->operands.block = aligned_alloc(64, HC__SCRATCH);
    if (shm->operands.inputs == NULL || shm->operands.blocks == NULL || shm->operands.scratch == NULL ||
        shm->operands.block == NULL) {
        shm_release(shm);
        return HC_NO_MEMORY;
    }
    *out = &shm->base;
    return HC_OK;
}
