/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_launch.c - loads the pack kernels from their text and launches them.
 *
 * A driver of any age since CUDA 11 compiles the text when it is first loaded, for the card that is there, and keeps the
 * result in its cache: no compiler of ours is needed where hpccoll is built or runs.
 */
#include "pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 2048u /* at most, in a launch: several waves on any card, and a long run of chunks for each */

static const char text[] =
#include "pack.ptx.inc"
    ;

static int failed(hc_packer *packer, const char *what, int status) {
    snprintf(packer->text, sizeof packer->text, "%s: %s (%d)", what, hc_driver_text(packer->driver, status),
             status);
    return HC_TRANSPORT;
}

int hc_packer_open(hc_packer *packer, const hc_driver *driver) {
    memset(packer, 0, sizeof *packer);
    packer->driver = driver;
    int status = driver->module_load(&packer->module, text);
    if (status)
        return failed(packer, "loading the pack kernels", status);
    for (int i = 0; i < HC_PACK_KERNELS && !status; i++) {
        status = driver->module_function(&packer->function[i], packer->module, hc_pack_kernel_name(i));
        if (status)
            return failed(packer, hc_pack_kernel_name(i), status);
    }
    for (int i = 0; i < HC_PACK_TABLES; i++) {
        status = driver->event_new(&packer->table[i].used, HC_EVENT_DISABLE_TIMING);
        if (status)
            return failed(packer, "making an event", status);
    }
    return HC_OK;
}

static void free_table(hc_packer *packer, int i) {
    if (packer->table[i].device)
        packer->driver->memory_free(packer->table[i].device);
    if (packer->table[i].host)
        packer->driver->host_free(packer->table[i].host);
    packer->table[i].device = 0;
    packer->table[i].host = NULL;
    packer->table[i].room = 0;
}

void hc_packer_close(hc_packer *packer) {
    for (int i = 0; i < HC_PACK_TABLES; i++) {
        free_table(packer, i);
        if (packer->table[i].used)
            packer->driver->event_free(packer->table[i].used);
    }
    if (packer->module)
        packer->driver->module_free(packer->module);
    free(packer->entries);
    memset(packer, 0, sizeof *packer);
}

/* Room for n entries, with some to spare: this happens seldom (freeing device memory waits for the device). */
static int grow_table(hc_packer *packer, int i, int n) {
    int room = 2 * n, status;
    void *host = NULL;
    if (packer->table[i].room >= n)
        return HC_OK;
    free_table(packer, i);
    status = packer->driver->host_new(&host, (size_t)room * sizeof(hc_pack_entry), HC_HOST_MEMORY_PORTABLE);
    if (status)
        return failed(packer, "pinned memory for the table of tensors", status);
    packer->table[i].host = host;
    status = packer->driver->memory_new(&packer->table[i].device, (size_t)room * sizeof(hc_pack_entry));
    if (status)
        return failed(packer, "device memory for the table of tensors", status);
    packer->table[i].room = room;
    return HC_OK;
}

/* Brings the entries to the device; 1: the table is still read. */
static int send_table(hc_packer *packer, int n, hc_pack_job *job, hc_gpu_stream stream) {
    int i = packer->next, status = packer->driver->event_query(packer->table[i].used);
    if (status == HC_DRIVER_NOT_READY)
        return 1;
    if (status)
        return failed(packer, "asking an event", status);
    status = grow_table(packer, i, n);
    if (status < 0)
        return status;
    size_t bytes = (size_t)n * sizeof(hc_pack_entry);
    memcpy(packer->table[i].host, packer->entries, bytes);
    status = packer->driver->to_device(packer->table[i].device, packer->table[i].host, bytes, stream);
    job->table = packer->table[i].device;
    return status ? failed(packer, "copying the table of tensors", status) : HC_OK;
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
    int status = hc_pack_choose(order->tensor, order->buffer, order->scale, order->unpack, kind);
    if (status == HC_OK)
        status = hc_pack_plan(order->tensors, order->n, kind, packer->entries, chunks, &bytes);
    if (status < 0)
        snprintf(packer->text, sizeof packer->text, "%s", hc_status_text(status));
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
                       .unpack = (unsigned)order->unpack};
    if (n <= HC_PACK_INLINE)
        memcpy(job.entry, packer->entries, (size_t)n * sizeof(hc_pack_entry));
    else
        status = send_table(packer, n, &job, stream);
    if (status)
        return status;
    void *arguments[] = {&job};
    status = packer->driver->launch(packer->function[kind.kernel], chunks < BLOCKS ? chunks : BLOCKS, 1, 1,
                                    HC_PACK_THREADS, 1, 1, 0, stream, arguments, NULL);
    if (!status && job.table) {
        status = packer->driver->event_record(packer->table[packer->next].used, stream);
        packer->next = (packer->next + 1) % HC_PACK_TABLES;
    }
    return status ? failed(packer, hc_pack_kernel_name(kind.kernel), status) : HC_OK;
}
