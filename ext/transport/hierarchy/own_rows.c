/* SPDX-License-Identifier: Apache-2.0
 *
 * own_rows.c - the rows that a rank sends to itself.
 */
#include "transport/hierarchy/own_rows.h"

#include "transport/hierarchy/hierarchy_state.h"

#define PART ((int64_t)256 << 10) /* copied before the rank looks at the others again */

int hc__own_rows_copy(const hc__hierarchy *h, hc__own_rows *own, int near, int far) {
    int are_done = near == HC_DONE && far == HC_DONE, has_moved = near == HC_MOVED || far == HC_MOVED;
    int64_t n = are_done || own->bytes < PART ? own->bytes : PART;
    if (n > 0 && !has_moved) {
        hc_node_copy_result(h->node, own->to, own->from, (size_t)n);
        *own = (hc__own_rows){own->to + n, own->from + n, own->bytes - n};
        has_moved = 1;
    }
    return are_done ? HC_DONE : has_moved ? HC_MOVED : HC_IDLE;
}
