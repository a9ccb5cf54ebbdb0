/* SPDX-License-Identifier: Apache-2.0
 *
 * capi.h - the functions of TensorFlow's C interface that we use, declared by ourselves.
 *
 * They are looked up by name in the library that Python has loaded, so the build needs no header of TensorFlow, and one
 * build serves all versions. tests/tensorflow/test_declarations.py compares the declarations with the headers that
 * TensorFlow brings.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;
typedef struct TF_StringView {
    const char *data;
    size_t len;
} TF_StringView;
typedef int TF_Code; /* enums in TensorFlow */
typedef int TF_DataType;

typedef void *hc_tf_create(TF_OpKernelConstruction *);
typedef void hc_tf_compute(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
typedef void hc_tf_delete(void *);
typedef void hc_tf_infer(TF_ShapeInferenceContext *, TF_Status *);

/* X(result, name, arguments) */
#define HC_TF_FUNCTIONS(X)                                                                                           \
    X(TF_Status *, TF_NewStatus, (void))                                                                             \
    X(void, TF_DeleteStatus, (TF_Status *))                                                                          \
    X(void, TF_SetStatus, (TF_Status *, TF_Code, const char *))                                                      \
    X(TF_Code, TF_GetCode, (const TF_Status *))                                                                      \
    X(const char *, TF_Message, (const TF_Status *))                                                                 \
    X(TF_OpDefinitionBuilder *, TF_NewOpDefinitionBuilder, (const char *))                                           \
    X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))                                 \
    X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))                                \
    X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *))                               \
    X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                                   \
    X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder *, hc_tf_infer *))              \
    X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                                        \
    X(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext *))                                      \
    X(TF_ShapeHandle *, TF_NewShapeHandle, (void))                                                                   \
    X(void, TF_DeleteShapeHandle, (TF_ShapeHandle *))                                                                \
    X(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))      \
    X(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))     \
    X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))                      \
    X(TF_KernelBuilder *, TF_NewAsyncKernelBuilder,                                                                  \
      (const char *, const char *, hc_tf_create *, hc_tf_compute *, hc_tf_delete *))                                 \
    X(void, TF_RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *))                               \
    X(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback *))                                       \
    X(int, TF_NumInputs, (TF_OpKernelContext *))                                                                     \
    X(void, TF_GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                                     \
    X(TF_Tensor *, TF_ForwardInputOrAllocateOutput,                                                                  \
      (TF_OpKernelContext *, const int *, int, int, const int64_t *, int, int *, TF_Status *))                       \
    X(TF_Tensor *, TF_AllocateOutput,                                                                                \
      (TF_OpKernelContext *, int, TF_DataType, const int64_t *, int, size_t, TF_Status *))                           \
    X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                                         \
    X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                               \
    X(TF_StringView, TF_OpKernelConstruction_GetName, (TF_OpKernelConstruction *))                                   \
    X(void, TF_OpKernelConstruction_GetAttrSize,                                                                     \
      (TF_OpKernelConstruction *, const char *, int32_t *, int32_t *, TF_Status *))                                  \
    X(void, TF_OpKernelConstruction_GetAttrString,                                                                   \
      (TF_OpKernelConstruction *, const char *, char *, size_t, TF_Status *))                                        \
    X(void, TF_OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction *, const char *, int64_t *, TF_Status *)) \
    X(TF_DataType, TF_TensorType, (const TF_Tensor *))                                                               \
    X(int, TF_NumDims, (const TF_Tensor *))                                                                          \
    X(int64_t, TF_Dim, (const TF_Tensor *, int))                                                                     \
    X(void *, TF_TensorData, (const TF_Tensor *))                                                                    \
    X(void, TF_DeleteTensor, (TF_Tensor *))

/* TF_DataType */
enum {
    HC_TF_FLOAT = 1,
    HC_TF_DOUBLE = 2,
    HC_TF_INT32 = 3,
    HC_TF_UINT8 = 4,
    HC_TF_INT16 = 5,
    HC_TF_INT8 = 6,
    HC_TF_COMPLEX64 = 8,
    HC_TF_INT64 = 9,
    HC_TF_BOOL = 10,
    HC_TF_BFLOAT16 = 14,
    HC_TF_UINT16 = 17,
    HC_TF_COMPLEX128 = 18,
    HC_TF_HALF = 19,
    HC_TF_UINT32 = 22,
    HC_TF_UINT64 = 23
};

enum { HC_TF_UNIMPLEMENTED = 12 }; /* TF_Code; the others are those of hc_gate_code() */
