/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c - makes a call of the gate for an operation of TensorFlow.
 *
 * TensorFlow calls a kernel in a thread that it needs for other work, so the kernel returns at once, and calls
 * TensorFlow back when the operation is done. Tensors are read in place. If TensorFlow no longer needs a tensor, the
 * result reuses its memory.
 */
#define _GNU_SOURCE
#include "tensorflow/tensorflow.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const hc_gate *gate;
static const char *problem;

/* ---- TensorFlow's callback --------------------------------------------------------------------------- */

/* The callback is the address of a std::function<void()>, a parameter that dies when the kernel returns, so the kernel
 * clones it. This is its layout in libstdc++ since GCC 5, which TensorFlow's wheels use. */
typedef struct function {
    void *functor[2];
    bool (*manage)(struct function *to, const struct function *from, int what);
    void (*invoke)(const struct function *);
} function;

enum { FUNCTOR_ADDRESS = 1, CLONE = 2, DESTROY = 3 };

static int is_code(const void *address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fname;
}

/* 0, or -1: it does not look like a std::function. */
static int clone_function(function *to, const function *from) {
    static _Thread_local bool (*seen)(function *, const function *, int);
    function known = {0};
    if (from->manage != seen) {
        if (!is_code(*(void *const *)&from->manage) || !is_code(*(void *const *)&from->invoke))
            return -1;
        from->manage(&known, from, FUNCTOR_ADDRESS);
        if (known.functor[0] != from && known.functor[0] != from->functor[0])
            return -1;
        seen = from->manage;
    }
    *to = *from;
    from->manage(to, from, CLONE);
    return 0;
}

/* ---- one kernel per operation of a program ----------------------------------------------------------- */

typedef struct kernel {
    hc_gate_call call; /* without tensors */
    char *name;
} kernel;

static int64_t number(TF_OpKernelConstruction *context, const char *attribute, TF_Status *status) {
    int64_t value = 0;
    if (!hc__TF_GetCode(status))
        hc__TF_OpKernelConstruction_GetAttrInt64(context, attribute, &value, status);
    return value;
}

static double factor(TF_OpKernelConstruction *context, const char *attribute, TF_Status *status) {
    int64_t bits = number(context, attribute, status);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool is_number(const char *part, size_t length) {
    return length > 1 && *part == '_' && strspn(part + 1, "0123456789") >= length - 1;
}

/* Writes the nodes that call the function of a node: "while" calls "while/body/_12/hpccoll/HpccollAllreduce". Our nodes
 * are in the scope "hpccoll/", and when TensorFlow inlines a function, it prefixes the caller's name. It also numbers
 * branches and bodies; these numbers differ between ranks with different programs, so they are left out. */
static size_t write_callers(char *callers, TF_StringView node) {
    size_t length = 0, before = 0;
    for (const char *part = node.data, *end = node.data + node.len; part < end;) {
        const char *slash = memchr(part, '/', (size_t)(end - part));
        size_t n = slash ? (size_t)(slash - part) : (size_t)(end - part);
        if (n == strlen(HC_TF_SCOPE) && !memcmp(part, HC_TF_SCOPE, n))
            break;
        if (is_number(part, n)) {
            length = before;
        } else {
            before = length;
            length += (size_t)sprintf(callers + length, "%s%.*s", length ? "/" : "", (int)n, part);
        }
        part += n + 1;
    }
    return length;
}

/* Returns the attribute followed by the callers, because a function that is called twice has each name twice. */
static char *name_of(TF_OpKernelConstruction *context, size_t *name_len, TF_Status *s) {
    int32_t list = 0, given = 0;
    TF_StringView node = hc__TF_OpKernelConstruction_GetName(context);
    hc__TF_OpKernelConstruction_GetAttrSize(context, "tensor_name", &list, &given, s);
    size_t length = (size_t)given;
    char *name = calloc(1, length + node.len + sizeof " (in )"), *callers = calloc(1, node.len + 1);
    if (!hc__TF_GetCode(s))
        hc__TF_OpKernelConstruction_GetAttrString(context, "tensor_name", name, length + 1, s);
    size_t n = write_callers(callers, node);
    if (n)
        length += (size_t)sprintf(name + length, " (in %.*s)", (int)n, callers);
    free(callers);
    *name_len = length;
    return name;
}

static void *create(TF_OpKernelConstruction *context) {
    TF_Status *s = hc__TF_NewStatus();
    size_t length;
    kernel *k = calloc(1, sizeof *k);
    k->name = name_of(context, &length, s);
    k->call = (hc_gate_call){.size = sizeof k->call,
                             .set = (uint64_t)number(context, "set", s),
                             .name = k->name,
                             .name_len = length,
                             .operation = (uint8_t)number(context, "operation", s),
                             .reduction = (uint8_t)number(context, "reduction", s),
                             .wire = (uint8_t)number(context, "wire", s),
                             .group = (uint8_t)number(context, "group", s),
                             .root = (int32_t)number(context, "root", s),
                             .prescale = factor(context, "prescale", s),
                             .postscale = factor(context, "postscale", s)};
    if (hc__TF_GetCode(s))
        hc__TF_OpKernelConstruction_Failure(context, s);
    hc__TF_DeleteStatus(s);
    return k;
}

static void delete(void *context) {
    kernel *k = context;
    free(k->name);
    free(k);
}

/* ---- one run of a kernel ----------------------------------------------------------------------------- */

typedef struct tensor {
    int type; /* TF_DataType */
    int64_t dims[HC_MAX_DIMS];
} tensor;

typedef struct run {
    TF_OpKernelContext *context;
    function done;
    int operation;
    int32_t size;
    hc_gate_tensor first;
    tensor like; /* the first tensor */
} run;

static void fail(TF_OpKernelContext *context, int code, const char *class, const char *text) {
    char message[HC_GATE_TEXT + 128];
    TF_Status *s = hc__TF_NewStatus();
    snprintf(message, sizeof message, "hpccoll.%s: %s", class, text);
    hc__TF_SetStatus(s, code, message);
    hc__TF_OpKernelContext_Failure(context, s);
    hc__TF_DeleteStatus(s);
}

static void end(run *r) {
    function done = r->done;
    free(r);
    hc__TF_RunAsyncOpKernelDoneCallback((TF_AsyncOpKernelDoneCallback *)&done);
    done.manage(&done, &done, DESTROY);
}

static void put_output(run *r, int at, int type, const int64_t *dims, int ndim, const void *from, size_t bytes) {
    TF_Status *s = hc__TF_NewStatus();
    TF_Tensor *out = hc__TF_AllocateOutput(r->context, at, type, dims, ndim, bytes, s);
    if (hc__TF_GetCode(s))
        hc__TF_OpKernelContext_Failure(r->context, s);
    else if (bytes)
        memcpy(hc__TF_TensorData(out), from, bytes);
    if (out)
        hc__TF_DeleteTensor(out);
    hc__TF_DeleteStatus(s);
}

static void put_outputs(run *r, const hc_gate_result *result) {
    if (r->operation == HC_JOIN) {
        put_output(r, 0, HC_TF_INT64, NULL, 0, &result->value, sizeof result->value);
    } else if (r->operation == HC_ALLGATHER || r->operation == HC_ALLTOALL) {
        size_t bytes = hc_dtype_size(r->first.dtype);
        int64_t size = r->size;
        r->like.dims[0] = result->out_rows;
        for (int i = 0; i < r->first.ndim; i++)
            bytes *= (size_t)r->like.dims[i];
        put_output(r, 0, r->like.type, r->like.dims, r->first.ndim, result->out, bytes);
        put_output(r, 1, HC_TF_INT64, &size, 1, result->rows, (size_t)size * sizeof *result->rows);
    }
}

static void finished(void *context, hc_gate_result *result) {
    run *r = context;
    if (result->status == HC_OK)
        put_outputs(r, result);
    else
        fail(r->context, hc_gate_code(result->status), gate->status_exception(result->status), result->text);
    end(r);
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static int dtype_of(int type) {
    static const uint8_t codes[] = {
        [HC_TF_FLOAT] = HC_FLOAT32 + 1,       [HC_TF_DOUBLE] = HC_FLOAT64 + 1, [HC_TF_INT32] = HC_INT32 + 1,
        [HC_TF_UINT8] = HC_UINT8 + 1,         [HC_TF_INT16] = HC_INT16 + 1,    [HC_TF_INT8] = HC_INT8 + 1,
        [HC_TF_COMPLEX64] = HC_COMPLEX64 + 1, [HC_TF_INT64] = HC_INT64 + 1,    [HC_TF_BOOL] = HC_BOOL + 1,
        [HC_TF_BFLOAT16] = HC_BFLOAT16 + 1,   [HC_TF_UINT16] = HC_UINT16 + 1,  [HC_TF_COMPLEX128] = HC_COMPLEX128 + 1,
        [HC_TF_HALF] = HC_FLOAT16 + 1,        [HC_TF_UINT32] = HC_UINT32 + 1,  [HC_TF_UINT64] = HC_UINT64 + 1};
    int code = type > 0 && (size_t)type < sizeof codes ? codes[type] : 0;
    return code ? code - 1 : HC_DTYPE_COUNT;
}

/* TensorFlow keeps an input until the kernel is done, so its handle is deleted here: another reference would prevent
 * the result from reusing its memory. */
static void read_input(TF_OpKernelContext *context, int at, hc_gate_tensor *t, tensor *known, TF_Status *s) {
    TF_Tensor *in = NULL;
    if (!hc__TF_GetCode(s))
        hc__TF_GetInput(context, at, &in, s);
    if (hc__TF_GetCode(s))
        return;
    int ndim = hc__TF_NumDims(in);
    known->type = hc__TF_TensorType(in);
    for (int i = 0; i < ndim && i < HC_MAX_DIMS; i++)
        known->dims[i] = hc__TF_Dim(in, i);
    *t = (hc_gate_tensor){.dtype = (uint8_t)dtype_of(known->type),
                          .ndim = (uint8_t)(ndim > HC_MAX_DIMS ? HC_MAX_DIMS + 1 : ndim),
                          .dims = known->dims,
                          .in = hc__TF_TensorData(in)};
    if (ndim > HC_MAX_DIMS)
        hc__TF_SetStatus(s, hc_gate_code(HC_UNSUPPORTED), "hpccoll.UnsupportedError: a tensor of too many dimensions");
    hc__TF_DeleteTensor(in);
}

/* Allocates a result with the shape of its tensor. */
static void make_output(TF_OpKernelContext *context, int at, hc_gate_tensor *t, TF_Status *s) {
    int forwarded = -1;
    if (hc__TF_GetCode(s))
        return;
    TF_Tensor *out = hc__TF_ForwardInputOrAllocateOutput(context, &at, 1, at, t->dims, t->ndim, &forwarded, s);
    if (hc__TF_GetCode(s))
        return;
    t->out = hc__TF_TensorData(out);
    hc__TF_DeleteTensor(out);
}

static void make_share(run *r, const kernel *k, hc_gate_tensor *t, tensor *known, TF_Status *s) {
    char text[HC_GATE_TEXT];
    int32_t rank = 0, size = 1;
    int64_t dims[HC_MAX_DIMS];
    size_t bytes = hc_dtype_size(t->dtype);
    if (hc__TF_GetCode(s) || !t->ndim)
        return;
    if (gate->facts(k->call.set, &rank, &size, text) < 0)
        return; /* begin() reports the error */
    memcpy(dims, known->dims, sizeof dims);
    dims[0] = dims[0] / size + (rank < dims[0] % size);
    for (int i = 0; i < t->ndim; i++)
        bytes *= (size_t)dims[i];
    TF_Tensor *out = hc__TF_AllocateOutput(r->context, 0, known->type, dims, t->ndim, bytes, s);
    if (hc__TF_GetCode(s))
        return;
    t->out = hc__TF_TensorData(out);
    hc__TF_DeleteTensor(out);
}

static void read_tensors(run *r, const kernel *k, hc_gate_call *call, hc_gate_tensor *tensors, tensor *known,
                         TF_Status *s) {
    hc_gate_tensor splits = {0};
    tensor of_splits;
    for (uint32_t i = 0; i < call->ntensors; i++) {
        read_input(r->context, (int)i, &tensors[i], &known[i], s);
        if (call->operation == HC_ALLREDUCE || call->operation == HC_BROADCAST)
            make_output(r->context, (int)i, &tensors[i], s);
    }
    if (call->operation == HC_REDUCESCATTER)
        make_share(r, k, &tensors[0], &known[0], s);
    if (call->operation == HC_ALLTOALL) {
        read_input(r->context, 1, &splits, &of_splits, s);
        call->nsplits = hc__TF_GetCode(s) || !splits.ndim ? 0 : (uint32_t)of_splits.dims[0];
        call->splits = call->nsplits ? splits.in : NULL;
    }
    call->tensors = tensors;
    if (call->ntensors) {
        r->first = tensors[0];
        r->like = known[0];
    }
}

/* ---- the kernel -------------------------------------------------------------------------------------- */

static void begin(run *r, const kernel *k, hc_gate_call *call, hc_gate_tensor *tensors, tensor *known) {
    char text[HC_GATE_TEXT];
    int32_t rank;
    TF_Status *s = hc__TF_NewStatus();
    read_tensors(r, k, call, tensors, known, s);
    int wrong = hc__TF_GetCode(s);
    if (wrong)
        hc__TF_OpKernelContext_Failure(r->context, s);
    hc__TF_DeleteStatus(s);
    if (wrong) {
        end(r);
        return;
    }
    int status = gate->facts(call->set, &rank, &r->size, text);
    if (status == HC_OK)
        status = gate->begin(call, text);
    if (status == HC_OK)
        return;
    fail(r->context, hc_gate_code(status), gate->status_exception(status), text);
    end(r);
}

static void compute(void *context, TF_OpKernelContext *op, TF_AsyncOpKernelDoneCallback *done) {
    const kernel *k = context;
    if (k->call.operation == HC_TF_GUARD) {
        int32_t nothing = 0;
        put_output(&(run){.context = op}, 0, HC_TF_INT32, NULL, 0, &nothing, sizeof nothing);
        hc__TF_RunAsyncOpKernelDoneCallback(done);
        return;
    }
    int inputs = hc__TF_NumInputs(op), splits = k->call.operation == HC_ALLTOALL;
    uint32_t n = (uint32_t)(inputs - splits);
    hc_gate_tensor few[4], *tensors = n <= 4 ? few : malloc(n * sizeof *tensors);
    tensor few_known[4], *known = n <= 4 ? few_known : malloc(n * sizeof *known);
    run *r = malloc(sizeof *r);
    if (!r || !tensors || !known) {
        free(r);
        fail(op, hc_gate_code(HC_NO_MEMORY), gate->status_exception(HC_NO_MEMORY), "no memory; nothing was sent");
        hc__TF_RunAsyncOpKernelDoneCallback(done);
    } else {
        *r = (run){.context = op, .operation = k->call.operation};
        if (clone_function(&r->done, (const function *)done) < 0) {
            free(r);
            fail(op, HC_TF_UNIMPLEMENTED, gate->status_exception(HC_UNSUPPORTED),
                 "this TensorFlow was built with another C++ library than libstdc++, so operations do not run in its "
                 "graphs: call them outside of tf.function");
            hc__TF_RunAsyncOpKernelDoneCallback(done);
        } else {
            hc_gate_call call = k->call;
            call.ntensors = n;
            call.done = finished;
            call.context = r;
            begin(r, k, &call, tensors, known);
        }
    }
    if (tensors != few)
        free(tensors);
    if (known != few_known)
        free(known);
}

/* ---- at load ------------------------------------------------------------------------------------------ */

__attribute__((constructor)) static void load(void) {
    problem = hc__tf_register(create, compute, delete);
}

const char *hc_tensorflow_problem(void) {
    return problem;
}

int hc_tensorflow_connect(const hc_gate *table) {
    if (table->version != HC_GATE_VERSION || table->size < sizeof *table)
        return HC_UNSUPPORTED;
    gate = table;
    return HC_OK;
}
