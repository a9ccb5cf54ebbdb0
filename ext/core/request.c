/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c - signatures: the part of a request that all ranks must agree on, as bytes.
 *
 * Two requests agree exactly if their bytes are equal, so all comparisons are memcmp, and messages carry these bytes.
 * One function checks the bytes, from a caller or from a message.
 */
#include "core/request.h"

#include "core/memory.h"
#include "core/state.h"
#include "core/wire.h"

#define HAS_TYPE 0x80                 /* beside a dtype: the length and the text of a type follow */
#define FIXED (4 + 5 + 4 + 8 + 8 + 4) /* all but the name, the tensors, and the text of a refusal */

int hc__unnamed(const void *name, size_t bytes) {
    size_t prefix = sizeof HC_ORDER_PREFIX - 1;
    if (bytes <= prefix || memcmp(name, HC_ORDER_PREFIX, prefix) != 0)
        return HC__NAMED;
    return ((const char *)name)[prefix] == '#' ? HC__ORDERED : HC__NUMBERED;
}

/* ---- request to bytes ---------------------------------------------------------------------------- */

/* Checks the facts that the loop over the tensors relies on. Returns an error text, or NULL. */
static const char *refuse_shape(const hc_request *request, size_t *bytes) {
    if (!request->name || request->name_len == 0)
        return "a request must have a name";
    if (request->name_len > HC_MAX_NAME)
        return "the name is too long";
    if (request->ntensors && !request->tensors)
        return "the tensors are missing";
    size_t total = FIXED + request->name_len + (hc__is_refusal(request) ? 4 + request->why_len : 0) +
                   (request->calls > 1 ? 4 : 0);
    for (uint32_t i = 0; i < request->ntensors; i++) {
        const hc_tensor *tensor = &request->tensors[i];
        if (tensor->ndim > HC_MAX_DIMS)
            return "a tensor has too many dimensions";
        if (tensor->type_len > HC_MAX_TYPE)
            return "the name of a tensor's type is too long";
        if (tensor->ndim && !tensor->dims)
            return "the dimensions of a tensor are missing";
        total += 2u + (tensor->type_len ? 1u + tensor->type_len : 0) + 8u * (size_t)tensor->ndim;
        if (total > HC__MAX_SIGNATURE)
            return "the request has too many tensors";
    }
    *bytes = total;
    return NULL;
}

/* Checks this rank's rows, which are not in the signature. Returns an error text, or NULL. */
static const char *refuse_rows(const hc_request *request) {
    for (uint32_t i = 0; i < request->ntensors; i++) {
        const hc_tensor *tensor = &request->tensors[i];
        if (tensor->ndim == 0)
            return "a scalar has no rows to gather or exchange";
        if (hc_elements(tensor->dims, tensor->ndim) < 0)
            return "a dimension is negative or a tensor is too large";
    }
    return NULL;
}

static int make_room(hc_engine *e, size_t bytes) {
    if (bytes <= e->encoded_room)
        return 1;
    size_t room = e->encoded_room ? e->encoded_room : 256;
    while (room < bytes)
        room *= 2;
    uint8_t *more = hc__resize(e, e->encoded, e->encoded_room, room);
    if (!more)
        return 0;
    e->encoded = more;
    e->encoded_room = room;
    return 1;
}

static uint8_t *write_real(uint8_t *p, double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return hc__write64(p, bits);
}

static uint8_t *write_tensors(uint8_t *p, const hc_request *request) {
    int unequal = hc_operation_has(request->operation, HC_OP_ROWS_DIFFER);
    for (uint32_t i = 0; i < request->ntensors; i++) {
        const hc_tensor *tensor = &request->tensors[i];
        p = hc__write8(p, tensor->dtype | (tensor->type_len ? HAS_TYPE : 0));
        p = hc__write8(p, tensor->ndim);
        if (tensor->type_len)
            p = hc__write8(p, tensor->type_len);
        p = hc__write_bytes(p, tensor->type, tensor->type_len);
        for (uint32_t d = 0; d < tensor->ndim; d++)
            p = hc__write64(p, unequal && d == 0 ? 0 : (uint64_t)tensor->dims[d]);
    }
    return p;
}

const char *hc__sig_encode(hc_engine *e, const hc_request *request, hc__sig_view *view) {
    size_t bytes;
    const char *refused = refuse_shape(request, &bytes);
    if (!refused && hc_operation_has(request->operation, HC_OP_ROWS_DIFFER))
        refused = refuse_rows(request);
    if (refused)
        return refused;
    if (!make_room(e, bytes))
        return "out of memory";
    uint8_t *p = hc__write32(e->encoded, request->name_len);
    p = hc__write_bytes(p, request->name, request->name_len);
    uint8_t flags = request->flags | (request->calls > 1 ? HC_REQUEST_COUNTED : 0);
    const uint8_t codes[5] = {request->operation, request->reduction, request->memory, request->wire, flags};
    p = hc__write_bytes(p, codes, sizeof codes);
    p = hc__write32(p, (uint32_t)request->root);
    p = write_real(p, request->prescale);
    p = write_real(p, request->postscale);
    p = hc__write32(p, request->ntensors);
    p = write_tensors(p, request);
    if (request->calls > 1)
        p = hc__write32(p, request->calls);
    if (hc__is_refusal(request)) {
        p = hc__write32(p, request->why_len);
        hc__write_bytes(p, request->why, request->why_len);
    }
    *view = (hc__sig_view){.bytes = e->encoded,
                           .nbytes = (uint32_t)bytes,
                           .name = e->encoded + 4,
                           .name_len = request->name_len,
                           .operation = request->operation,
                           .root = request->root};
    return NULL;
}

/* ---- checking bytes ------------------------------------------------------------------------------ */

/* Reads a tensor without its dimensions, which the caller reads into `dims`. */
static hc_tensor read_tensor(hc__reader *r) {
    uint8_t dtype = hc__read8(r), ndim = hc__read8(r);
    uint8_t type_len = dtype & HAS_TYPE ? hc__read8(r) : 0;
    const char *type = (const char *)hc__read_bytes(r, type_len);
    return (hc_tensor){.dtype = dtype & ~HAS_TYPE, .ndim = ndim, .type_len = type_len, .type = type};
}

static const char *check_tensor(hc__reader *r, int operation, hc__sig_view *view) {
    const uint8_t *at = r->at;
    hc_tensor tensor = read_tensor(r);
    uint32_t ndim = tensor.ndim;
    uint64_t most = HC_MAX_ELEMENTS;
    int unequal = hc_operation_has(operation, HC_OP_ROWS_DIFFER);
    if (tensor.dtype >= HC_DTYPE_COUNT)
        return "unknown dtype";
    if (!r->bad && (*at & HAS_TYPE) && (tensor.type_len == 0 || tensor.type_len > HC_MAX_TYPE))
        return "the name of a tensor's type is empty or too long";
    if (ndim > HC_MAX_DIMS)
        return "a tensor has too many dimensions";
    if (unequal && ndim == 0)
        return "a scalar has no rows to gather or exchange";
    for (uint32_t d = 0; d < ndim; d++) {
        uint64_t dim = hc__read64(r);
        if (dim > most)
            return "a dimension is negative or a tensor is too large";
        if (dim > 1)
            most /= dim;
        if (d == 0 && dim && unequal)
            return "rows are not agreed";
    }
    view->ndims += ndim;
    return NULL;
}

static const char *check_codes(hc__reader *r, int32_t set_size, hc__sig_view *view) {
    int operation = hc__read8(r), reduction = hc__read8(r), memory = hc__read8(r), wire = hc__read8(r);
    int flags = hc__read8(r);
    int32_t root = (int32_t)hc__read32(r);
    hc__read64(r);
    hc__read64(r);
    if (operation >= HC_OPERATION_COUNT || hc_operation_has(operation, HC_OP_ONLY_EVENT))
        return "unknown operation";
    if (reduction >= HC_REDUCTION_COUNT)
        return "unknown reduction";
    if (memory >= HC_MEMORY_KINDS)
        return "unknown kind of memory";
    if (wire >= HC_DTYPE_COUNT && wire != HC_WIRE_SAME)
        return "unknown dtype of the compression";
    if (flags & ~(HC_REQUEST_GROUP | HC_REQUEST_LAST | HC_REQUEST_COUNTED | HC_REQUEST_DERIVED) &&
        flags != HC_REQUEST_REFUSED)
        return "unknown flags";
    view->is_refusal = flags == HC_REQUEST_REFUSED;
    view->is_counted = (flags & HC_REQUEST_COUNTED) != 0;
    int is_rooted = hc_operation_has(operation, HC_OP_ROOTED) && !view->is_refusal;
    if (is_rooted ? root < 0 || root >= set_size : root != -1)
        return is_rooted ? "the root is not a rank of the World" : "this operation has no root";
    view->operation = (uint8_t)operation;
    view->root = root;
    return NULL;
}

const char *hc__sig_check(const uint8_t *bytes, size_t nbytes, int32_t set_size, hc__sig_view *view) {
    hc__reader r = {.at = bytes, .end = bytes + nbytes};
    if (nbytes > HC__MAX_SIGNATURE)
        return "the request has too many tensors";
    *view = (hc__sig_view){.bytes = bytes, .nbytes = (uint32_t)nbytes};
    view->name_len = hc__read32(&r);
    view->name = hc__read_bytes(&r, view->name_len);
    if (!view->name || view->name_len == 0 || view->name_len > HC_MAX_NAME)
        return "the name is empty or too long";
    const char *wrong = check_codes(&r, set_size, view);
    if (wrong)
        return wrong;
    view->ntensors = hc__read32(&r);
    if ((view->ntensors == 0) != (view->is_refusal || hc_operation_has(view->operation, HC_OP_NO_TENSORS)))
        return view->ntensors ? "this operation has no tensors" : "the tensors are missing";
    for (uint32_t i = 0; i < view->ntensors && !r.bad; i++)
        if ((wrong = check_tensor(&r, view->operation, view)) && !r.bad)
            return wrong;
    if (view->is_counted && hc__read32(&r) < 2 && !r.bad)
        return "the number of calls is wrong";
    uint32_t why = view->is_refusal ? hc__read32(&r) : 0;
    if (why > HC__WHY_REFUSED)
        return "the words of a refusal are too long";
    hc__read_bytes(&r, why);
    return r.bad || r.at != r.end ? "the message is truncated" : NULL;
}

/* ---- bytes to request ---------------------------------------------------------------------------- */

static double read_real(hc__reader *r) {
    uint64_t bits = hc__read64(r);
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static void decode_tensors(hc__sig *sig, hc__reader *r, hc_tensor *tensors, int64_t *dims) {
    for (uint32_t i = 0; i < sig->request.ntensors; i++) {
        tensors[i] = read_tensor(r);
        tensors[i].dims = dims;
        int64_t bytes = (int64_t)hc_dtype_size(tensors[i].dtype);
        for (uint32_t d = 0; d < tensors[i].ndim; d++) {
            *dims = (int64_t)hc__read64(r);
            bytes *= *dims++;
        }
        sig->payload += (uint64_t)bytes;
    }
}

/* Never 0. Requests of one class are equal in every field that a batch stores once. */
static uint64_t fuse_class(const hc_request *request) {
    return 1ull << 63 | (uint64_t)request->operation << 56 | (uint64_t)request->reduction << 49 |
           (uint64_t)request->memory << 46 | (uint64_t)request->tensors->dtype << 40 | (uint64_t)request->wire << 32 |
           (uint32_t)request->root;
}

static void decode(hc__sig *sig, const hc__sig_view *view, hc_tensor *tensors, int64_t *dims) {
    hc__reader r = {.at = sig->bytes, .end = sig->bytes + sig->nbytes};
    hc_request *request = &sig->request;
    request->name_len = hc__read32(&r);
    request->name = (const char *)hc__read_bytes(&r, request->name_len);
    request->operation = hc__read8(&r);
    request->reduction = hc__read8(&r);
    request->memory = hc__read8(&r);
    request->wire = hc__read8(&r);
    request->flags = hc__read8(&r);
    request->root = (int32_t)hc__read32(&r);
    request->prescale = read_real(&r);
    request->postscale = read_real(&r);
    request->ntensors = hc__read32(&r);
    request->tensors = tensors;
    decode_tensors(sig, &r, tensors, dims);
    sig->unnamed = (uint8_t)hc__unnamed(request->name, request->name_len);
    request->calls = view->is_counted ? hc__read32(&r) : 0;
    if (view->is_refusal) {
        request->why_len = hc__read32(&r);
        request->why = (const char *)hc__read_bytes(&r, request->why_len);
    } else if (hc_operation_has(view->operation, HC_OP_FUSES) && !hc__is_group(request))
        sig->fuse_class = fuse_class(request);
}

hc__sig *hc__sig_new(hc_engine *e, const hc__sig_view *view, const uint64_t key[2]) {
    size_t tensors = sizeof(hc__sig), dims = tensors + view->ntensors * sizeof(hc_tensor);
    size_t bytes = dims + view->ndims * sizeof(int64_t), size = bytes + view->nbytes;
    uint8_t *block = hc__alloc(e, size);
    if (!block)
        return NULL;
    hc__sig *sig = (hc__sig *)(void *)block;
    memcpy(block + bytes, view->bytes, view->nbytes);
    sig->key[0] = key[0];
    sig->key[1] = key[1];
    sig->refs = 1;
    sig->nbytes = view->nbytes;
    sig->size = (uint32_t)size;
    sig->bytes = block + bytes;
    decode(sig, view, (hc_tensor *)(void *)(block + tensors), (int64_t *)(void *)(block + dims));
    return sig;
}

hc__sig *hc__sig_ref(hc__sig *sig) {
    sig->refs++;
    return sig;
}

void hc__sig_unref(hc_engine *e, hc__sig *sig) {
    if (sig && --sig->refs == 0) {
        sig->next = e->dead;
        e->dead = sig;
    }
}

void hc__sig_free_dead(hc_engine *e) {
    while (e->dead) {
        hc__sig *sig = e->dead;
        e->dead = sig->next;
        hc__free(e, sig, sig->size);
    }
}

int hc__sig_is(const hc__sig *sig, const uint8_t *bytes, uint32_t nbytes) {
    return sig->nbytes == nbytes && (sig->bytes == bytes || memcmp(sig->bytes, bytes, nbytes) == 0);
}
