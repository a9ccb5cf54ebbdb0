# SPDX-License-Identifier: Apache-2.0
"""C declarations of ext/cuda for _cuda."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from hc cimport hc_data, hc_hierarchy_config, hc_plane_parts


cdef extern from "cuda/driver/driver.h" nogil:
    enum: HC_DRIVER_NOT_READY, HC_STREAM_NON_BLOCKING
    ctypedef void *hc_gpu_context
    ctypedef void *hc_gpu_stream
    ctypedef void *hc_gpu_event
    ctypedef struct hc_library:
        void *handle
        char *path
        char *text
        char *remedy
    ctypedef struct hc_driver:
        hc_library library
        int version
        int devices
        int (*device_get)(int *, int)
        int (*device_name)(char *, int, int)
        int (*device_pci)(char *, int, int)
        int (*stream_new)(hc_gpu_stream *, unsigned, int)
        int (*stream_free)(hc_gpu_stream)
    int hc_driver_open(hc_driver *, const char *)
    int hc_driver_current(const char *)
    const char *hc_driver_text(const hc_driver *, int status)


cdef extern from "cuda/nccl/nccl.h" nogil:
    ctypedef struct hc_nccl:
        hc_library library
        int version
    int hc_nccl_open(hc_nccl *, const char *, const char *const *)
    void hc_nccl_version_text(int version, char *, size_t)


cdef extern from "cuda/driver/device.h" nogil:
    enum: HC_DEVICE_CURRENT, HC_DEVICE_WHY, HC_DEVICE_MODE_COUNT
    ctypedef struct hc_device:
        hc_driver driver
        int number
        char *pci
    ctypedef struct hc_device_files:
        const char *driver
        const char *kernels
    int hc_device_open(int, const hc_device_files *, hc_device **, char *)
    void hc_device_close(hc_device *)
    int hc_device_event_take(hc_device *, hc_gpu_event *)
    void hc_device_event_give(hc_device *, hc_gpu_event)
    int hc_device_event_record(const hc_device *, hc_gpu_event, hc_gpu_stream)
    int hc_device_event_follow(const hc_device *, hc_gpu_stream, hc_gpu_event)
    int hc_device_event_query(const hc_device *, hc_gpu_event)
    hc_gpu_context hc_device_enter(const hc_device *)
    void hc_device_leave(const hc_device *, hc_gpu_context)
    int hc_device_result_new(hc_device *, size_t, void **)
    void hc_device_result_free(hc_device *, void *, hc_gpu_stream)
    int hc_device_path(int, int, int)
    const char *hc_device_mode_name(int)
    int hc_device_mode_named(const char *)
    int hc_gpu_aware_named(const char *)
    ctypedef struct hc_gpu_aware:
        int mode
        const char **proofs
        const char *why
    ctypedef struct hc_device_data_config:
        int number
        hc_device_files files
        const char *nccl_library
        const char **nccl_files
        int mode
        hc_gpu_aware gpu_aware
        int64_t small
        uint8_t shares_device
        uint64_t patience


cdef extern from "cuda/accelerator.h" nogil:
    ctypedef struct hc_accelerator:
        hc_device *device
        hc_device_data_config config
    int hc_accelerator_new(const hc_device_data_config *, int, int, hc_accelerator **)
    void hc_accelerator_close(hc_accelerator *)
    void hc_accelerator_free(hc_accelerator *)
    int hc_accelerator_open(hc_accelerator *, int, const void *, char *)
    int hc_accelerator_check(hc_accelerator *, int, const void *, const char *, char *)
    int hc_accelerator_plane(hc_accelerator *, const hc_plane_parts *, hc_data **)
    void hc_accelerator_forget(hc_accelerator *, uint32_t)
    const char *hc_accelerator_facts(const hc_accelerator *, uint32_t)
