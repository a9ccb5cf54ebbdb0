/* SPDX-License-Identifier: Apache-2.0
 *
 * reducescatter.h - the state of a reducescatter inside one node.
 */
#pragma once

#include "transport/batch.h"

typedef struct hc__node_scatter {
    int32_t piece;
    int placed;
    hc_piece cut;
    hc_batch batch;
} hc__node_scatter;
