/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_buffers.h - point-to-point messages of device memory through pinned memory: private to ext/cuda, for
 * device_data.c.
 */
#pragma once

#include "cuda/driver/device_own.h"

/* Pinned memory, and the event after its copy. */
typedef struct hc__p2p_copy {
    struct hc__p2p_copy *next;
    void *memory;
    hc_gpu_event over;
} hc__p2p_copy;

typedef struct hc__p2p_buffers {
    hc_device *device; /* NULL before the first */
    hc_gpu_stream down, up;
    hc__p2p_copy *leaving; /* closed; their copies may still run */
    hc__p2p_copy *spare;   /* records without memory */
    char text[256];
} hc__p2p_buffers;

/* As in hc_data_ops (transport/data.h); the caller has entered the device's context. */
int hc__p2p_buffer_open(hc__p2p_buffers *, hc_device *, hc_staging *, int sends);
int hc__p2p_buffer_test(hc__p2p_buffers *, const hc_staging *);
int hc__p2p_buffer_deliver(hc__p2p_buffers *, const hc_staging *);
void hc__p2p_buffer_close(hc__p2p_buffers *, hc_staging *);
void hc__p2p_buffers_free(
    hc__p2p_buffers *); /* waits a little for running copies; memory still in use after that is lost */
