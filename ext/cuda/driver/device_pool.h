/* SPDX-License-Identifier: Apache-2.0
 *
 * device_pool.h - a cache of device memory and pinned memory: private to device.c.
 *
 * Allocating from the driver is slow, and freeing waits for the device. Callers hold the device's lock and are in its
 * context.
 */
#pragma once

#include "cuda/driver/device_own.h"

typedef struct hc__block hc__block;

typedef struct hc__pool {
    const hc_driver *driver;
    hc__block *blocks;
} hc__pool;

int hc__pool_take(hc__pool *, enum hc__memory_kind, size_t bytes, void **memory); /* OK or NO_MEMORY */
void hc__pool_give(hc__pool *, void *memory);
/* Work that was launched in `stream` before this call may still use it. */
void hc__pool_give_behind(hc__pool *, void *memory, hc_gpu_stream stream);
void hc__pool_free(hc__pool *); /* waits for the device */
