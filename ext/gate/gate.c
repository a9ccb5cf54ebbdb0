/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.c - the gate: makes requests of calls of compiled programs. No Python code may run here.
 */
#include "gate/gate.h"
#include "gate/failures.h"
#include "gate/sets.h"
#include "loop/waiting.h"
#include "world/arguments.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char nowhere[64]; /* an address for messages without elements */

/* ---- checks ------------------------------------------------------------------------------------------ */

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

static int is_only_event(const hc_gate_call *call) {
    return hc_operation_has(call->operation, HC_OP_ONLY_EVENT);
}

static int check_tensor(const hc_gate_call *call, const hc_gate_tensor *tensor, char *text) {
    if (tensor->dtype >= HC_DTYPE_COUNT || tensor->ndim > HC_MAX_DIMS)
        return refuse(call, HC_UNSUPPORTED, text, "there are no arrays of dtype %d with %d dimensions", tensor->dtype,
                      tensor->ndim);
    return HC_OK;
}

/* Checks that must come before the arguments are read. */
static int check_call(const hc_gate_call *call, char *text) {
    if (call->size < sizeof *call)
        return refuse(call, HC_INVALID, text, "the caller was built for another version of hpccoll");
    if (!is_message(call) && call->operation >= HC_OPERATION_COUNT)
        return refuse(call, HC_INVALID, text, "there is no operation %d", call->operation);
    if (!is_message(call) && !is_only_event(call) && (!call->name_len || call->name_len > HC_MAX_NAME))
        return refuse(call, HC_INVALID, text, "a name has 1 to %d bytes, this one %zu", HC_MAX_NAME, call->name_len);
    int status = HC_OK;
    for (uint32_t i = 0; status == HC_OK && i < call->ntensors; i++)
        status = check_tensor(call, &call->tensors[i], text);
    return status;
}

static int check_message(const hc_gate_call *call, const hc_gate_place *place, char *text) {
    int least = call->operation == HC_GATE_RECEIVE ? -1 : 0;
    if (call->root < least || call->root >= place->size)
        return refuse(call, HC_INVALID, text, "there is no rank %d: the ranks are 0 to %d", call->root,
                      place->size - 1);
    if (call->ntensors != 1 || call->group)
        return refuse(call, HC_INVALID, text, "a message is one tensor");
    if (hc_elements(call->tensors[0].dims, call->tensors[0].ndim) < 0)
        return refuse(call, HC_INVALID, text, "the tensor has a negative or too large number of elements");
    return HC_OK;
}

/* ---- from a call to a handle ------------------------------------------------------------------------- */

/* State for the end of an operation. */
typedef struct begun {
    void (*done)(void *, hc_gate_result *);
    void *context;
    hc_loop *loop;
    int32_t *members; /* of the set, for a receive; else NULL */
    int32_t size;
} begun;

/* Reads a tensor into its input and its result. */
static void read_tensor(const hc_gate_tensor *tensor, hc_operand two[2]) {
    hc_operand *in = two, *out = two + 1;
    hc_operand_clear(in);
    in->data = (char *)(uintptr_t)tensor->in;
    in->dtype = tensor->dtype;
    in->ndim = tensor->ndim;
    if (tensor->ndim)
        memcpy(in->dims, tensor->dims, tensor->ndim * sizeof *tensor->dims);
    hc_operand_measure(in);
    hc_operand_clear(out);
    out->data = tensor->out;
    if (!tensor->out)
        return;
    out->dtype = in->dtype;
    out->ndim = 2;
    out->dims[0] = tensor->out_rows;
    out->dims[1] = hc_operand_row(in);
    hc_operand_measure(out);
}

static hc_arguments read_call(const hc_gate_call *call, hc_operand *operands) {
    for (uint32_t i = 0; i < call->ntensors; i++)
        read_tensor(&call->tensors[i], &operands[2 * i]);
    hc_arguments a = hc_arguments_of(call->operation);
    a.reduction = call->reduction == HC_REDUCTION_COUNT ? UINT8_MAX : call->reduction;
    a.wire = call->wire;
    a.is_group = call->group;
    a.is_fresh = 1; /* the framework guarantees it */
    a.root = call->root;
    a.prescale = call->prescale;
    a.postscale = call->postscale;
    a.n = call->ntensors;
    a.operands = operands;
    a.splits = call->splits;
    a.nsplits = call->nsplits;
    a.calls = call->calls;
    a.is_derived = call->derived != 0;
    a.words = HC_WORDS_HOROVOD;
    return a;
}

/* NULL: the call is refused, with a status and a text. */
static hc_handle *new_request(const hc_gate_call *call, const hc_gate_place *place, int *status, char *text) {
    char why[HC_WHY];
    hc_operand two[2], *operands = two;
    hc_handle *handle = NULL;
    const hc_place where = {.set = place->set, .rank = place->rank, .size = place->size};
    if (call->ntensors > 1)
        operands = malloc(2 * (size_t)call->ntensors * sizeof *operands);
    *status = HC_NO_MEMORY;
    if (operands) {
        hc_arguments arguments = read_call(call, operands);
        *status = hc_arguments_check(&arguments, &where, why);
        if (*status == HC_OK)
            handle = hc_arguments_request(&arguments, &where, call->name, call->name ? call->name_len : 0);
        else
            refuse(call, *status, text, "%s", why);
    }
    if (operands != two)
        free(operands);
    if (!handle && (!operands || *status == HC_OK))
        *status = refuse(call, HC_NO_MEMORY, text, "no memory for a request; nothing was sent");
    return handle;
}

static hc_handle *new_message(const hc_gate_call *call, const hc_gate_place *place, int *status, char *text) {
    const hc_gate_tensor *tensor = call->tensors;
    int64_t bytes = hc_elements(tensor->dims, tensor->ndim) * (int64_t)hc_dtype_size(tensor->dtype);
    int receives = call->operation == HC_GATE_RECEIVE;
    const void *data = !bytes ? nowhere : receives ? tensor->out : tensor->in;
    hc_p2p_op op = {.receives = (uint8_t)receives,
                    .flags = receives && call->any_tag ? HC_P2P_ANY_TAG : 0,
                    .peer = call->root < 0 ? HC_ANY_PEER : place->members[call->root],
                    .tag = call->tag,
                    .context = call->follows ? HC_P2P_FOLLOWS + call->follows : HC_P2P_USER,
                    .bytes = (uint64_t)bytes};
    memcpy(&op.data, &data, sizeof op.data); /* a send only reads it */
    hc_p2p_name_type(&op, tensor->dtype, NULL);
    hc_handle *handle = hc_handle_of_p2p(place->set, &op, HC_MEMORY_HOST);
    if (!handle)
        *status = refuse(call, HC_NO_MEMORY, text, "no memory for a message; nothing was sent");
    return handle;
}

/* ---- the end of an operation ------------------------------------------------------------------------- */

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

/* 1: all ranks get this error, and their World goes on. */
static int disagreed(const hc_handle *handle, int status) {
    return !handle->op && (status == HC_MISMATCH || status == HC_RESULT_SIZE || status == HC_ROOT_JOINED);
}

static void finished(hc_handle *handle, void *context) {
    begun *b = context;
    char room[HC_GATE_TEXT];
    hc_piece *piece = handle->request.ntensors ? &handle->pieces[0] : NULL;
    hc_gate_result result = {.status = handle->status,
                             .text = "",
                             .value = handle->value,
                             .number = handle->op ? handle->op->serial : handle->position};
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
    hc_loop_note_compiled(b->loop, handle);
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
    *b = (begun){.done = call->done, .context = call->context, .loop = place->loop, .size = place->size};
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

/* Tells the other ranks of the set, which make this call, that this rank refuses it. */
static int tell_refusal(const hc_gate_call *call, const hc_gate_place *place, int status, const char *text) {
    if (call->size < sizeof *call || is_message(call) || call->operation >= HC_OPERATION_COUNT || is_only_event(call) ||
        !call->name_len)
        return status;
    hc_loop_refuse(
        place->loop, place->set,
        &(hc_request){
            .name = call->name, .name_len = (uint32_t)call->name_len, .operation = call->operation, .why = text});
    return status;
}

/* Refuses a program that was compiled for another rank or number of ranks: its means, derivatives and shapes have
 * them. Compilers of functions make a new program, but the caller may have kept the old one. */
static int check_compiled(const hc_gate_call *call, const hc_gate_place *place, char *text) {
    const hc_gate_facts *was = &call->compiled;
    if (!was->size || (was->size == place->size && was->rank == place->rank))
        return HC_OK;
    return refuse(call, HC_INVALID, text,
                  "the program was compiled for rank %d of %d, and this process is rank %d of %d now: compile it anew",
                  was->rank, was->size, place->rank, place->size);
}

static int begin_in(const hc_gate_call *call, const hc_gate_place *place, char *text) {
    hc_handle *handle = NULL;
    int status = check_call(call, text);
    if (status == HC_OK)
        status = check_compiled(call, place, text);
    if (status == HC_OK && is_message(call))
        status = check_message(call, place, text);
    if (status == HC_OK)
        handle = is_message(call) ? new_message(call, place, &status, text) : new_request(call, place, &status, text);
    if (!handle)
        return tell_refusal(call, place, status, text);
    begun *b = new_begun(call, place);
    if (!b) {
        hc_handle_release(handle);
        return refuse(call, HC_NO_MEMORY, text, "no memory for a request; nothing was sent");
    }
    handle->on_done = finished;
    handle->context = b;
    hc__gate_began();
    /* If nothing else is in flight, this thread drives first: one float took 2.6 ms without this, and 50 us with it. */
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
