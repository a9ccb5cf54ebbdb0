/* SPDX-License-Identifier: Apache-2.0
 *
 * device_data.c - the data plane of a set whose batches may lie on a device: which way each of them goes.
 */
#include "staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const mode_names[HC_DEVICE_MODE_COUNT] = {
#define X(name, text) [HC_DEVICE_##name] = text,
    HC_DEVICE_MODES(X)
#undef X
};

const char *hc_device_mode_name(int mode) {
    return mode_names[mode];
}

int hc_device_mode_named(const char *name) {
    for (int i = 0; i < HC_DEVICE_MODE_COUNT; i++)
        if (strcmp(name, mode_names[i]) == 0)
            return i;
    return -1;
}

typedef struct plane {
    hc_data base;
    hc_device_data_config config;
    hc_data *host;     /* owned */
    hc_device *device; /* NULL before the first batch on it */
    uint8_t borrowed;  /* the World's */
    uint8_t on_device; /* the batch that runs */
    hc__staged staged;
    char why[HC_DEVICE_WHY];
} plane;

/* ---- the first batch on the device ------------------------------------------------------------------------------- */

static int open_device(plane *p) {
    p->device = p->config.device ? *p->config.device : NULL;
    p->borrowed = p->device != NULL;
    if (p->device)
        return HC_OK;
    int status = hc_device_open(p->config.number, p->config.vendor, p->config.cuda_library, &p->device,
                                p->why);
    p->base.text = p->why;
    return status < 0 ? HC_TRANSPORT : HC_OK;
}

static int open_staged(plane *p) {
    p->staged.device = p->device;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = hc__staged_open(&p->staged);
    hc_device_leave(p->device, before);
    return status;
}

/* ---- a batch ------------------------------------------------------------------------------------------------------- */

static int say(plane *p, int status) {
    if (status < 0 && status != HC_RESULT_SIZE)
        p->base.text = p->staged.text[0] ? p->staged.text : p->host->text;
    return status;
}

static int start_on_device(plane *p, hc_batch *batch) {
    int status = HC_OK;
    if (!p->device)
        status = open_device(p);
    if (status < 0)
        return status;
    if (!p->staged.device)
        status = open_staged(p);
    if (status < 0)
        return say(p, status);
    hc_gpu_context before = hc_device_enter(p->device);
    status = hc__staged_start(&p->staged, batch);
    hc_device_leave(p->device, before);
    return say(p, status);
}

static int start(hc_data *data, hc_batch *batch) {
    plane *p = (plane *)data;
    p->on_device = batch->memory == HC_MEMORY_CUDA;
    if (p->on_device)
        return start_on_device(p, batch);
    int status = p->host->ops->start(p->host, batch);
    p->base.text = p->host->text;
    return status;
}

static int test(hc_data *data) {
    plane *p = (plane *)data;
    if (!p->on_device) {
        int status = p->host->ops->test(p->host);
        p->base.text = p->host->text;
        return status;
    }
    if (!p->staged.batch)
        return HC_DONE;
    hc_gpu_context before = hc_device_enter(p->device);
    int status = hc__staged_test(&p->staged);
    hc_device_leave(p->device, before);
    p->base.naps = p->staged.waits;
    return say(p, status);
}

static void abandon(hc_data *data) {
    plane *p = (plane *)data;
    p->host->ops->abandon(p->host);
    p->staged.batch = NULL;
    p->base.naps = 0;
}

static void destroy(hc_data *data) {
    plane *p = (plane *)data;
    if (p->staged.device) {
        hc_gpu_context before = hc_device_enter(p->device);
        hc__staged_close(&p->staged);
        hc_device_leave(p->device, before);
    }
    if (!p->borrowed)
        hc_device_close(p->device);
    p->host->ops->free(p->host);
    free(p);
}

static const struct hc_data_ops plane_ops = {
    .name = "device", .start = start, .test = test, .abandon = abandon, .free = destroy};

const char *hc_device_data_facts(const hc_data *data) {
    const plane *p = (const plane *)data;
    return p->staged.device ? "staged through the host" : "";
}

int hc_device_data_new(const hc_device_data_config *config, hc_data *host, hc_net *net, hc_data **data) {
    (void)net;
    *data = NULL;
    plane *p = calloc(1, sizeof *p);
    if (!p)
        return HC_NO_MEMORY;
    p->base.ops = &plane_ops;
    p->config = *config;
    p->host = host;
    p->staged.host = host;
    p->staged.rank = config->place.set_rank;
    p->staged.size = config->place.set_size;
    p->staged.chunk_bytes = config->place.chunk_bytes;
    *data = &p->base;
    return HC_OK;
}
