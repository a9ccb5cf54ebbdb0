/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.c - the gate: calls of compiled programs become requests.
 *
 * The checks are those of the boundary (ext/cython/arguments.pxi), with the same words: here nothing of Python may run.
 */
#include "loop/gate.h"
#include "loop/gate_failures.h"
#include "loop/gate_sets.h"
#include "loop/waiting.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char nowhere[64]; /* an address for tensors without elements: NULL would mean "has joined" */

/* ---- what is wrong with a call ----------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static int refuse(const hc_gate_call *call, int status, char *text,
                                                        const char *form, ...) {
    va_list arguments;
    const char *operation = call->operation == HC_GATE_SEND      ? "send"
                            : call->operation == HC_GATE_RECEIVE ? "receive"
                                                                 : hc_operation_name(call->operation);
    int shown = call->name_len > 200 ? 200 : (int)call->name_len;
    int used = snprintf(text, HC_GATE_TEXT, "%s%s%.*s%s: ", operation, shown ? " '" : "", shown,
                        shown ? call->name : "", shown ? "'" : "");
    va_start(arguments, form);
    vsnprintf(text + used, HC_GATE_TEXT - (size_t)used, form, arguments);
    va_end(arguments);
    return status;
}

static int is_message(const hc_gate_call *call) {
    return call->operation == HC_GATE_SEND || call->operation == HC_GATE_RECEIVE;
}

static int has(const hc_gate_call *call, int trait) {
    return hc_operation_has(call->operation, trait);
}

/* This rank's values are asked for. */
static int has_input(const hc_gate_call *call, const hc_gate_place *place) {
    return !(has(call, HC_OP_ROOTED) && has(call, HC_OP_COUNTS) && call->root != place->rank);
}

static int has_result(const hc_gate_call *call, const hc_gate_place *place) {
    return !(has(call, HC_OP_TO_ROOT) && call->root != place->rank);
}

static int check_kind(const hc_gate_call *call, const hc_gate_place *place, char *text) {
    if (call->size < sizeof *call)
        return refuse(call, HC_INVALID, text, "the caller was built for another version of hpccoll");
    if (!is_message(call) && call->operation >= HC_OPERATION_COUNT)
        return refuse(call, HC_INVALID, text, "there is no operation %d", call->operation);
    int least = call->operation == HC_GATE_RECEIVE ? -1 : 0;
    if ((is_message(call) || has(call, HC_OP_ROOTED)) && (call->root < least || call->root >= place->size))
        return refuse(call, HC_INVALID, text, "there is no rank %d: the ranks are 0 to %d", call->root,
                      place->size - 1);
    if (!is_message(call) && !has(call, HC_OP_ONLY_EVENT) && (!call->name_len || call->name_len > HC_MAX_NAME))
        return refuse(call, HC_INVALID, text, "a name has 1 to %d bytes, this one %zu", HC_MAX_NAME, call->name_len);
    uint32_t most = is_message(call) ? 1 : has(call, HC_OP_NO_TENSORS) ? 0 : call->group ? UINT32_MAX : 1;
    if (call->ntensors > most || (most && !call->ntensors) || (call->group && !has(call, HC_OP_FUSES)))
        return refuse(call, HC_INVALID, text, "not of %u tensors%s", call->ntensors, call->group ? " as a group" : "");
    return HC_OK;
}

static int check_reduction(const hc_gate_call *call, int dtype, char *text) {
    int scaled = call->prescale != 1.0 || call->postscale != 1.0;
    if (call->reduction >= HC_REDUCTION_COUNT || !hc_reduction_defined(call->reduction, dtype))
        return refuse(call, HC_UNSUPPORTED, text, "%s of %s is not defined", hc_reduction_name(call->reduction),
                      hc_dtype_name(dtype));
    if (has(call, HC_OP_PREFIX) && call->reduction == HC_AVERAGE)
        return refuse(call, HC_UNSUPPORTED, text, "AVERAGE is not defined: use SUM and divide");
    if (scaled && call->reduction != HC_SUM && call->reduction != HC_AVERAGE)
        return refuse(call, HC_UNSUPPORTED, text, "prescale and postscale go with SUM and AVERAGE, not %s",
                      hc_reduction_name(call->reduction));
    if (scaled && dtype < HC_FLOAT16)
        return refuse(call, HC_UNSUPPORTED, text, "prescale and postscale are not defined for %s",
                      hc_dtype_name(dtype));
    if (call->wire != HC_WIRE_SAME && dtype != HC_FLOAT32 && dtype != HC_FLOAT64 && dtype != call->wire)
        return refuse(call, HC_UNSUPPORTED, text, "compression is for float32 and float64, not %s",
                      hc_dtype_name(dtype));
    return HC_OK;
}

/* Elements of a row, whose length along the first dimension is given aside. */
static int64_t row_of(const hc_gate_tensor *tensor) {
    return tensor->ndim ? hc_elements(tensor->dims + 1, tensor->ndim - 1u) : 1;
}

static int check_tensor(const hc_gate_call *call, const hc_gate_tensor *tensor, char *text) {
    if (tensor->dtype >= HC_DTYPE_COUNT || tensor->ndim > HC_MAX_DIMS)
        return refuse(call, HC_UNSUPPORTED, text, "no tensor of dtype %d and %d dimensions", tensor->dtype,
                      tensor->ndim);
    if (hc_elements(tensor->dims, tensor->ndim) < 0 ||
        hc_elements((int64_t[2]){tensor->out ? tensor->out_rows : 0, row_of(tensor)}, 2) < 0)
        return refuse(call, HC_INVALID, text, "a dimension, or the rows of out, is negative or too large");
    int by_rows = !is_message(call) && !has(call, HC_OP_ELEMENTWISE) &&
                  (has(call, HC_OP_ROWS_DIFFER) || has(call, HC_OP_REDUCES));
    if (by_rows && !tensor->ndim)
        return refuse(call, HC_INVALID, text, "needs at least one dimension, the tensor has none");
    return is_message(call) || !has(call, HC_OP_REDUCES) ? HC_OK : check_reduction(call, tensor->dtype, text);
}

static int check_splits(const hc_gate_call *call, const hc_gate_place *place, char *text) {
    int64_t rows = call->tensors[0].dims[0], sum = 0;
    if (!has_input(call, place))
        return HC_OK;
    if (!call->splits && !has(call, HC_OP_ROOTED) && rows % place->size)
        return refuse(call, HC_INVALID, text, "without splits: %lld rows are not divisible by %d ranks",
                      (long long)rows, place->size);
    if (!call->splits)
        return HC_OK;
    for (uint32_t i = 0; i < call->nsplits && sum >= 0; i++)
        sum = call->splits[i] < 0 || call->splits[i] > rows - sum ? -1 : sum + call->splits[i];
    if ((int64_t)call->nsplits != place->size || sum != rows)
        return refuse(call, HC_INVALID, text, "splits are not %d counts (one per rank) with the sum %lld (the rows)",
                      place->size, (long long)rows);
    return HC_OK;
}

static int check(const hc_gate_call *call, const hc_gate_place *place, char *text) {
    int status = check_kind(call, place, text);
    for (uint32_t i = 0; status == HC_OK && i < call->ntensors; i++)
        status = check_tensor(call, &call->tensors[i], text);
    if (status == HC_OK && !is_message(call) && has(call, HC_OP_COUNTS))
        status = check_splits(call, place, text);
    return status;
}

/* ---- a call becomes a handle ------------------------------------------------------------------------- */

/* What must be known when it is done. */
typedef struct begun {
    void (*done)(void *, hc_gate_result *);
    void *context;
    int32_t *members; /* of a receive: those of the set */
    int32_t size;
} begun;

/* Tensor `at` of the request; returns where the next one's dims go. */
static int64_t *put_tensor(hc_handle *handle, const hc_gate_call *call, const hc_gate_place *place, uint32_t at,
                           int64_t *dims) {
    const hc_gate_tensor *tensor = &call->tensors[at];
    hc_piece *piece = &handle->pieces[at];
    int64_t size = (int64_t)hc_dtype_size(tensor->dtype), elements = hc_elements(tensor->dims, tensor->ndim);
    if (tensor->ndim)
        memcpy(dims, tensor->dims, tensor->ndim * sizeof *dims);
    if (!has_input(call, place) && tensor->ndim)
        dims[0] = elements = 0;
    handle->tensors[at] = (hc_tensor){.dtype = tensor->dtype, .ndim = tensor->ndim, .dims = dims};
    piece->in = elements ? tensor->in : nowhere;
    piece->count = elements;
    piece->row = has(call, HC_OP_ELEMENTWISE) || !tensor->ndim ? 1 : row_of(tensor);
    piece->rows = tensor->ndim ? dims[0] : 1;
    if (!has_result(call, place))
        return dims + tensor->ndim;
    if (!has(call, HC_OP_RESULT_ALLOCATED)) {
        int64_t share = hc_share(piece->rows, place->size, place->rank);
        int is_share = !has(call, HC_OP_ELEMENTWISE) && has(call, HC_OP_REDUCES);
        piece->out = elements && tensor->out ? tensor->out : nowhere;
        piece->out_capacity = (is_share ? share * piece->row : elements) * size;
    } else if (tensor->out) {
        piece->out = tensor->out;
        piece->out_rows = tensor->out_rows;
        piece->out_capacity = tensor->out_rows * piece->row * size;
    }
    return dims + tensor->ndim;
}

static void put_rows(hc_handle *handle, const hc_gate_call *call, const hc_gate_place *place) {
    hc_piece *piece = &handle->pieces[0];
    int even = has(call, HC_OP_COUNTS) && !has(call, HC_OP_ROOTED);
    if (has(call, HC_OP_COUNTS) && has_input(call, place) && (call->splits || even)) {
        for (int32_t r = 0; r < place->size; r++)
            handle->rows[r] = call->splits ? call->splits[r] : piece->rows / place->size;
        piece->send_rows = handle->rows;
    }
    if (!(has(call, HC_OP_ROOTED) && has(call, HC_OP_COUNTS)))
        piece->recv_rows = handle->rows + place->size;
}

static hc_handle *new_request(const hc_gate_call *call, const hc_gate_place *place) {
    uint32_t ndims = 0, nrows = has(call, HC_OP_RESULT_ALLOCATED) ? 2 * (uint32_t)place->size : 0;
    int kind = has(call, HC_OP_ONLY_EVENT) ? HC_EV_JOIN : HC_EV_ENQUEUE;
    for (uint32_t i = 0; i < call->ntensors; i++)
        ndims += call->tensors[i].ndim;
    hc_handle *handle = hc_handle_new(kind, place->set, call->ntensors, ndims, call->name,
                                      call->name ? call->name_len : 0, nrows);
    if (!handle)
        return NULL;
    handle->request.operation = call->operation;
    handle->request.reduction = has(call, HC_OP_REDUCES) ? call->reduction : HC_SUM;
    handle->request.root = has(call, HC_OP_ROOTED) ? call->root : -1;
    if (has(call, HC_OP_REDUCES)) {
        handle->request.prescale = call->prescale;
        handle->request.postscale = call->postscale;
    }
    handle->request.calls = call->calls;
    if (call->ntensors && call->wire != call->tensors[0].dtype)
        handle->request.wire = call->wire;
    handle->request.flags = call->group ? HC_REQUEST_GROUP : 0;
    int64_t *dims = handle->dims;
    for (uint32_t i = 0; i < call->ntensors; i++)
        dims = put_tensor(handle, call, place, i, dims);
    if (nrows)
        put_rows(handle, call, place);
    return handle;
}

static hc_handle *new_message(const hc_gate_call *call, const hc_gate_place *place) {
    const hc_gate_tensor *tensor = call->tensors;
    int64_t bytes = hc_elements(tensor->dims, tensor->ndim) * (int64_t)hc_dtype_size(tensor->dtype);
    int receives = call->operation == HC_GATE_RECEIVE;
    const void *data = !bytes ? nowhere : receives ? tensor->out : tensor->in;
    hc_p2p_op op = {.receives = (uint8_t)receives,
                    .peer = call->root < 0 ? HC_ANY_PEER : place->members[call->root],
                    .tag = call->tag,
                    .bytes = (uint64_t)bytes};
    memcpy(&op.data, &data, sizeof op.data); /* a send only reads it */
    hc_p2p_name_type(&op, tensor->dtype, NULL);
    return hc_handle_of_p2p(place->set, &op, HC_MEMORY_HOST);
}

/* ---- when it is done --------------------------------------------------------------------------------- */

static void describe_failure(const hc_handle *handle, int status, const char *why, char *room) {
    const hc_p2p_op *op = handle->op;
    int shown = handle->request.name_len > 200 ? 200 : (int)handle->request.name_len;
    if (status == HC_RESULT_SIZE && op)
        snprintf(room, HC_GATE_TEXT, "a message of %llu bytes came for a receive of %llu bytes",
                 (unsigned long long)op->received, (unsigned long long)op->bytes);
    else if (why)
        snprintf(room, HC_GATE_TEXT, "%s '%.*s': %s", hc_operation_name(handle->request.operation), shown,
                 handle->request.name, why);
    else
        snprintf(room, HC_GATE_TEXT, "%s", handle->text ? handle->text : hc_status_text(status));
}

static int32_t index_of(const begun *b, int32_t member) {
    int32_t i = b->size - 1;
    while (i >= 0 && b->members[i] != member)
        i--;
    return i;
}

/* All ranks get this error, and their World goes on. */
static int disagreed(const hc_handle *handle, int status) {
    return !handle->op && (status == HC_MISMATCH || status == HC_RESULT_SIZE || status == HC_ROOT_JOINED);
}

static void finished(hc_handle *handle, void *context) {
    begun *b = context;
    char room[HC_GATE_TEXT];
    hc_piece *piece = handle->request.ntensors ? &handle->pieces[0] : NULL;
    hc_gate_result result = {.status = handle->status, .text = "", .value = handle->value};
    if (result.status == HC_OK && piece && handle->rows)
        result.status = piece->status;
    if (result.status < 0) {
        describe_failure(handle, result.status, piece ? piece->why : NULL, room);
        result.text = room;
    } else if (b->members) {
        result.value = index_of(b, handle->op->peer);
    } else if (piece && handle->rows) {
        result.rows = piece->recv_rows;
        result.out = piece->out_owned ? piece->out : NULL;
        result.out_rows = piece->out_rows;
    }
    hc__gate_ended();
    if (!disagreed(handle, result.status) || !hc__gate_fail_later(b->done, b->context, &result))
        b->done(b->context, &result);
    if (piece && result.keep)
        piece->out_owned = 0;
    free(b->members);
    free(b);
}

static begun *new_begun(const hc_gate_call *call, const hc_gate_place *place) {
    begun *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    *b = (begun){.done = call->done, .context = call->context, .size = place->size};
    if (call->operation != HC_GATE_RECEIVE)
        return b;
    size_t bytes = (size_t)place->size * sizeof *b->members;
    b->members = malloc(bytes);
    if (!b->members) {
        free(b);
        return NULL;
    }
    memcpy(b->members, place->members, bytes);
    return b;
}

/* The ranks of the set that make this call hear that this one does not. */
static int tell_refusal(const hc_gate_call *call, const hc_gate_place *place, int status, const char *text) {
    if (call->size < sizeof *call || is_message(call) || call->operation >= HC_OPERATION_COUNT ||
        has(call, HC_OP_ONLY_EVENT) || !call->name_len)
        return status;
    hc_loop_refuse(
        place->loop, place->set,
        &(hc_request){
            .name = call->name, .name_len = (uint32_t)call->name_len, .operation = call->operation, .why = text});
    return status;
}

static int begin_in(const hc_gate_call *call, const hc_gate_place *place, char *text) {
    int status = check(call, place, text);
    if (status < 0)
        return tell_refusal(call, place, status, text);
    hc_handle *handle = is_message(call) ? new_message(call, place) : new_request(call, place);
    begun *b = handle ? new_begun(call, place) : NULL;
    if (!b) {
        hc_handle_release(handle);
        return refuse(call, HC_NO_MEMORY, text, "no memory for a request; nothing was sent");
    }
    handle->on_done = finished;
    handle->context = b;
    hc__gate_began();
    /* Nothing else may be in flight: one float in a compiled program took 2.6 ms without this, and 50 us with it. */
    hc_loop_begin(place->loop, handle, HC__DRIVER_NS);
    hc_handle_release(handle);
    return HC_OK;
}

static int begin(const hc_gate_call *call, char text[HC_GATE_TEXT]) {
    const hc_gate_place *place;
    int status = hc__gate_enter(call->set, &place, text);
    if (status < 0)
        return status;
    status = begin_in(call, place, text);
    hc__gate_leave(place);
    return status;
}

static int facts(uint64_t set, int32_t *rank, int32_t *size, char text[HC_GATE_TEXT]) {
    const hc_gate_place *place;
    int status = hc__gate_enter(set, &place, text);
    if (status < 0)
        return status;
    *rank = place->rank;
    *size = place->size;
    hc__gate_leave(place);
    return HC_OK;
}

const hc_gate hc_the_gate = {.version = HC_GATE_VERSION,
                             .size = sizeof(hc_gate),
                             .begin = begin,
                             .free_result = hc_result_free,
                             .facts = facts,
                             .status_exception = hc_status_exception};
