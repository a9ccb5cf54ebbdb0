/* SPDX-License-Identifier: Apache-2.0
 *
 * accelerator.c - see accelerator.h.
 */
#include "cuda/accelerator.h"

#include "cuda/driver/device_own.h"

#include <stdio.h>
#include <stdlib.h>

int hc_accelerator_new(const hc_device_data_config *config, int rank, int off, hc_accelerator **out) {
    hc_accelerator *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a)
        return HC_NO_MEMORY;
    pthread_mutex_init(&a->opening, NULL);
    a->rank = rank;
    a->off = (uint8_t)off;
    if (hc__device_config_copy(&a->config, config) < 0) {
        hc_accelerator_free(a);
        return HC_NO_MEMORY;
    }
    a->config.order = &a->order;
    a->config.device = &a->device;
    *out = a;
    return HC_OK;
}

void hc_accelerator_close(hc_accelerator *a) {
    hc_device_close(a->device);
    a->device = NULL;
}

void hc_accelerator_free(hc_accelerator *a) {
    if (!a)
        return;
    hc_accelerator_close(a);
    hc__device_config_drop(&a->config);
    pthread_mutex_destroy(&a->opening);
    free(a);
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static int open_device(hc_accelerator *a, int number, const void *address, char *why) {
    const hc_device_files *files = &a->config.files;
    if (a->config.number >= 0)
        number = a->config.number;
    return number >= 0 ? hc_device_open(number, files, &a->device, why)
                       : hc_device_open_at(address, files, &a->device, why);
}

int hc_accelerator_open(hc_accelerator *a, int number, const void *address, char *why) {
    if (a->off) {
        snprintf(why, HC_DEVICE_WHY, "arrays in device memory were switched off (HPCCOLL_DEVICE=none)");
        return HC_UNSUPPORTED;
    }
    pthread_mutex_lock(&a->opening);
    int status = a->device ? HC_OK : open_device(a, number, address, why);
    pthread_mutex_unlock(&a->opening);
    return status;
}

int hc_accelerator_check(hc_accelerator *a, int number, const void *address, const char *name, char *why) {
    int status = hc_accelerator_open(a, number, address, why);
    if (status < 0)
        return status;
    const hc_device *d = a->device;
    if (number < 0 && address && (number = hc_device_of(d, address)) < 0) {
        snprintf(why, HC_DEVICE_WHY, "%s says that it is in device memory; the driver does not know its address %p",
                 name, address);
        return HC_INVALID;
    }
    if (number < 0 || number == d->number)
        return HC_OK;
    snprintf(why, HC_DEVICE_WHY,
             "%s lies on GPU %d, this World uses GPU %d on rank %d (%s): a World has one device on each rank", name,
             number, d->number, a->rank, d->pci);
    return HC_INVALID;
}

/* ---- data planes ------------------------------------------------------------------------------------------------- */

int hc_accelerator_plane(hc_accelerator *a, const hc_plane_parts *parts, hc_data **data) {
    int status = hc_device_data_new(&a->config, parts, data);
    a->planes[parts->place.set] = *data;
    return status;
}

void hc_accelerator_forget(hc_accelerator *a, uint32_t set) {
    a->planes[set] = NULL;
}

const char *hc_accelerator_facts(const hc_accelerator *a, uint32_t set) {
    return a->planes[set] ? hc_device_data_facts(a->planes[set]) : "";
}
