/* SPDX-License-Identifier: Apache-2.0
 *
 * any_stages.h - what a test may put in the place of the model, whose choice depends on the number of nodes: always one
 * of the splits, the same on all ranks. A driver includes it, and -Dhc__broadcast_stages=any_stages names it.
 */
#ifndef HC_ANY_STAGES_H
#define HC_ANY_STAGES_H

#include "transport/net/algorithms.h"

const hc__stages *any_stages(const hc__net_model *model, const hc__splits *splits, int64_t bytes, int64_t most) {
    (void)model, (void)most;
    return bytes > 0 ? &splits->stages[bytes % splits->count] : NULL;
}

const hc__stages *any_reduce_stages(const hc__net_model *model, const hc__splits *splits, const hc__sum *sum,
                                    int64_t segment, int64_t most) {
    (void)segment;
    return any_stages(model, splits, sum->count, most);
}

#endif
