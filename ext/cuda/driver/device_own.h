/* SPDX-License-Identifier: Apache-2.0
 *
 * device_own.h - what the files of ext/cuda do with a device: its memory, its packer, its failures in words.
 */
#ifndef HC_DEVICE_OWN_H
#define HC_DEVICE_OWN_H

#include "cuda/driver/device.h"
#include "cuda/kernels/pack.h"
#include "cuda/kernels/sum.h"

/* ---- memory: grows only, and goes when the device is closed ------------------------------------------- */

/* Freeing memory waits for the device, and pinning it takes milliseconds: what is given back is kept for the next. */
enum hc__memory_kind { HC__ON_DEVICE, HC__PINNED };

/* At least `bytes`, aligned to 256; *memory is a device address or pinned memory. OK, or NO_MEMORY. [any thread] */
int hc__device_take(hc_device *, enum hc__memory_kind, size_t bytes, void **memory);
/* All that used it is done. NULL: nothing. [any thread] */
void hc__device_give(hc_device *, void *memory);

/* 1: all that is in the stream has ended, after waiting a little; 0: not, and what it uses must not be used again.
 * NULL: 1. */
int hc__stream_ends(const hc_device *, hc_gpu_stream);

/* ---- what a data plane is told ---------------------------------------------------------------------- */

/* Copies of all that both point to: OK, or NO_MEMORY (then what there is can be dropped). */
int hc__device_config_copy(hc_device_data_config *, const hc_device_data_config *from, hc_hierarchy_config *place,
                           const hc_hierarchy_config *from_place);
void hc__device_config_drop(hc_device_data_config *, hc_hierarchy_config *place);

/* ---- kernels ------------------------------------------------------------------------------------------ */

/* hc_pack_launch() with the device's packer: OK; HC_PACK_BUSY: ask again; else a status with text. [any thread] */
int hc__device_pack(hc_device *, const hc_pack_order *, hc_gpu_stream, char *text, size_t room);
/* hc_sum_launch() with the device's kernels, which the first call loads: OK, or a status with text. [any thread] */
int hc__device_sum(hc_device *, const hc_sum_order *, hc_gpu_stream, char *text, size_t room);

/* ---- failures ------------------------------------------------------------------------------------------ */

/* TRANSPORT (out of memory: NO_MEMORY), with `text` as "device 0 (0000:4a:00.0): WHAT: the driver's words (700)";
 * OK for status 0. */
int hc__device_failed(const hc_device *, int status, const char *what, char *text, size_t room);

static inline hc_gpu_address hc__address(const void *at) {
    return (hc_gpu_address)(uintptr_t)at;
}

#endif
