/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_buffers.c - copies between a caller's array and the pinned memory of its message, each ordered after the caller's
 * stream.
 */
#include "cuda/staged/p2p_buffers.h"

#include <stdio.h>
#include <stdlib.h>

static int failed(hc__p2p_buffers *p, int status, const char *what) {
    return hc__device_failed(p->device, status, what, p->text, sizeof p->text);
}

static int open_streams(hc__p2p_buffers *p, hc_device *device) {
    const hc_driver *d = &device->driver;
    p->device = device;
    int status = d->stream_new(&p->down, HC_STREAM_NON_BLOCKING, 0);
    if (!status)
        status = d->stream_new(&p->up, HC_STREAM_NON_BLOCKING, 0);
    return failed(p, status, "making streams");
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

/* Frees the memory of copies that have ended. Every open and close of a staging buffer calls this. */
static void collect(hc__p2p_buffers *p) {
    hc__p2p_copy **link = &p->leaving;
    while (*link) {
        hc__p2p_copy *copy = *link;
        if (p->device->driver.event_query(copy->over) == HC_DRIVER_NOT_READY) {
            link = &copy->next;
            continue;
        }
        hc__device_give(p->device, copy->memory);
        *link = copy->next;
        copy->next = p->spare;
        p->spare = copy;
    }
}

static int new_copy(hc__p2p_buffers *p, hc__p2p_copy **copy) {
    *copy = p->spare;
    if (*copy) {
        p->spare = (*copy)->next;
        return HC_OK;
    }
    *copy = calloc(1, sizeof **copy);
    if (!*copy)
        return HC_NO_MEMORY;
    int status = p->device->driver.event_new(&(*copy)->over, HC_EVENT_DISABLE_TIMING);
    if (!status)
        return HC_OK;
    free(*copy);
    return failed(p, status, "making an event");
}

static int board(hc__p2p_buffers *p, hc_staging *staging) {
    hc__p2p_copy *copy = NULL;
    int status = new_copy(p, &copy);
    if (status < 0)
        return status;
    status = hc__device_take(p->device, HC__PINNED, staging->bytes, &copy->memory);
    if (status < 0) {
        snprintf(p->text, sizeof p->text, "device %d (%s): no memory for a message of %llu bytes, pinned on the host",
                 p->device->number, p->device->pci, (unsigned long long)staging->bytes);
        copy->next = p->spare;
        p->spare = copy;
        return status;
    }
    staging->host = copy->memory;
    staging->own = copy;
    return HC_OK;
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

/* The copy waits for the caller's event `ready`; the caller's stream waits for `finished` before it uses the array
 * again. */
static int move(hc__p2p_buffers *p, const hc_staging *staging, int up) {
    const hc_driver *d = &p->device->driver;
    hc_gpu_stream stream = up ? p->up : p->down;
    const hc__p2p_copy *copy = staging->own;
    int status = hc__follow(d, stream, staging->ready);
    if (!status)
        status = up ? d->to_device(hc__address(staging->device), staging->host, staging->bytes, stream)
                    : d->to_host(staging->host, hc__address(staging->device), staging->bytes, stream);
    if (!status)
        status = d->event_record(staging->finished, stream);
    if (!status)
        status = d->event_record(copy->over, stream);
    return failed(p, status, up ? "copying what was received" : "copying what is sent");
}

int hc__p2p_buffer_open(hc__p2p_buffers *p, hc_device *device, hc_staging *staging, int sends) {
    int status = p->device ? HC_OK : open_streams(p, device);
    if (status < 0)
        return status;
    collect(p);
    status = board(p, staging);
    return status < 0 || !sends ? status : move(p, staging, 0);
}

int hc__p2p_buffer_test(hc__p2p_buffers *p, const hc_staging *staging) {
    const hc__p2p_copy *copy = staging->own;
    int status = p->device->driver.event_query(copy->over);
    if (status == HC_DRIVER_NOT_READY)
        return HC_IDLE;
    status = failed(p, status, "copying what is sent");
    return status < 0 ? status : HC_DONE;
}

int hc__p2p_buffer_deliver(hc__p2p_buffers *p, const hc_staging *staging) {
    return move(p, staging, 1);
}

void hc__p2p_buffer_close(hc__p2p_buffers *p, hc_staging *staging) {
    hc__p2p_copy *copy = staging->own;
    copy->next = p->leaving;
    p->leaving = copy;
    staging->own = staging->host = NULL;
    collect(p);
}

static void free_copies(const hc__p2p_buffers *p, hc__p2p_copy *copy) {
    while (copy) {
        hc__p2p_copy *next = copy->next;
        p->device->driver.event_free(copy->over);
        free(copy);
        copy = next;
    }
}

void hc__p2p_buffers_free(hc__p2p_buffers *p) {
    if (!p->device)
        return;
    int over = hc__stream_ends(p->device, p->down) & hc__stream_ends(p->device, p->up);
    collect(p);
    free_copies(p, p->leaving);
    free_copies(p, p->spare);
    if (p->down && over)
        p->device->driver.stream_free(p->down);
    if (p->up && over)
        p->device->driver.stream_free(p->up);
}
