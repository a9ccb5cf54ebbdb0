/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c - writes checked arguments into a request, or into the call of a shortcut.
 */
#include "world/arguments.h"

#include <string.h>

#define has hc_arguments_has

static char nowhere[64]; /* an address for arrays without elements: NULL would mean "has joined" */

/* Writes array `at` of the request. Returns the address for the dimensions of the next array. */
static int64_t *put_array(const hc_arguments *a, const hc_place *place, hc_handle *h, uint32_t at, int64_t *dims) {
    const hc_operand *in = &a->operands[2 * at], *out = in + 1;
    hc_piece *piece = &h->pieces[at];
    int64_t count = in->count;
    memcpy(dims, in->dims, (size_t)in->ndim * sizeof *dims);
    if (!hc_arguments_gives(a, place) && in->ndim)
        dims[0] = count = 0;
    h->tensors[at] = (hc_tensor){.dtype = (uint8_t)in->dtype,
                                 .ndim = (uint8_t)in->ndim,
                                 .type_len = in->type ? (uint8_t)strlen(in->type) : 0,
                                 .dims = dims,
                                 .type = in->type};
    piece->in = count ? in->data : nowhere;
    piece->count = count;
    piece->row = has(a, HC_OP_ELEMENTWISE) ? 1 : hc_operand_row(in);
    piece->rows = in->ndim ? dims[0] : 1;
    if (hc_arguments_gets(a, place)) {
        piece->out_capacity = hc_arguments_result_bytes(a, place, at);
        piece->out = out->data || has(a, HC_OP_RESULT_ALLOCATED) ? out->data : nowhere;
    }
    return dims + in->ndim;
}

/* Writes the rows for each rank, and points to room for the number of rows from each rank. */
static void put_rows(const hc_arguments *a, const hc_place *place, hc_handle *h) {
    hc_piece *piece = &h->pieces[0];
    int from_root = has(a, HC_OP_ROOTED) && has(a, HC_OP_COUNTS);
    if (has(a, HC_OP_COUNTS) && hc_arguments_gives(a, place) && (a->splits || !from_root)) {
        for (int32_t rank = 0; rank < place->size; rank++)
            h->rows[rank] = a->splits ? a->splits[rank] : piece->rows / place->size;
        piece->send_rows = h->rows;
    }
    if (piece->out)
        piece->out_rows = a->operands[1].dims[0];
    if (!from_root)
        piece->recv_rows = h->rows + place->size;
}

hc_handle *hc_arguments_request(const hc_arguments *a, const hc_place *place, const char *name, size_t name_len) {
    uint32_t ndims = 0, nrows = has(a, HC_OP_RESULT_ALLOCATED) ? 2 * (uint32_t)place->size : 0;
    for (uint32_t i = 0; i < a->n; i++)
        ndims += (uint32_t)a->operands[2 * i].ndim;
    int kind = has(a, HC_OP_ONLY_EVENT) ? HC_EV_JOIN : HC_EV_ENQUEUE;
    hc_handle *h = hc_handle_new(kind, place->set, a->n, ndims, name, name_len, nrows);
    if (!h)
        return NULL;
    h->request.operation = a->operation;
    h->request.wire = a->wire;
    h->request.calls = a->calls;
    h->request.flags = (uint8_t)((a->is_group ? HC_REQUEST_GROUP : 0) | (a->is_last ? HC_REQUEST_LAST : 0) |
                                 (a->is_derived ? HC_REQUEST_DERIVED : 0));
    if (has(a, HC_OP_ROOTED))
        h->request.root = a->root;
    if (has(a, HC_OP_REDUCES)) {
        h->request.reduction = a->reduction;
        h->request.prescale = a->prescale;
        h->request.postscale = a->postscale;
    }
    if (a->n)
        h->request.memory = (uint8_t)a->operands[0].memory;
    int64_t *dims = h->dims;
    for (uint32_t i = 0; i < a->n; i++)
        dims = put_array(a, place, h, i, dims);
    if (nrows)
        put_rows(a, place, h);
    return h;
}

/* The facts about this rank's rows that other ranks do not know. */
static void put_shortcut_rows(const hc_arguments *a, const hc_place *place, const hc_order *order,
                              hc_shortcut_call *call) {
    const hc_operand *in = &a->operands[0], *out = in + 1;
    int gives = hc_arguments_gives(a, place);
    int64_t rows = gives ? in->dims[0] : 0;
    call->row = hc_operand_row(in);
    call->bytes = gives ? (size_t)in->bytes : 0;
    call->is_large = gives ? call->bytes > hc_order_most(order)
                           : (uint8_t)atomic_load_explicit(&order->many, memory_order_relaxed);
    if (call->is_large)
        return;
    call->own.rows = (int32_t)rows;
    if (has(a, HC_OP_ROWS_DIFFER))
        call->agreed.dims[0] = 0;
    if (has(a, HC_OP_RESULT_ALLOCATED) && call->out)
        call->own.room = out->dims[0] < INT32_MAX ? (int32_t)out->dims[0] : INT32_MAX;
    for (int32_t rank = 0; has(a, HC_OP_COUNTS) && gives && rank < place->size; rank++)
        call->counts[rank] = (int32_t)(a->splits ? a->splits[rank] : hc_share(rows, place->size, rank));
}

/* 0: its array needs a request: the dtype, the shape, or, where all ranks must have as many, the bytes. */
static int array_shortens(const hc_arguments *a, size_t most) {
    const hc_operand *in = &a->operands[0];
    if (in->ndim > HC_SHORTCUT_DIMS || in->type || in->memory != HC_MEMORY_HOST)
        return 0;
    if (has(a, HC_OP_ROWS_DIFFER))
        return hc_operand_row(in) > 0;
    return in->count && (size_t)in->bytes <= most;
}

/* Members are written one by one: gcc clears a struct of this size by `rep stos`, which takes as long as the rest. */
int hc_arguments_shortcut(const hc_arguments *a, const hc_place *place, const hc_order *order, hc_shortcut_call *call) {
    static const hc_operand none[2];
    const hc_operand *in = a->n ? a->operands : none, *out = in + 1;
    int reduces = has(a, HC_OP_REDUCES);
    if (has(a, HC_OP_ONLY_EVENT) || a->is_group || a->is_last || a->wire != HC_WIRE_SAME ||
        a->reduction == HC_REDUCTION_COUNT || (a->n && !array_shortens(a, hc_order_most(order))) ||
        (place->size > HC_SHORTCUT_RANKS && hc_arguments_by_rows(a)))
        return 0;
    call->agreed.operation = a->operation;
    call->agreed.reduction = reduces ? a->reduction : 0;
    call->agreed.dtype = (uint8_t)in->dtype;
    call->agreed.ndim = (uint8_t)in->ndim;
    call->agreed.root = has(a, HC_OP_ROOTED) ? a->root : -1;
    call->agreed.prescale = reduces ? a->prescale : 1;
    call->agreed.postscale = reduces ? a->postscale : 1;
    for (int d = 0; d < HC_SHORTCUT_DIMS; d++)
        call->agreed.dims[d] = d < in->ndim ? in->dims[d] : 0;
    call->own = (hc_shortcut_rows){.rows = 1, .room = -1};
    call->rank = place->rank;
    call->size = place->size;
    call->traits = a->traits;
    call->is_large = call->is_request = 0;
    call->shown = a->operation;
    call->votes = NULL;
    call->in = in->data;
    call->out = hc_arguments_gets(a, place) ? out->data : NULL;
    call->count = call->row = in->count;
    call->bytes = (size_t)in->bytes;
    if (hc_arguments_by_rows(a))
        put_shortcut_rows(a, place, order, call);
    return 1;
}
