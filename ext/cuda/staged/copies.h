/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.h - copies between ranges of tensors on a device and places in a buffer, in few launches.
 */
#pragma once

#include "cuda/driver/device_own.h"

typedef struct hc__copy {
    hc_gpu_address address; /* on the device: whole elements of a tensor */
    int64_t bytes;
    int64_t place; /* in the buffer; ascending from copy to copy */
    double scale;  /* applied on the way into the buffer; default 1 */
} hc__copy;

typedef struct hc__copies {
    hc__copy *of;
    int32_t n, room;
    hc_pack_tensor *tensors; /* the copies in the packer's form; space for 2 room + 1 */
} hc__copies;

int hc__copies_add(hc__copies *, const void *address, int64_t bytes, int64_t place); /* bytes 0: nothing */
void hc__copies_free(hc__copies *);

/* Tensors begin at multiples of this in a buffer. */
static inline int64_t hc__aligned(int64_t bytes) {
    return (bytes + HC_PACK_UNIT - 1) / HC_PACK_UNIT * HC_PACK_UNIT;
}

/* Fills `tensors` for the packer; size and buffer_size: bytes of an element in the tensors and in the buffer. Returns
 * their number; -1: the packer cannot handle their alignment. */
int hc__copies_tensors(hc__copies *, int64_t size, int64_t buffer_size);

/* The stream for launches, and the place for error texts. */
typedef struct hc__launch {
    hc_device *device;
    hc_gpu_stream stream;
    char *text;
    size_t room;
} hc__launch;

/* Packs all copies into a buffer on the device, scaled, or unpacks them, divided: OK; HC_PACK_BUSY: try again; else a
 * status with text. One launch per factor. */
int hc__copies_pack(hc__copies *, const hc__launch *, int dtype, char *buffer);
int hc__copies_unpack(hc__copies *, const hc__launch *, int dtype, const char *buffer, int buffer_dtype,
                      double divisor);

/* Pinned memory, and device memory of the same layout in which many small tensors are packed first. */
typedef struct hc__stage {
    hc_device *device;
    char *host;
    void *packed; /* NULL until it is needed */
    int64_t bytes;
} hc__stage;
int hc__stage_reserve(hc__stage *, int64_t bytes); /* grows; no copy may be running in it */
void hc__stage_free(hc__stage *);

/* Launches all copies between tensors of dtype and the stage, to the tensors if `up`: OK; HC_PACK_BUSY: try again; else
 * a status with text. Few or large tensors are copied one by one, others packed. */
int hc__copies_launch(hc__copies *, const hc__launch *, hc__stage *, int dtype, int up);
