/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h - the functions of a GPU's driver, as a table that is filled at run time.
 *
 * It uses the driver API (libcuda) and not the runtime library, for three reasons. Its symbols have versions and stay,
 * so one binary serves CUDA 11, 12 and 13. It comes with the kernel's driver. Its primary context is the one that
 * PyTorch and CuPy use.
 */
#pragma once

#include "cuda/driver/library.h"

typedef uint64_t hc_gpu_address; /* in device memory */
typedef void *hc_gpu_context, *hc_gpu_stream, *hc_gpu_event, *hc_gpu_module, *hc_gpu_function;

/* Status codes that are answers and not failures; any other than 0 is a failure. */
#define HC_DRIVER_NOT_READY 600
/* Flags. */
#define HC_STREAM_NON_BLOCKING 1u  /* does not wait for the legacy default stream */
#define HC_EVENT_DISABLE_TIMING 2u /* only order, which costs less */
#define HC_HOST_MEMORY_PORTABLE 1u /* pinned for all contexts */
/* Attributes of an address. */
#define HC_POINTER_MEMORY 2  /* HC_MEMORY_OF_DEVICE, or another kind */
#define HC_POINTER_MANAGED 8 /* 1: it moves between the host and devices */
#define HC_POINTER_DEVICE 9  /* the number of its device */
#define HC_MEMORY_OF_DEVICE 2

/*    member    symbol    arguments */
#define HC_DRIVER_FUNCTIONS(X)                                                                                 \
    X(init, "cuInit", (unsigned flags))                                                                        \
    X(get_version, "cuDriverGetVersion", (int *version))                                                       \
    X(error_text, "cuGetErrorString", (int status, const char **text))                                         \
    X(device_count, "cuDeviceGetCount", (int *count))                                                          \
    X(device_get, "cuDeviceGet", (int *device, int number))                                                    \
    X(device_name, "cuDeviceGetName", (char *name, int room, int device))                                      \
    X(device_pci, "cuDeviceGetPCIBusId", (char *id, int room, int device))                                     \
    X(context_retain, "cuDevicePrimaryCtxRetain", (hc_gpu_context *, int device))                              \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                           \
    X(context_use, "cuCtxSetCurrent", (hc_gpu_context))                                                        \
    X(context_now, "cuCtxGetCurrent", (hc_gpu_context *))                                                      \
    X(context_device, "cuCtxGetDevice", (int *device))                                                         \
    X(pointer_fact, "cuPointerGetAttribute", (void *fact, int attribute, hc_gpu_address))                      \
    X(memory_new, "cuMemAlloc_v2", (hc_gpu_address *, size_t))                                                 \
    X(memory_free, "cuMemFree_v2", (hc_gpu_address))                                                           \
    X(host_new, "cuMemHostAlloc", (void **, size_t, unsigned flags))                                           \
    X(host_free, "cuMemFreeHost", (void *))                                                                    \
    X(to_device, "cuMemcpyHtoDAsync_v2", (hc_gpu_address, const void *, size_t, hc_gpu_stream))                \
    X(to_host, "cuMemcpyDtoHAsync_v2", (void *, hc_gpu_address, size_t, hc_gpu_stream))                        \
    X(on_device, "cuMemcpyDtoDAsync_v2", (hc_gpu_address, hc_gpu_address, size_t, hc_gpu_stream))              \
    X(stream_new, "cuStreamCreateWithPriority", (hc_gpu_stream *, unsigned flags, int priority))               \
    X(stream_free, "cuStreamDestroy_v2", (hc_gpu_stream))                                                      \
    X(stream_query, "cuStreamQuery", (hc_gpu_stream))                                                          \
    X(stream_wait, "cuStreamSynchronize", (hc_gpu_stream))                                                     \
    X(stream_wait_event, "cuStreamWaitEvent", (hc_gpu_stream, hc_gpu_event, unsigned flags))                   \
    X(event_new, "cuEventCreate", (hc_gpu_event *, unsigned flags))                                            \
    X(event_free, "cuEventDestroy_v2", (hc_gpu_event))                                                         \
    X(event_record, "cuEventRecord", (hc_gpu_event, hc_gpu_stream))                                            \
    X(event_query, "cuEventQuery", (hc_gpu_event))                                                             \
    X(event_wait, "cuEventSynchronize", (hc_gpu_event))                                                        \
    X(module_load, "cuModuleLoadData", (hc_gpu_module *, const void *image))                                   \
    X(module_free, "cuModuleUnload", (hc_gpu_module))                                                          \
    X(module_function, "cuModuleGetFunction", (hc_gpu_function *, hc_gpu_module, const char *name))            \
    X(launch, "cuLaunchKernel",                                                                                \
      (hc_gpu_function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
       unsigned block_z, unsigned shared_bytes, hc_gpu_stream, void **arguments, void **extra))

typedef struct hc_driver {
    hc_library library;
    int version; /* 12080: CUDA 12.8, the newest that this driver speaks */
    int devices; /* number of devices that this process may use */
#define X(member, symbol, arguments) int(*member) arguments;
    HC_DRIVER_FUNCTIONS(X)
#undef X
} hc_driver;

/* Opens the driver, initialises it and counts devices; `named`: the knob's value or NULL. OK, or UNSUPPORTED with
 * library.text and library.remedy. After this call a process must not fork and use the driver in the child. */
int hc_driver_open(hc_driver *, const char *named);
/* The number of the device whose context this thread uses; -1: none, or this process has opened no driver. Opens and
 * initialises nothing. */
int hc_driver_current(const char *named);
/* 1: this process has opened the driver. Opens and initialises nothing. */
int hc_driver_in_process(const char *named);
/* The number of the device that an address lies on, in its own or in managed memory; -1: it lies in host memory, pinned
 * or not. [any thread] */
int hc_driver_memory(const hc_driver *, const void *address);
/* The driver's text for one of its statuses; never NULL. */
const char *hc_driver_text(const hc_driver *, int status);
