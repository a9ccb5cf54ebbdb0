/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h - the functions of a GPU's driver, as a table that is filled at run time.
 *
 * The driver API (libcuda) and not the runtime library: its symbols carry versions and stay, so that one binary serves
 * CUDA 11, 12 and 13, it comes with the kernel's driver, and its primary context is the one that PyTorch and CuPy use.
 * HIP has functions of the same shapes under other names: a column of the same table (untested on hardware).
 */
#ifndef HC_DRIVER_H
#define HC_DRIVER_H

#include "cuda/driver/library.h"

typedef uint64_t hc_gpu_address; /* in device memory */
typedef void *hc_gpu_context, *hc_gpu_stream, *hc_gpu_event, *hc_gpu_module, *hc_gpu_function;

/* Status codes that are answers and not failures; any other than 0 is a failure. */
#define HC_DRIVER_NOT_READY 600
/* Flags, equal in CUDA and HIP. */
#define HC_STREAM_NON_BLOCKING 1u  /* does not wait for the legacy default stream */
#define HC_EVENT_DISABLE_TIMING 2u /* only order, which costs less */
#define HC_HOST_MEMORY_PORTABLE 1u /* pinned for all contexts */
#define HC_POINTER_DEVICE 9        /* attribute of an address: the number of its device */

/*    member             CUDA                           HIP                            arguments */
#define HC_DRIVER_FUNCTIONS(X)                                                                                        \
    X(init, "cuInit", "hipInit", (unsigned flags))                                                                    \
    X(get_version, "cuDriverGetVersion", "hipDriverGetVersion", (int *version))                                       \
    X(error_text, "cuGetErrorString", "hipDrvGetErrorString", (int status, const char **text))                        \
    X(device_count, "cuDeviceGetCount", "hipGetDeviceCount", (int *count))                                            \
    X(device_get, "cuDeviceGet", "hipDeviceGet", (int *device, int number))                                           \
    X(device_name, "cuDeviceGetName", "hipDeviceGetName", (char *name, int room, int device))                         \
    X(device_pci, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", (char *id, int room, int device))                    \
    X(context_retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain", (hc_gpu_context *, int device))        \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease", (int device))                    \
    X(context_use, "cuCtxSetCurrent", "hipCtxSetCurrent", (hc_gpu_context))                                           \
    X(context_now, "cuCtxGetCurrent", "hipCtxGetCurrent", (hc_gpu_context *))                                         \
    X(context_device, "cuCtxGetDevice", "hipGetDevice", (int *device))                                                \
    X(pointer_fact, "cuPointerGetAttribute", "hipPointerGetAttribute", (void *fact, int attribute, hc_gpu_address))   \
    X(memory_new, "cuMemAlloc_v2", "hipMalloc", (hc_gpu_address *, size_t))                                           \
    X(memory_free, "cuMemFree_v2", "hipFree", (hc_gpu_address))                                                       \
    X(host_new, "cuMemHostAlloc", "hipHostMalloc", (void **, size_t, unsigned flags))                                 \
    X(host_free, "cuMemFreeHost", "hipHostFree", (void *))                                                            \
    X(to_device, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", (hc_gpu_address, const void *, size_t, hc_gpu_stream)) \
    X(to_host, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", (void *, hc_gpu_address, size_t, hc_gpu_stream))         \
    X(on_device, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync",                                                        \
      (hc_gpu_address, hc_gpu_address, size_t, hc_gpu_stream))                                                        \
    X(stream_new, "cuStreamCreateWithPriority", "hipStreamCreateWithPriority",                                        \
      (hc_gpu_stream *, unsigned flags, int priority))                                                                \
    X(stream_free, "cuStreamDestroy_v2", "hipStreamDestroy", (hc_gpu_stream))                                         \
    X(stream_query, "cuStreamQuery", "hipStreamQuery", (hc_gpu_stream))                                               \
    X(stream_wait, "cuStreamSynchronize", "hipStreamSynchronize", (hc_gpu_stream))                                    \
    X(stream_wait_event, "cuStreamWaitEvent", "hipStreamWaitEvent", (hc_gpu_stream, hc_gpu_event, unsigned flags))    \
    X(event_new, "cuEventCreate", "hipEventCreateWithFlags", (hc_gpu_event *, unsigned flags))                        \
    X(event_free, "cuEventDestroy_v2", "hipEventDestroy", (hc_gpu_event))                                             \
    X(event_record, "cuEventRecord", "hipEventRecord", (hc_gpu_event, hc_gpu_stream))                                 \
    X(event_query, "cuEventQuery", "hipEventQuery", (hc_gpu_event))                                                   \
    X(event_wait, "cuEventSynchronize", "hipEventSynchronize", (hc_gpu_event))                                        \
    X(module_load, "cuModuleLoadData", "hipModuleLoadData", (hc_gpu_module *, const void *image))                     \
    X(module_free, "cuModuleUnload", "hipModuleUnload", (hc_gpu_module))                                              \
    X(module_function, "cuModuleGetFunction", "hipModuleGetFunction",                                                 \
      (hc_gpu_function *, hc_gpu_module, const char *name))                                                           \
    X(launch, "cuLaunchKernel", "hipModuleLaunchKernel",                                                              \
      (hc_gpu_function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,        \
       unsigned block_z, unsigned shared_bytes, hc_gpu_stream, void **arguments, void **extra))

/* Whose driver and collective library: names are data. */
typedef enum hc_vendor { HC_NVIDIA, HC_AMD, HC_VENDOR_COUNT } hc_vendor;
const char *hc_vendor_name(hc_vendor); /* "NVIDIA" */

typedef struct hc_driver {
    hc_library library;
    hc_vendor vendor;
    int version; /* 12080: CUDA 12.8, the newest that this driver speaks */
    int devices; /* that this process may use */
#define X(member, cuda, hip, arguments) int(*member) arguments;
    HC_DRIVER_FUNCTIONS(X)
#undef X
} hc_driver;

/* Opens the driver, initialises it and counts devices; `named`: the knob's value or NULL. OK, or UNSUPPORTED with
 * library.text and library.remedy. What follows a call of this must not fork and use the driver in the child. */
int hc_driver_open(hc_driver *, hc_vendor, const char *named);
/* The number of the device whose context this thread uses; -1: none, or this process has opened no driver. Opens and
 * initialises nothing. */
int hc_driver_current(hc_vendor, const char *named);
/* What the driver says about a status of its own; never NULL. */
const char *hc_driver_text(const hc_driver *, int status);

#endif
