/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_launch.c - launches the pack kernels; first copies a long table of tensors to the device.
 */
#include "cuda/kernels/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const hc_module_text texts = {"the pack kernels", "pack.ptx", hc_pack_kernel_name, HC_PACK_KERNELS};

int hc_packer_open(hc_packer *packer, const hc_driver *driver, const char *folder) {
    memset(packer, 0, sizeof *packer);
    int status = hc_module_open(&packer->module, driver, &texts, folder);
    if (status < 0)
        return status;
    for (int i = 0; i < HC_PACK_TABLES; i++) {
        status = driver->event_new(&packer->table[i].used, HC_EVENT_DISABLE_TIMING);
        if (status)
            return hc_module_failed(&packer->module, "making an event", status);
    }
    return HC_OK;
}

static void free_table(hc_packer *packer, int i) {
    if (packer->table[i].device)
        packer->module.driver->memory_free(packer->table[i].device);
    if (packer->table[i].host)
        packer->module.driver->host_free(packer->table[i].host);
    packer->table[i].device = 0;
    packer->table[i].host = NULL;
    packer->table[i].room = 0;
}

void hc_packer_close(hc_packer *packer) {
    for (int i = 0; i < HC_PACK_TABLES; i++) {
        free_table(packer, i);
        if (packer->table[i].used)
            packer->module.driver->event_free(packer->table[i].used);
    }
    hc_module_close(&packer->module);
    free(packer->entries);
    memset(packer, 0, sizeof *packer);
}

/* Makes room for 2 n entries, so that it seldom grows: freeing device memory waits for the device. */
static int grow_table(hc_packer *packer, int i, int n) {
    int room = 2 * n, status;
    void *host = NULL;
    if (packer->table[i].room >= n)
        return HC_OK;
    free_table(packer, i);
    status = packer->module.driver->host_new(&host, (size_t)room * sizeof(hc_pack_entry), HC_HOST_MEMORY_PORTABLE);
    if (status)
        return hc_module_failed(&packer->module, "pinned memory for the table of tensors", status);
    packer->table[i].host = host;
    status = packer->module.driver->memory_new(&packer->table[i].device, (size_t)room * sizeof(hc_pack_entry));
    if (status)
        return hc_module_failed(&packer->module, "device memory for the table of tensors", status);
    packer->table[i].room = room;
    return HC_OK;
}

/* Copies the entries to the device: OK; HC_PACK_BUSY: a launch still reads the table; else a status. */
static int send_table(hc_packer *packer, int n, hc_pack_job *job, hc_gpu_stream stream) {
    int i = packer->next, status = packer->module.driver->event_query(packer->table[i].used);
    if (status == HC_DRIVER_NOT_READY)
        return HC_PACK_BUSY;
    if (status)
        return hc_module_failed(&packer->module, "asking an event", status);
    status = grow_table(packer, i, n);
    if (status < 0)
        return status;
    size_t bytes = (size_t)n * sizeof(hc_pack_entry);
    memcpy(packer->table[i].host, packer->entries, bytes);
    status = packer->module.driver->to_device(packer->table[i].device, packer->table[i].host, bytes, stream);
    job->table = packer->table[i].device;
    return status ? hc_module_failed(&packer->module, "copying the table of tensors", status) : HC_OK;
}

static int plan(hc_packer *packer, const hc_pack_order *order, hc_pack_kind *kind, unsigned *chunks) {
    int64_t bytes;
    if (order->n > packer->room) {
        hc_pack_entry *more = realloc(packer->entries, (size_t)order->n * sizeof *more);
        if (!more)
            return HC_NO_MEMORY;
        packer->entries = more;
        packer->room = order->n;
    }
    int status = hc_pack_choose(order->tensor, order->buffer, order->scale, order->divisor, order->unpack, kind);
    if (status == HC_OK)
        status = hc_pack_plan(order->tensors, order->n, kind, packer->entries, chunks, &bytes);
    if (status < 0)
        snprintf(packer->module.text, sizeof packer->module.text, "%s", hc_status_text(status));
    return status;
}

int hc_pack_launch(hc_packer *packer, const hc_pack_order *order, hc_gpu_stream stream) {
    hc_pack_kind kind;
    unsigned chunks = 0;
    int n = plan(packer, order, &kind, &chunks), status = HC_OK;
    if (n <= 0)
        return n;
    hc_pack_job job = {.buffer = order->at,
                       .scale = order->scale,
                       .entries = (unsigned)n,
                       .chunks = chunks,
                       .unpack = (unsigned)order->unpack,
                       .divisor = (float)order->divisor};
    if (n <= HC_PACK_INLINE)
        memcpy(job.entry, packer->entries, (size_t)n * sizeof(hc_pack_entry));
    else
        status = send_table(packer, n, &job, stream);
    if (status)
        return status;
    status = hc_module_launch(&packer->module, kind.kernel, chunks, HC_PACK_THREADS, &job, stream);
    if (status < 0 || !job.table)
        return status;
    status = packer->module.driver->event_record(packer->table[packer->next].used, stream);
    packer->next = (packer->next + 1) % HC_PACK_TABLES;
    return status ? hc_module_failed(&packer->module, "recording an event", status) : HC_OK;
}
