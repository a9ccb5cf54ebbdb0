/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.h - the functions of NCCL, as a table that is filled at run time.
 *
 * Types and codes are those of NCCL's public header, as far as they are used; 2.14 has all of them. The configuration
 * is that of 2.18: the library copies `size` bytes, and uses defaults for the fields that came after `version`.
 */
#pragma once

#include "cuda/driver/driver.h"

enum hc_nccl_status {
    HC_NCCL_SUCCESS,
    HC_NCCL_DRIVER_FAILED, /* a call of CUDA */
    HC_NCCL_SYSTEM_FAILED,
    HC_NCCL_INTERNAL,
    HC_NCCL_INVALID_ARGUMENT,
    HC_NCCL_INVALID_USAGE,
    HC_NCCL_REMOTE_FAILED, /* another rank or the network */
    HC_NCCL_IN_PROGRESS    /* a non-blocking call goes on: ask get_async_error */
};
enum hc_nccl_dtype {
    HC_NCCL_INT8,
    HC_NCCL_UINT8,
    HC_NCCL_INT32,
    HC_NCCL_UINT32,
    HC_NCCL_INT64,
    HC_NCCL_UINT64,
    HC_NCCL_FLOAT16,
    HC_NCCL_FLOAT32,
    HC_NCCL_FLOAT64,
    HC_NCCL_BFLOAT16
};
enum hc_nccl_reduction { HC_NCCL_SUM, HC_NCCL_PRODUCT, HC_NCCL_MAX, HC_NCCL_MIN, HC_NCCL_AVERAGE };

typedef struct hc_nccl_id {
    char bytes[128];
} hc_nccl_id; /* by value */
typedef void *hc_nccl_comm;

#define HC_NCCL_UNDEFINED INT32_MIN /* in the configuration: the library's default */
typedef struct hc_nccl_config {
    size_t size;
    uint32_t magic, version;
    int32_t blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int32_t split_share;
} hc_nccl_config;
#define HC_NCCL_CONFIG                                                                       \
    {sizeof(hc_nccl_config), 0xcafebeef,        21800, HC_NCCL_UNDEFINED, HC_NCCL_UNDEFINED, \
     HC_NCCL_UNDEFINED,      HC_NCCL_UNDEFINED, NULL,  HC_NCCL_UNDEFINED}

/*    member           name                        arguments */
#define HC_NCCL_FUNCTIONS(X)                                                                               \
    X(get_version, "ncclGetVersion", (int *version))                                                       \
    X(get_id, "ncclGetUniqueId", (hc_nccl_id *))                                                           \
    X(init, "ncclCommInitRankConfig", (hc_nccl_comm *, int size, hc_nccl_id, int rank, hc_nccl_config *))  \
    X(finalize, "ncclCommFinalize", (hc_nccl_comm))                                                        \
    X(destroy, "ncclCommDestroy", (hc_nccl_comm))                                                          \
    X(abort, "ncclCommAbort", (hc_nccl_comm))                                                              \
    X(get_async_error, "ncclCommGetAsyncError", (hc_nccl_comm, int *status))                               \
    X(all_reduce, "ncclAllReduce",                                                                         \
      (const void *in, void *out, size_t count, int dtype, int op, hc_nccl_comm, hc_gpu_stream))           \
    X(reduce_scatter, "ncclReduceScatter",                                                                 \
      (const void *in, void *out, size_t out_count, int dtype, int op, hc_nccl_comm, hc_gpu_stream))       \
    X(all_gather, "ncclAllGather",                                                                         \
      (const void *in, void *out, size_t in_count, int dtype, hc_nccl_comm, hc_gpu_stream))                \
    X(broadcast, "ncclBroadcast",                                                                          \
      (const void *in, void *out, size_t count, int dtype, int root, hc_nccl_comm, hc_gpu_stream))         \
    X(reduce, "ncclReduce",                                                                                \
      (const void *in, void *out, size_t count, int dtype, int op, int root, hc_nccl_comm, hc_gpu_stream)) \
    X(send, "ncclSend", (const void *, size_t count, int dtype, int peer, hc_nccl_comm, hc_gpu_stream))    \
    X(recv, "ncclRecv", (void *, size_t count, int dtype, int peer, hc_nccl_comm, hc_gpu_stream))          \
    X(group_start, "ncclGroupStart", (void))                                                               \
    X(group_end, "ncclGroupEnd", (void))

typedef struct hc_nccl {
    hc_library library;
    int version; /* 22809: 2.28.9 */
    const char *(*error_text)(int status);
    const char *(*last_error)(hc_nccl_comm); /* NULL before 2.13 */
#define X(member, name, arguments) int(*member) arguments;
    HC_NCCL_FUNCTIONS(X)
#undef X
} hc_nccl;

/* Opens NCCL; this needs no driver. `named`: the knob's value or NULL; `files`: paths in Python packages, ends with
 * NULL. OK, or UNSUPPORTED with library.text and library.remedy. */
int hc_nccl_open(hc_nccl *, const char *named, const char *const *files);
/* 22809: "2.28.9" */
void hc_nccl_version_text(int version, char *text, size_t room);
