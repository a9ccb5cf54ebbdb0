/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_way.h - the choice of the way that a reduce takes between nodes, for the hierarchy and for tools.
 */
#pragma once

#include "transport/net/choose.h"

/* To the root at once (in_order), in stages, or up a tree, if there are no stages; and the bytes of a rail's shard of a
 * chunk, at most. */
typedef struct hc__reduce_way {
    int in_order;
    const hc__stages *stages;
    int64_t shard_bytes;
} hc__reduce_way;

/* `sum`: of the whole batch, in the type between nodes. All numbers are equal on all ranks, so all choose the same. */
hc__reduce_way hc__choose_reduce_way(const hc__net_model *, const hc__splits *, const hc__sum *, int64_t rails);
