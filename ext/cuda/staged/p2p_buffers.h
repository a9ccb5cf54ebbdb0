/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_buffers.h - messages from and to a device by way of pinned memory: private to ext/cuda, where
 * device_data.c uses them.
 */
#ifndef HC_P2P_BUFFERS_H
#define HC_P2P_BUFFERS_H

#include "cuda/driver/device_own.h"

/* Pinned memory, and how far the copy between it and the device is. */
typedef struct hc__p2p_copy {
    struct hc__p2p_copy *next;
    void *memory;
    hc_gpu_event over;
} hc__p2p_copy;

typedef struct hc__p2p_buffers {
    hc_device *device; /* NULL before the first */
    hc_gpu_stream down, up;
    hc__p2p_copy *leaving; /* given back, with copies that may go on */
    hc__p2p_copy *spare;   /* without memory */
    char text[256];
} hc__p2p_buffers;

/* As of hc_data_ops (transport.h), on a device that is entered. */
int hc__p2p_buffer_open(hc__p2p_buffers *, hc_device *, hc_staging *, int sends);
int hc__p2p_buffer_test(hc__p2p_buffers *, const hc_staging *);
int hc__p2p_buffer_deliver(hc__p2p_buffers *, const hc_staging *);
void hc__p2p_buffer_close(hc__p2p_buffers *, hc_staging *);
void hc__p2p_buffers_free(
    hc__p2p_buffers *); /* waits a little for what is under way; what is then still in use is lost */

#endif
