/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack.h - the structs of DLPack (version 0), which pass memory from one library to another.
 */
#pragma once

#include <stdint.h>

typedef struct {
    int32_t device_type, device_id;
} hc__dl_device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} hc__dl_type;

typedef struct {
    void *data;
    hc__dl_device device;
    int32_t ndim;
    hc__dl_type dtype;
    int64_t *shape, *strides;
    uint64_t offset;
} hc__dl_tensor;

typedef struct hc__dl_managed {
    hc__dl_tensor tensor;
    void *context;
    void (*deleter)(struct hc__dl_managed *);
} hc__dl_managed;
