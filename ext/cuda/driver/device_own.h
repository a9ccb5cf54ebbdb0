/* SPDX-License-Identifier: Apache-2.0
 *
 * device_own.h - the device's memory, kernels and error texts: private to ext/cuda.
 */
#pragma once

#include "cuda/driver/device.h"
#include "cuda/kernels/pack.h"
#include "cuda/kernels/sum.h"

/* ---- memory: the pool only grows; closing the device frees it ------------------------------------------ */

/* Freeing memory waits for the device, and pinning takes milliseconds, so the pool keeps memory that is given back. */
enum hc__memory_kind { HC__ON_DEVICE, HC__PINNED };

/* At least `bytes`, aligned to 256; *memory is a device address or pinned memory. OK, or NO_MEMORY. [any thread] */
int hc__device_take(hc_device *, enum hc__memory_kind, size_t bytes, void **memory);
/* Call it when all work that used the memory has ended. NULL is allowed. [any thread] */
void hc__device_give(hc_device *, void *memory);

/* Waits a little. 1: all work in the stream has ended, or the stream is NULL; 0: it has not, and its memory must not be
 * used again. */
int hc__stream_ends(const hc_device *, hc_gpu_stream);

/* ---- configuration ------------------------------------------------------------------------------------ */

/* Deep copies: OK, or NO_MEMORY; drop() frees the result in both cases. */
int hc__device_config_copy(hc_device_data_config *, const hc_device_data_config *from);
void hc__device_config_drop(hc_device_data_config *);
int hc__device_place_copy(hc_hierarchy_config *, const hc_hierarchy_config *from);
void hc__device_place_drop(hc_hierarchy_config *);

/* ---- kernels ------------------------------------------------------------------------------------------ */

/* hc_pack_launch() with the device's packer: OK; HC_PACK_BUSY: ask again; else a status with text. [any thread] */
int hc__device_pack(hc_device *, const hc_pack_order *, hc_gpu_stream, char *text, size_t room);
/* hc_sum_launch() with the device's kernels, which the first call loads: OK, or a status with text. [any thread] */
int hc__device_sum(hc_device *, const hc_sum_order *, hc_gpu_stream, char *text, size_t room);

/* ---- failures ------------------------------------------------------------------------------------------ */

/* TRANSPORT (out of memory: NO_MEMORY), with `text` as "device 0 (0000:4a:00.0): WHAT: the driver's text (700)"; OK for
 * status 0. */
int hc__device_failed(const hc_device *, int status, const char *what, char *text, size_t room);

/* Lets later work in the stream wait for a caller's `ready` event (transport/batch.h). The driver's status. */
static inline int hc__follow(const hc_driver *driver, hc_gpu_stream stream, hc_gpu_event ready) {
    return ready ? driver->stream_wait_event(stream, ready, 0) : 0;
}

static inline hc_gpu_address hc__address(const void *at) {
    return (hc_gpu_address)(uintptr_t)at;
}
