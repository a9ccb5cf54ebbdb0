/* SPDX-License-Identifier: Apache-2.0
 *
 * xla.c - makes a call of the gate for a custom call of XLA, and ends a future when it is done.
 *
 * XLA calls the handler in a thread that it needs for other work, so the handler returns a future at once. XLA keeps
 * the buffers until the future has ended. Buffers are read and written in place.
 */
#include "xla/xla.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const hc_gate *gate;

int hc_xla_connect(const hc_gate *table) {
    if (table->version != HC_GATE_VERSION || table->size < sizeof *table)
        return HC_UNSUPPORTED;
    gate = table;
    return HC_OK;
}

/* ---- attributes -------------------------------------------------------------------------------------- */

typedef struct options {
    int64_t operation, reduction, wire, group, root, set, tag, calls, trailing, tells, follows, derived;
    struct { /* of the set, as the program has them in it */
        int64_t rank, size;
    };
    struct { /* of a sendrecv */
        int64_t source, source_tag, back;
    };
    double prescale, postscale;
    hc_ffi_span name;
    hc_ffi_array splits, empty;
} options;

#define OPTION(name, type) {#name, sizeof #name - 1, offsetof(options, name), type, sizeof(((options *)0)->name)}
static const struct {
    const char *name;
    size_t length, offset;
    int type;
    size_t size;
} known[] = {OPTION(operation, HC_FFI_SCALAR), OPTION(reduction, HC_FFI_SCALAR), OPTION(wire, HC_FFI_SCALAR),
             OPTION(group, HC_FFI_SCALAR),     OPTION(root, HC_FFI_SCALAR),      OPTION(set, HC_FFI_SCALAR),
             OPTION(tag, HC_FFI_SCALAR),       OPTION(source, HC_FFI_SCALAR),    OPTION(source_tag, HC_FFI_SCALAR),
             OPTION(prescale, HC_FFI_SCALAR),  OPTION(postscale, HC_FFI_SCALAR), OPTION(name, HC_FFI_STRING),
             OPTION(splits, HC_FFI_ARRAY),     OPTION(empty, HC_FFI_ARRAY),      OPTION(calls, HC_FFI_SCALAR),
             OPTION(trailing, HC_FFI_SCALAR),  OPTION(tells, HC_FFI_SCALAR),     OPTION(follows, HC_FFI_SCALAR),
             OPTION(back, HC_FFI_SCALAR),      OPTION(derived, HC_FFI_SCALAR),   OPTION(rank, HC_FFI_SCALAR),
             OPTION(size, HC_FFI_SCALAR)};

static options read_options(const hc_ffi_attributes *attributes) {
    options all = {.prescale = 1.0, .postscale = 1.0};
    for (int64_t i = 0; i < attributes->count; i++)
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            const hc_ffi_span *name = attributes->names[i];
            if (attributes->types[i] != known[k].type || name->length != known[k].length ||
                memcmp(name->text, known[k].name, name->length) != 0)
                continue;
            const void *value = attributes->values[i];
            if (known[k].type == HC_FFI_SCALAR)
                value = ((const hc_ffi_scalar *)value)->value;
            memcpy((char *)&all + known[k].offset, value, known[k].size);
            break;
        }
    return all;
}

/* ---- buffers ----------------------------------------------------------------------------------------- */

static int dtype_of(int ffi) {
    static const uint8_t codes[] = {
        [HC_FFI_PRED] = HC_BOOL + 1,     [HC_FFI_S8] = HC_INT8 + 1,       [HC_FFI_S16] = HC_INT16 + 1,
        [HC_FFI_S32] = HC_INT32 + 1,     [HC_FFI_S64] = HC_INT64 + 1,     [HC_FFI_U8] = HC_UINT8 + 1,
        [HC_FFI_U16] = HC_UINT16 + 1,    [HC_FFI_U32] = HC_UINT32 + 1,    [HC_FFI_U64] = HC_UINT64 + 1,
        [HC_FFI_F16] = HC_FLOAT16 + 1,   [HC_FFI_F32] = HC_FLOAT32 + 1,   [HC_FFI_F64] = HC_FLOAT64 + 1,
        [HC_FFI_C64] = HC_COMPLEX64 + 1, [HC_FFI_BF16] = HC_BFLOAT16 + 1, [HC_FFI_C128] = HC_COMPLEX128 + 1};
    int code = ffi > 0 && (size_t)ffi < sizeof codes ? codes[ffi] : 0;
    return code ? code - 1 : HC_DTYPE_COUNT;
}

/* The next buffer from number `*at` on that is no token; NULL: no more buffers. */
static const hc_ffi_buffer *next_buffer(const hc_ffi_buffers *all, int64_t *at) {
    while (*at < all->count) {
        const hc_ffi_buffer *buffer = all->buffers[(*at)++];
        if (buffer->dtype != HC_FFI_TOKEN)
            return buffer;
    }
    return NULL;
}

/* Reads pairs of an argument and a result; either may be missing. Returns their number.
 *
 * An empty result has no buffer: XLA gives all empty values of a program the same address, and runs steps that write to
 * the same address one after another. `empty` has the rows of each empty result, and -1 for each other result.
 *
 * The `trailing` last arguments are no tensors: they are the memory of results, and values that only order the call.
 * The argument before them is the ticket of an earlier call if this call `follows` it; the last result of a call that
 * `tells` is its ticket. */
static uint32_t read_tensors(const hc_ffi_frame *frame, const options *o, hc_gate_tensor *tensors) {
    static char nothing;
    hc_ffi_buffers arguments = frame->arguments, results = frame->results;
    arguments.count -= o->trailing + o->follows;
    results.count -= o->tells;
    int64_t argument = 0, result = 0;
    for (uint32_t n = 0;; n++) {
        int64_t rows = n < o->empty.count ? ((const int64_t *)o->empty.data)[n] : -1;
        const hc_ffi_buffer *in = next_buffer(&arguments, &argument);
        const hc_ffi_buffer *out = rows < 0 ? next_buffer(&results, &result) : NULL, *one = in ? in : out;
        if (!one)
            return n;
        tensors[n] = (hc_gate_tensor){.dtype = (uint8_t)dtype_of(one->dtype),
                                      .ndim = (uint8_t)(one->rank > HC_MAX_DIMS ? HC_MAX_DIMS + 1 : one->rank),
                                      .dims = one->dims,
                                      .in = in ? in->data : NULL,
                                      .out = out ? out->data : NULL,
                                      .out_rows = out && out->rank ? out->dims[0] : 1};
        if (rows >= 0) {
            tensors[n].out = &nothing;
            tensors[n].out_rows = rows;
        }
    }
}

/* What a sendrecv receives, which may have another shape and dtype than what it sends. */
static hc_gate_tensor read_received(const hc_ffi_frame *frame) {
    int64_t at = 0;
    const hc_ffi_buffer *out = next_buffer(&frame->results, &at);
    return (hc_gate_tensor){.dtype = (uint8_t)dtype_of(out->dtype),
                            .ndim = (uint8_t)(out->rank > HC_MAX_DIMS ? HC_MAX_DIMS + 1 : out->rank),
                            .dims = out->dims,
                            .out = out->data,
                            .out_rows = out->rank ? out->dims[0] : 1};
}

/* Identifies a call: a collective by its entry of the log, in two parts, which are equal on all ranks; a sendrecv by
 * the serial numbers of the sent and of the received message. 0 and 0: unknown. */
typedef struct ticket {
    uint32_t low, high;
} ticket;

#define NAME_ROOM (HC_MAX_NAME + 40)

static ticket read_ticket(const hc_ffi_frame *frame, const options *o) {
    ticket of = {0, 0};
    if (o->follows)
        memcpy(&of, ((const hc_ffi_buffer *)frame->arguments.buffers[frame->arguments.count - o->trailing - 1])->data,
               sizeof of);
    return of;
}

/* ---- the end of a call ------------------------------------------------------------------------------- */

/* One or two calls of the gate that end one future. */
typedef struct pending {
    const hc_ffi_api *api;
    void *future;
    atomic_int left;
    atomic_flag failed; /* the future has its error */
    ticket *written;    /* where the call's ticket is written; NULL: the program does not need it */
} pending;

static void *new_error(const hc_ffi_api *api, int status, const char *text) {
    char message[HC_GATE_TEXT + 64];
    snprintf(message, sizeof message, "hpccoll.%s: %s", gate->status_exception(status), text);
    return api->error_create(
        &(hc_ffi_error){.size = sizeof(hc_ffi_error), .message = message, .code = hc_gate_code(status)});
}

static void end_call(pending *p, int status, const char *text) {
    hc_ffi_future future = {.size = sizeof future, .future = p->future};
    if (status != HC_OK && !atomic_flag_test_and_set(&p->failed)) {
        future.error = new_error(p->api, status, text);
        p->api->future_set_error(&future);
    }
    if (atomic_fetch_sub(&p->left, 1) > 1)
        return;
    future.size = offsetof(hc_ffi_future, error);
    if (!atomic_flag_test_and_set(&p->failed))
        p->api->future_set_available(&future);
    free(p);
}

static void done(void *context, hc_gate_result *result) {
    const pending *p = context;
    if (p->written)
        *p->written = (ticket){(uint32_t)result->number, (uint32_t)(result->number >> 32)};
    end_call(context, result->status, result->text);
}

static void sent(void *context, hc_gate_result *result) {
    const pending *p = context;
    if (p->written)
        p->written->low = (uint32_t)result->number;
    end_call(context, result->status, result->text);
}

static void received(void *context, hc_gate_result *result) {
    const pending *p = context;
    if (p->written)
        p->written->high = (uint32_t)result->number;
    end_call(context, result->status, result->text);
}

static void begin(pending *p, const hc_gate_call *call) {
    char text[HC_GATE_TEXT];
    int status = gate->begin(call, text);
    if (status != HC_OK)
        end_call(p, status, text);
}

/* ---- the handler ------------------------------------------------------------------------------------- */

/* Answers XLA's query for the version: the lower of both, or the first with futures if the runtime has no table. */
static int answer_metadata(const hc_ffi_frame *frame) {
    for (const hc_ffi_extension *e = frame->extensions; e; e = e->next) {
        if (e->type != HC_FFI_METADATA)
            continue;
        hc_ffi_metadata *metadata = ((const hc_ffi_metadata_extension *)(const void *)e)->metadata;
        int minor = frame->api ? frame->api->version.minor : HC_FFI_LEAST;
        metadata->version.major = HC_FFI_MAJOR;
        metadata->version.minor = minor < HC_FFI_MINOR ? minor : HC_FFI_MINOR;
        metadata->traits = 0;
        return 1;
    }
    return 0;
}

void *hc_xla_nothing(hc_ffi_frame *frame) {
    answer_metadata(frame);
    return NULL;
}

/* The name of a derivative has the log entry that agreed on the original call, as in hpccoll/jax/names.py. */
static size_t write_name(const options *o, ticket of, char room[NAME_ROOM]) {
    size_t n = o->name.length < NAME_ROOM ? o->name.length : NAME_ROOM;
    memcpy(room, o->name.text, n);
    uint64_t entry = (uint64_t)of.high << 32 | of.low;
    if (entry && n < HC_MAX_NAME)
        n += (size_t)snprintf(room + n, NAME_ROOM - n, " (of entry %" PRIu64 ")", entry);
    return n;
}

static void begin_all(pending *p, const options *o, const hc_ffi_frame *frame, const hc_gate_tensor *tensors,
                      uint32_t n) {
    ticket of = read_ticket(frame, o);
    char name[NAME_ROOM];
    hc_gate_call call = {.size = sizeof call,
                         .set = (uint64_t)o->set,
                         .name = name,
                         .name_len = write_name(o, of, name),
                         .operation = (uint8_t)o->operation,
                         .reduction = (uint8_t)o->reduction,
                         .wire = (uint8_t)o->wire,
                         .group = (uint8_t)o->group,
                         .root = (int32_t)o->root,
                         .any_tag = o->tag < 0,
                         .tag = (uint32_t)o->tag,
                         .prescale = o->prescale,
                         .postscale = o->postscale,
                         .ntensors = n,
                         .tensors = tensors,
                         .splits = o->splits.count ? o->splits.data : NULL,
                         .nsplits = (uint32_t)o->splits.count,
                         .calls = (uint32_t)o->calls,
                         .derived = o->derived != 0,
                         .compiled = {(int32_t)o->rank, (int32_t)o->size},
                         .done = done,
                         .context = p};
    if (o->operation != HC_XLA_SENDRECV) {
        begin(p, &call);
        return;
    }
    hc_gate_tensor taken = read_received(frame);
    int back = o->back != 0;
    hc_gate_call receive = call;
    receive.operation = HC_GATE_RECEIVE;
    receive.root = (int32_t)o->source;
    receive.tag = (uint32_t)o->source_tag;
    receive.follows = back ? 2 * of.low : of.high ? 2 * of.high + 1 : 0;
    receive.tensors = &taken;
    receive.done = received;
    call.operation = HC_GATE_SEND;
    call.follows = back ? 2 * of.high : of.low ? 2 * of.low + 1 : 0;
    call.done = sent;
    begin(p, &receive);
    begin(p, &call);
}

static void *refuse(const hc_ffi_api *api, const char *text) {
    return api->error_create(&(hc_ffi_error){.size = sizeof(hc_ffi_error), .message = text, .code = HC_FFI_INTERNAL});
}

void *hc_xla_call(hc_ffi_frame *frame) {
    if (answer_metadata(frame))
        return NULL;
    const hc_ffi_api *api = frame->api;
    if (api->version.major != HC_FFI_MAJOR || api->version.minor < HC_FFI_LEAST)
        return refuse(api, "hpccoll: this XLA has no futures for custom calls: install jax 0.5 or later");
    options o = read_options(&frame->attributes);
    int64_t most = frame->arguments.count + frame->results.count;
    hc_gate_tensor few[8], *tensors = most <= 8 ? few : malloc((size_t)most * sizeof *tensors);
    pending *p = malloc(sizeof *p);
    hc_ffi_future made = {.size = offsetof(hc_ffi_future, future)};
    if (!tensors || !p || api->future_create(&made)) {
        free(p);
        if (tensors != few)
            free(tensors);
        return refuse(api, "hpccoll: no memory for an operation; nothing was sent");
    }
    p->api = api;
    p->future = made.future;
    atomic_init(&p->left, o.operation == HC_XLA_SENDRECV ? 2 : 1);
    atomic_flag_clear(&p->failed);
    p->written = o.tells ? ((const hc_ffi_buffer *)frame->results.buffers[frame->results.count - 1])->data : NULL;
    uint32_t n = read_tensors(frame, &o, tensors);
    begin_all(p, &o, frame, tensors, n);
    frame->future = made.future;
    if (tensors != few)
        free(tensors);
    return NULL;
}
