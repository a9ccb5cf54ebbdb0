/* SPDX-License-Identifier: Apache-2.0
 *
 * register.c - finds TensorFlow's C interface, and registers operations with it.
 *
 * All operations are stateful. Otherwise TensorFlow would run a collective of constants once, when it optimizes the
 * program. tf.function runs stateful operations one after another, and 161 gradients took 367 ms instead of 18, so
 * hpccoll/tensorflow/graph.py declares the collectives independent. An input from a stateful operation would also
 * work, but a TensorFlow with one thread ran it last: all gradients waited for the whole backward pass.
 */
#define _GNU_SOURCE
#include "tensorflow/tensorflow.h"

#include <dlfcn.h>
#include <stdio.h>

#define LIBRARY "libtensorflow_framework.so.2"

#define X(result, name, arguments) result(*hc__##name) arguments;
HC_TF_FUNCTIONS(X)
#undef X

static char problem[512];

/* OpDefBuilder::SetIsDistributedCommunication(), a C++ method that the C interface lacks. Without it TensorFlow turns
 * the UnavailableError of a lost rank into an InternalError with the same text. NULL: not found. */
#define DISTRIBUTED "_ZN10tensorflow12OpDefBuilder29SetIsDistributedCommunicationEv"
static void *(*set_distributed)(void *);

static int look_up(void) {
    void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) {
        snprintf(problem, sizeof problem, "TensorFlow (%s) is not loaded in this process", LIBRARY);
        return -1;
    }
#define X(result, name, arguments)                                                               \
    if (!(*(void **)&hc__##name = dlsym(library, #name))) {                                      \
        snprintf(problem, sizeof problem, "TensorFlow's C interface has no function %s", #name); \
        return -1;                                                                               \
    }
    HC_TF_FUNCTIONS(X)
#undef X
    *(void **)&set_distributed = dlsym(library, DISTRIBUTED);
    return 0;
}

/* ---- shapes ------------------------------------------------------------------------------------------ */

/* For operations whose results have the shapes of their tensors. */
static void same_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {
    int64_t n = hc__TF_ShapeInferenceContextNumInputs(context);
    TF_ShapeHandle *shape = hc__TF_NewShapeHandle();
    for (int i = 0; i < n && !hc__TF_GetCode(status); i++) {
        hc__TF_ShapeInferenceContextGetInput(context, i, shape, status);
        hc__TF_ShapeInferenceContextSetOutput(context, i, shape, status);
    }
    hc__TF_DeleteShapeHandle(shape);
}

static void unknown_shapes(TF_ShapeInferenceContext *context, TF_Status *status) {
    hc__TF_ShapeInferenceContextSetUnknownShape(context, status);
}

/* ---- operations -------------------------------------------------------------------------------------- */

#define TYPES                                                                                                     \
    "{bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float, double, complex64, " \
    "complex128}"
#define ANY "T: " TYPES

static const struct definition {
    const char *name, *type, *inputs[2], *outputs[2];
    int operation;
    hc_tf_infer *infer;
} definitions[] = {
    {"HpccollAllreduce", "T: list(" TYPES ") >= 1", {"tensors: T"}, {"results: T"}, HC_ALLREDUCE, same_shapes},
    {"HpccollBroadcast", ANY, {"tensor: T"}, {"result: T"}, HC_BROADCAST, same_shapes},
    {"HpccollAllgather", ANY, {"tensor: T"}, {"result: T", "rows: int64"}, HC_ALLGATHER, unknown_shapes},
    {"HpccollReducescatter", ANY, {"tensor: T"}, {"result: T"}, HC_REDUCESCATTER, unknown_shapes},
    {"HpccollAlltoall", ANY, {"tensor: T", "splits: int64"}, {"result: T", "rows: int64"}, HC_ALLTOALL, unknown_shapes},
    {"HpccollGuard", NULL, {NULL}, {"guard: int32"}, HC_TF_GUARD, unknown_shapes},
    {"HpccollBarrier", NULL, {NULL}, {NULL}, HC_BARRIER, unknown_shapes},
    {"HpccollJoin", NULL, {NULL}, {"last: int64"}, HC_JOIN, unknown_shapes},
};

/* prescale and postscale are the bits of a double, as TensorFlow's float attributes have 32. */
#define ONE "4607182418800017408"
static const char *const attributes[] = {"tensor_name: string = ''", "set: int = 0",         "reduction: int = 1",
                                         "wire: int = 255",          "group: int = 0",       "root: int = -1",
                                         "prescale: int = " ONE,     "postscale: int = " ONE};

static TF_OpDefinitionBuilder *build(const struct definition *d) {
    char operation[32];
    TF_OpDefinitionBuilder *builder = hc__TF_NewOpDefinitionBuilder(d->name);
    snprintf(operation, sizeof operation, "operation: int = %d", d->operation);
    hc__TF_OpDefinitionBuilderAddAttr(builder, operation);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        hc__TF_OpDefinitionBuilderAddAttr(builder, attributes[i]);
    if (d->type)
        hc__TF_OpDefinitionBuilderAddAttr(builder, d->type);
    for (int i = 0; i < 2 && d->inputs[i]; i++)
        hc__TF_OpDefinitionBuilderAddInput(builder, d->inputs[i]);
    for (int i = 0; i < 2 && d->outputs[i]; i++)
        hc__TF_OpDefinitionBuilderAddOutput(builder, d->outputs[i]);
    hc__TF_OpDefinitionBuilderSetIsStateful(builder, true);
    if (set_distributed && d->operation != HC_TF_GUARD)
        set_distributed(builder); /* the handle is the builder's address */
    hc__TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, d->infer);
    return builder;
}

const char *hc__tf_register(hc_tf_create *create, hc_tf_compute *compute, hc_tf_delete *delete) {
    if (look_up() < 0)
        return problem;
    TF_Status *status = hc__TF_NewStatus();
    for (size_t i = 0; i < sizeof definitions / sizeof *definitions && !hc__TF_GetCode(status); i++) {
        const char *name = definitions[i].name;
        hc__TF_RegisterOpDefinition(build(&definitions[i]), status);
        if (!hc__TF_GetCode(status))
            hc__TF_RegisterKernelBuilder(name, hc__TF_NewAsyncKernelBuilder(name, "CPU", create, compute, delete),
                                         status);
        if (hc__TF_GetCode(status))
            snprintf(problem, sizeof problem, "TensorFlow refuses the operation %s: %s", name, hc__TF_Message(status));
    }
    hc__TF_DeleteStatus(status);
    return problem;
}
