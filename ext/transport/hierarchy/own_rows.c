/* SPDX-License-Identifier: Apache-2.0
 *
 * own_rows.c - the rows that a rank sends to itself.
 */
#include "transport/hierarchy/own_rows.h"

#include "transport/hierarchy/hierarchy_state.h"

#define PART ((int64_t)256 << 10) /* copied before the rank looks at the others again */

int hc__own_rows_copy(const hc__hierarchy *h, hc__own_rows *own, int others) {
    if (own->bytes == 0 || (others != HC_IDLE && others != HC_DONE))
        return others;
    int64_t n = others == HC_DONE || own->bytes < PART ? own->bytes : PART;
    hc_node_copy_result(h->node, own->to, own->from, (size_t)n);
    *own = (hc__own_rows){own->to + n, own->from + n, own->bytes - n};
    return others == HC_DONE ? HC_DONE : HC_MOVED;
}
