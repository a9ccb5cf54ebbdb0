/* SPDX-License-Identifier: Apache-2.0
 *
 * device_pool.h - memory on a device and pinned beside it, which is kept for whoever asks next: private to device.c.
 *
 * To ask the driver for memory is slow, and to give it back waits for the device. One thread at a time, in the device's
 * context.
 */
#ifndef HC_DEVICE_POOL_H
#define HC_DEVICE_POOL_H

#include "cuda/driver/device_own.h"

typedef struct hc__block hc__block;

typedef struct hc__pool {
    const hc_driver *driver;
    hc__block *blocks;
} hc__pool;

int hc__pool_take(hc__pool *, enum hc__memory_kind, size_t bytes, void **memory); /* OK or NO_MEMORY */
void hc__pool_give(hc__pool *, void *memory);
/* What was launched in `stream` before may still use it. */
void hc__pool_give_behind(hc__pool *, void *memory, hc_gpu_stream stream);
void hc__pool_free(hc__pool *); /* all of it, and waits for the device */

#endif
