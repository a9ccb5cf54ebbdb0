/* SPDX-License-Identifier: Apache-2.0
 *
 * accelerator.h - the GPU of a World on this rank, or none yet, and the data planes of its sets for it; for Python
 * (ext/cython/accelerator.pxi) and C (ext/api/devices.c).
 */
#pragma once

#include "cuda/driver/device.h"

#include <pthread.h>

typedef struct hc_accelerator {
    hc_device *device; /* NULL: not open; set before the first request on it */
    hc_device_data_config config;
    hc_launch_order order;              /* of the sets' NCCL calls */
    const hc_data *planes[HC_MAX_SETS]; /* the loop owns them; NULL: no plane */
    pthread_mutex_t opening;
    int rank; /* of the World, for texts */
    uint8_t off;
} hc_accelerator;

/* Copies the configuration; `order` and `device` in it are not used. `off`: arrays in device memory are refused. OK or
 * NO_MEMORY. */
int hc_accelerator_new(const hc_device_data_config *, int rank, int off, hc_accelerator **);
/* Call them after the data planes are freed. The first closes the device, and so does the second, for which NULL is
 * allowed. */
void hc_accelerator_close(hc_accelerator *);
void hc_accelerator_free(hc_accelerator *);

/* Opens the World's device unless it is open: config.number if a knob names one, else `number`, else (-1) the device
 * that has `address`, or (NULL) the thread's. OK; UNSUPPORTED or INVALID, and `why` (HC_DEVICE_WHY bytes). [any thread]
 */
int hc_accelerator_open(hc_accelerator *, int number, const void *address, char *why);
/* Refuses an array on another device than the World's, which it opens. `number`: of the array's device; -1: the driver
 * finds it, unless `address` is NULL. `name`: the array's, for the text. Otherwise as open(). */
int hc_accelerator_check(hc_accelerator *, int number, const void *address, const char *name, char *why);

/* Makes a set's data plane, which opens nothing before its first batch. The loop owns it, and calls forget() after it
 * has freed the plane. [driver] */
int hc_accelerator_plane(hc_accelerator *, const hc_plane_parts *, hc_data **);
void hc_accelerator_forget(hc_accelerator *, uint32_t set);
/* How a set's batches run, and why; "" before the first. */
const char *hc_accelerator_facts(const hc_accelerator *, uint32_t set);
