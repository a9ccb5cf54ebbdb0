/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_plane.c - chooses the data plane of a plan from the agreed facts: flat or hierarchy, its size, and each member's
 * parts in a flat one.
 */
#include "loop/plan.h"
#include "loop/state.h"

#include <stdlib.h>

static int has(const hc_plan_agreed *a, int trait) {
    return hc_operation_has(a->operation, trait);
}

int64_t hc_plan_rows_from(const hc_plan_agreed *a, int32_t from, int32_t to) {
    if (!hc_operation_gets(a->operation, a->root, to))
        return 0;
    return has(a, HC_OP_COUNTS) ? a->splits[(size_t)from * (size_t)a->size + (size_t)to] : a->parts[from].rows;
}

int64_t hc_plan_rows_of(const hc_plan_agreed *a, int32_t rank) {
    int64_t rows = 0;
    for (int32_t from = 0; from < a->size; from++)
        rows += hc_plan_rows_from(a, from, rank);
    return rows;
}

static int64_t largest_part(const hc_plan_agreed *a) {
    int64_t most = 0;
    for (int32_t i = 0; i < a->size; i++)
        most = a->parts[i].bytes > most ? a->parts[i].bytes : most;
    return most;
}

static size_t slot_bytes(const hc_plan_agreed *a) {
    return a->is_barrier ? 0 : (size_t)largest_part(a);
}

static int32_t members_of(const hc_plan_agreed *a, int32_t node) {
    int32_t n = 0;
    for (int32_t i = 0; i < a->size; i++)
        n += a->node_of[i] == node;
    return n;
}

static int32_t largest_node(const hc_plan_agreed *a) {
    int32_t most = 1;
    for (int32_t i = 0; i < a->size; i++) {
        int32_t n = members_of(a, a->node_of[i]);
        most = n > most ? n : most;
    }
    return most;
}

int hc_plan_crosses(const hc_plan_agreed *a) {
    return members_of(a, a->node_of[0]) < a->size;
}

static int is_scan(const hc_plan_agreed *a) {
    return hc_operation_has(a->operation, HC_OP_PREFIX);
}

/* In a flat plane each rank adds the parts of all ranks, so scans cannot use it. */
int hc_plan_is_flat(const hc_plan_agreed *a) {
    if (is_scan(a))
        return 0;
    return a->size == 1 || (!hc_plan_crosses(a) && largest_part(a) <= (int64_t)hc_flat_limit(a->size));
}

/* Operations that use the segment in rounds need whole slots. */
int64_t hc_plan_chunk_bytes(const hc_plan_agreed *a) {
    int32_t n = largest_node(a);
    int64_t most = hc_node_chunk_bytes(n), chunk = largest_part(a);
    if (!has(a, HC_OP_ELEMENTWISE) || is_scan(a) || chunk > most)
        chunk = most;
    hc_shm_bytes_for(n, &chunk);
    return chunk;
}

size_t hc_plan_segment_bytes(const hc_plan_agreed *a) {
    if (hc_plan_is_flat(a))
        return a->size > 1 ? hc_flat_bytes(a->size, slot_bytes(a)) : 0;
    int64_t chunk = hc_plan_chunk_bytes(a);
    return hc_shm_bytes_for(members_of(a, a->node_of[a->rank]), &chunk);
}

/* ---- the flat plane -------------------------------------------------------------------------------- */

/* Sets the elements of the sum that this rank takes. */
static void take_sum(const hc_plan_agreed *a, const hc_handle *handle, hc_flat_config *config) {
    const hc_piece *piece = &handle->pieces[0];
    if (a->is_barrier)
        return;
    for (uint32_t i = 0; has(a, HC_OP_ELEMENTWISE) && i < handle->request.ntensors; i++)
        config->to += handle->pieces[i].count;
    if (has(a, HC_OP_ELEMENTWISE))
        return;
    config->from = hc_share_begin(piece->rows, a->size, a->rank) * piece->row;
    config->to = config->from + hc_share(piece->rows, a->size, a->rank) * piece->row;
}

/* Sets the bytes that this rank takes from each rank's array, and their destinations. */
static void take_rows(const hc_plan_agreed *a, const hc_handle *handle, hc_stream_read *reads) {
    const hc_piece *piece = &handle->pieces[0];
    int64_t row_bytes = hc_piece_row_bytes(piece, handle->tensors[0].dtype), place = 0;
    if (has(a, HC_OP_ROOTED) && !has(a, HC_OP_ROWS_DIFFER)) {
        reads[a->root] = (hc_stream_read){.out = piece->out, .bytes = largest_part(a)};
        return;
    }
    for (int32_t from = 0; from < a->size; from++) {
        hc_stream_read *read = &reads[from];
        *read = (hc_stream_read){.out = piece->out ? (uint8_t *)piece->out + place : NULL};
        read->bytes = hc_plan_rows_from(a, from, a->rank) * row_bytes;
        for (int32_t to = 0; has(a, HC_OP_COUNTS) && to < a->rank; to++)
            read->offset += hc_plan_rows_from(a, from, to) * row_bytes;
        place += read->bytes;
    }
}

int hc_plan_use_flat(hc_plan *plan, const hc_plan_agreed *a, hc_segment segment, hc_node_control *node_control,
                     const int32_t *locals) {
    hc_data *data = NULL;
    hc_stream_read *reads = calloc((uint32_t)a->size, sizeof *reads);
    hc_flat_config config = {.batch = hc_plan_batch(plan), .source = -1, .target = -1, .slot_bytes = slot_bytes(a)};
    if (!reads)
        return HC_NO_MEMORY;
    if (has(a, HC_OP_REDUCES)) {
        take_sum(a, plan->handle, &config);
    } else {
        take_rows(a, plan->handle, reads);
        config.reads = reads;
    }
    if (has(a, HC_OP_ROOTED))
        *(has(a, HC_OP_TO_ROOT) ? &config.target : &config.source) = a->root;
    int status = hc_flat_new(&config, segment, node_control, locals, a->rank, a->size, &data);
    free(reads);
    if (status == HC_OK)
        hc_plan_use(plan, data, 1);
    return status;
}
