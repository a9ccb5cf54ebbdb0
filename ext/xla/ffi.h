/* SPDX-License-Identifier: Apache-2.0
 *
 * ffi.h - our declarations of XLA's foreign function interface for handlers.
 *
 * XLA keeps this binary interface stable: every struct begins with its size, and a new version only adds fields. These
 * are the declarations of XLA's C interface up to version 0.3 that we use, so the build needs no header of XLA, and one
 * build serves all versions. tests/jax/test_declarations.py compares them with jaxlib's header.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HC_FFI_MAJOR 0
#define HC_FFI_MINOR 3 /* the newest known version */
#define HC_FFI_LEAST 1 /* the first version with futures */

enum { HC_FFI_METADATA = 1 };                                    /* type of an extension */
enum { HC_FFI_ARRAY = 1, HC_FFI_SCALAR = 3, HC_FFI_STRING = 4 }; /* types of attributes */
enum { HC_FFI_EXECUTE = 3 };                                     /* stages */
enum {
    HC_FFI_PRED = 1,
    HC_FFI_S8 = 2,
    HC_FFI_S16 = 3,
    HC_FFI_S32 = 4,
    HC_FFI_S64 = 5,
    HC_FFI_U8 = 6,
    HC_FFI_U16 = 7,
    HC_FFI_U32 = 8,
    HC_FFI_U64 = 9,
    HC_FFI_F16 = 10,
    HC_FFI_F32 = 11,
    HC_FFI_F64 = 12,
    HC_FFI_C64 = 15,
    HC_FFI_BF16 = 16,
    HC_FFI_TOKEN = 17,
    HC_FFI_C128 = 18
};
enum {
    HC_FFI_INVALID_ARGUMENT = 3,
    HC_FFI_RESOURCE_EXHAUSTED = 8,
    HC_FFI_FAILED_PRECONDITION = 9,
    HC_FFI_INTERNAL = 13,
    HC_FFI_UNAVAILABLE = 14
};

typedef struct hc_ffi_extension {
    size_t size;
    int type;
    struct hc_ffi_extension *next;
} hc_ffi_extension;

typedef struct hc_ffi_version {
    size_t size;
    hc_ffi_extension *extensions;
    int major, minor;
} hc_ffi_version;

typedef struct hc_ffi_buffer {
    size_t size;
    hc_ffi_extension *extensions;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} hc_ffi_buffer;

typedef struct hc_ffi_span {
    const char *text;
    size_t length;
} hc_ffi_span;

typedef struct hc_ffi_scalar {
    int dtype;
    void *value;
} hc_ffi_scalar;

typedef struct hc_ffi_array {
    int dtype;
    size_t count;
    void *data;
} hc_ffi_array;

typedef struct hc_ffi_buffers { /* arguments, and results */
    size_t size;
    hc_ffi_extension *extensions;
    int64_t count;
    int *types;
    void **buffers;
} hc_ffi_buffers;

typedef struct hc_ffi_attributes {
    size_t size;
    hc_ffi_extension *extensions;
    int64_t count;
    int *types;
    hc_ffi_span **names;
    void **values;
} hc_ffi_attributes;

typedef struct hc_ffi_api hc_ffi_api;

typedef struct hc_ffi_frame {
    size_t size;
    hc_ffi_extension *extensions;
    const hc_ffi_api *api;
    void *context;
    int stage;
    hc_ffi_buffers arguments, results;
    hc_ffi_attributes attributes;
    void *future; /* out */
} hc_ffi_frame;

typedef struct hc_ffi_error {
    size_t size;
    hc_ffi_extension *extensions;
    const char *message;
    int code;
} hc_ffi_error;

typedef struct hc_ffi_registration {
    size_t size;
    hc_ffi_extension *extensions;
    hc_ffi_span name, platform;
    void *(*instantiate)(hc_ffi_frame *), *(*prepare)(hc_ffi_frame *), *(*initialize)(hc_ffi_frame *);
    void *(*execute)(hc_ffi_frame *);
    uint32_t traits;
} hc_ffi_registration;

typedef struct hc_ffi_future {
    size_t size;
    hc_ffi_extension *extensions;
    void *future;
    void *error; /* only for future_set_error */
} hc_ffi_future;

struct hc_ffi_api {
    size_t size;
    hc_ffi_extension *extensions;
    hc_ffi_version version;
    const void *internal;
    void *(*error_create)(hc_ffi_error *);
    void *others[2];
    void *(*handler_register)(hc_ffi_registration *);
    void *more[9];
    void *(*future_create)(hc_ffi_future *);
    void *(*future_set_available)(hc_ffi_future *);
    void *(*future_set_error)(hc_ffi_future *);
};

typedef struct hc_ffi_metadata {
    size_t size;
    hc_ffi_version version;
    uint32_t traits;
} hc_ffi_metadata;

typedef struct hc_ffi_metadata_extension {
    hc_ffi_extension base;
    hc_ffi_metadata *metadata;
} hc_ffi_metadata_extension;
