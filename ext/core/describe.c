/* SPDX-License-Identifier: Apache-2.0
 *
 * describe.c - describes requests in texts, and finds the first difference between two.
 */
#include "core/describe.h"

#include "core/request.h"
#include "core/text.h"

#define SHOWN_NAME 160
#define SHOWN_DIMS 8

static void put_subject(hc__text *text, const char *what, const hc_request *request) {
    uint32_t n = request->name_len;
    if (n > SHOWN_NAME)
        for (n = SHOWN_NAME; n > 0 && ((uint8_t)request->name[n] & 0xc0) == 0x80;)
            n--; /* not inside a character of UTF-8 */
    hc__put(text, what);
    hc__put(text, " '");
    hc__put_some(text, request->name, n);
    hc__put(text, n < request->name_len ? "...'" : "'");
}

void hc__describe(hc__text *text, const hc_request *request) {
    put_subject(text, hc_operation_name(request->operation), request);
}

void hc__describe_root_joined(hc__text *text, const hc_request *request) {
    hc__describe(text, request);
    hc__put(text, ": its root, rank ");
    hc__put_int(text, request->root);
    hc__put(text, ", has joined");
}

/* The order in which two requests are compared: an earlier difference explains those that follow from it. */
enum difference {
    D_OPERATION,
    D_CALLS,
    D_DERIVED,
    D_GROUP,
    D_COUNT,
    D_DTYPE,
    D_TYPE,
    D_SHAPE,
    D_REDUCTION,
    D_ROOT,
    D_PRESCALE,
    D_POSTSCALE,
    D_MEMORY,
    D_WIRE,
    D_NONE
};

static const char *difference_name(enum difference d) {
    switch (d) {
    case D_OPERATION:
        return "operation";
    case D_CALLS:
        return "number of calls";
    case D_DERIVED:
        return "place of the derivatives";
    case D_GROUP:
        return "grouping";
    case D_COUNT:
        return "number of tensors";
    case D_DTYPE:
        return "dtype";
    case D_TYPE:
        return "type";
    case D_SHAPE:
        return "shape";
    case D_REDUCTION:
        return "reduction";
    case D_ROOT:
        return "root";
    case D_PRESCALE:
        return "prescale";
    case D_POSTSCALE:
        return "postscale";
    case D_MEMORY:
        return "memory";
    case D_WIRE:
        return "compression";
    default:
        return "signature";
    }
}

static int types_differ(const hc_tensor *a, const hc_tensor *b) {
    return a->type_len != b->type_len || (a->type_len && memcmp(a->type, b->type, a->type_len) != 0);
}

static int shapes_differ(const hc_tensor *a, const hc_tensor *b) {
    if (a->ndim != b->ndim)
        return 1;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->dims[d] != b->dims[d])
            return 1;
    return 0;
}

/* Returns the first difference, and sets `tensor` to its tensor. Tensors are compared only if their numbers are
 * equal. */
static enum difference compare(const hc_request *a, const hc_request *b, uint32_t *tensor) {
    if (a->operation != b->operation)
        return D_OPERATION;
    if (a->calls != b->calls)
        return D_CALLS;
    if ((a->flags ^ b->flags) & HC_REQUEST_DERIVED)
        return D_DERIVED;
    if (hc__is_group(a) != hc__is_group(b) || a->flags != b->flags)
        return D_GROUP;
    if (a->ntensors != b->ntensors)
        return D_COUNT;
    for (*tensor = 0; *tensor < a->ntensors; ++*tensor) {
        if (a->tensors[*tensor].dtype != b->tensors[*tensor].dtype)
            return D_DTYPE;
        if (types_differ(&a->tensors[*tensor], &b->tensors[*tensor]))
            return D_TYPE;
        if (shapes_differ(&a->tensors[*tensor], &b->tensors[*tensor]))
            return D_SHAPE;
    }
    *tensor = 0;
    if (a->reduction != b->reduction)
        return D_REDUCTION;
    if (a->root != b->root)
        return D_ROOT;
    if (memcmp(&a->prescale, &b->prescale, sizeof a->prescale))
        return D_PRESCALE;
    if (memcmp(&a->postscale, &b->postscale, sizeof a->postscale))
        return D_POSTSCALE;
    if (a->memory != b->memory)
        return D_MEMORY;
    return a->wire != b->wire ? D_WIRE : D_NONE;
}

static void put_tensor(hc__text *text, const hc_tensor *tensor, int unequal_rows) {
    hc__put(text, hc_dtype_name(tensor->dtype));
    hc__put(text, "[");
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (d)
            hc__put(text, ",");
        if (d == SHOWN_DIMS) {
            hc__put(text, "...");
            break;
        }
        if (d == 0 && unequal_rows)
            hc__put(text, "*");
        else
            hc__put_int(text, tensor->dims[d]);
    }
    hc__put(text, "]");
    if (tensor->type_len) {
        hc__put(text, " of ");
        hc__put_some(text, tensor->type, tensor->type_len);
    }
}

static void put_tensors(hc__text *text, const hc_request *request, uint32_t tensor) {
    if (hc__is_group(request)) {
        hc__put(text, "a group of ");
        hc__put_int(text, request->ntensors);
        hc__put(text, request->ntensors == 1 ? " tensor, number " : " tensors, number ");
        hc__put_int(text, tensor);
        hc__put(text, " ");
    }
    if (tensor < request->ntensors)
        put_tensor(text, &request->tensors[tensor], hc_operation_has(request->operation, HC_OP_ROWS_DIFFER));
}

static void put_extra(hc__text *text, const hc_request *request, enum difference d) {
    switch (d) {
    case D_CALLS:
        hc__put(text, request->calls ? " as one of " : " as the only call");
        if (request->calls)
            hc__put_int(text, request->calls);
        hc__put(text, request->calls ? " calls of its name in a program" : " of its name in a program");
        break;
    case D_DERIVED:
        hc__put(text, request->flags & HC_REQUEST_DERIVED ? " and its derivatives in the same program"
                                                          : " and no derivatives of it in the same program");
        break;
    case D_PRESCALE:
        hc__put(text, " prescale ");
        hc__put_real(text, request->prescale);
        break;
    case D_POSTSCALE:
        hc__put(text, " postscale ");
        hc__put_real(text, request->postscale);
        break;
    case D_MEMORY:
        hc__put(text, request->memory == HC_MEMORY_HOST ? " host memory" : " device memory");
        break;
    case D_WIRE:
        hc__put(text, request->wire == HC_WIRE_SAME ? " no compression" : " compressed to ");
        hc__put(text, request->wire == HC_WIRE_SAME ? "" : hc_dtype_name(request->wire));
        break;
    default:
        break;
    }
}

static void put_side(hc__text *text, int32_t rank, const hc_request *request, enum difference d, uint32_t tensor) {
    hc__put(text, "rank ");
    hc__put_int(text, rank);
    hc__put(text, " has ");
    if (d == D_OPERATION) {
        hc__put(text, hc_operation_name(request->operation));
        hc__put(text, request->ntensors ? " " : "");
    }
    put_tensors(text, request, tensor);
    if (hc_operation_has(request->operation, HC_OP_REDUCES)) {
        hc__put(text, " ");
        hc__put(text, hc_reduction_name(request->reduction));
    }
    if (request->root >= 0) {
        hc__put(text, " root ");
        hc__put_int(text, request->root);
    }
    put_extra(text, request, d);
}

/* Describes the refusal of the lowest rank; the text does not mention a mismatch of other ranks. */
static void describe_refusal(hc__text *text, int32_t rank, const hc_request *request) {
    hc__describe(text, request);
    hc__put(text, ": rank ");
    hc__put_int(text, rank);
    hc__put(text, " has refused this call: ");
    hc__put_some(text, request->why, request->why_len);
}

void hc__describe_mismatch(hc__text *text, int32_t rank_a, const hc_request *a, int32_t rank_b, const hc_request *b) {
    uint32_t tensor = 0;
    if (hc__is_refusal(a) || hc__is_refusal(b)) {
        describe_refusal(text, hc__is_refusal(a) ? rank_a : rank_b, hc__is_refusal(a) ? a : b);
        return;
    }
    enum difference d = compare(a, b, &tensor);
    put_subject(text, d == D_OPERATION ? "request" : hc_operation_name(a->operation), a);
    hc__put(text, ": ");
    put_side(text, rank_a, a, d, tensor);
    hc__put(text, ", ");
    put_side(text, rank_b, b, d, tensor);
    hc__put(text, " (");
    hc__put(text, difference_name(d));
    hc__put(text, " differs)");
}
