/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c - sums and conversions of shards on the device, and the events that tell their end.
 */
#include "cuda/nccl/sums.h"

#include <stdio.h>

static int failed(hc__sums *s, int status, const char *what) {
    return hc__device_failed(s->device, status, what, s->text, sizeof s->text);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static void *sums_alloc(hc_arithmetic *base, size_t bytes) {
    hc__sums *s = (hc__sums *)base;
    void *memory;
    if (hc__device_take(s->device, HC__ON_DEVICE, bytes, &memory) < 0)
        snprintf(s->text, sizeof s->text, "device %d (%s): no memory for %zu bytes between nodes", s->device->number,
                 s->device->pci, bytes);
    return memory;
}

static void sums_release(hc_arithmetic *base, void *memory) {
    hc__sums *s = (hc__sums *)base;
    hc_device_result_free(s->device, memory, s->stream);
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------- */

/* Gives the launched work a number, and records an event after it. */
static int note(hc__sums *s) {
    uint64_t number = s->base.issued++;
    return failed(s, s->device->driver.event_record(s->events[number % HC__SUMS_EVENTS], s->stream),
                  "recording an event");
}

/* Uses the packer's cast, which needs `to` at a multiple of 16; parts of shards are. */
static int sums_convert(hc_arithmetic *base, void *to, int to_dtype, const void *from, int from_dtype, int64_t n) {
    hc__sums *s = (hc__sums *)base;
    hc_pack_tensor tensor = {hc__address(from), n};
    hc_pack_order order = {.tensors = &tensor,
                           .n = 1,
                           .tensor = from_dtype,
                           .buffer = to_dtype,
                           .scale = 1.0,
                           .divisor = 1.0,
                           .at = hc__address(to)};
    int status = hc__device_pack(s->device, &order, s->stream, s->text, sizeof s->text);
    return status < 0 ? status : note(s);
}

static int sums_reduce(hc_arithmetic *base, void *to, const void *const *from, int n_from, int dtype, int reduction,
                       int64_t n, double divisor) {
    hc__sums *s = (hc__sums *)base;
    hc_sum_order order = {to, from, n_from, dtype, reduction, n, divisor};
    int status = hc__device_sum(s->device, &order, s->stream, s->text, sizeof s->text);
    return status < 0 ? status : note(s);
}

/* An event that was reused belongs to later work of the same stream, so its end implies this one's. */
static int sums_ended(hc_arithmetic *base, uint64_t issued) {
    hc__sums *s = (hc__sums *)base;
    if (issued <= s->over)
        return HC_DONE;
    int status = s->device->driver.event_query(s->events[(issued - 1) % HC__SUMS_EVENTS]);
    if (status == HC_DRIVER_NOT_READY) {
        s->waits = 1;
        return HC_IDLE;
    }
    s->over = issued;
    status = failed(s, status, "a sum between nodes");
    return status < 0 ? status : HC_DONE;
}

static const struct hc_arithmetic_ops sums_ops = {sums_alloc, sums_release, sums_convert, sums_reduce, sums_ended};

/* ---- open, close ------------------------------------------------------------------------------------------------ */

static void *enter(void *device) {
    return hc_device_enter(device);
}

static void leave(void *device, void *before) {
    hc_device_leave(device, before);
}

int hc__sums_open(hc__sums *s, hc_device *device, hc_net *net) {
    *s = (hc__sums){.base = {.ops = &sums_ops, .whole_messages = 1}, .device = device};
    int status = device->driver.stream_new(&s->stream, HC_STREAM_NON_BLOCKING, 0);
    for (int i = 0; i < HC__SUMS_EVENTS && !status; i++)
        status = device->driver.event_new(&s->events[i], HC_EVENT_DISABLE_TIMING);
    hc_scope context = {enter, leave, device};
    s->net = net;
    if (net->ops->surround)
        net->ops->surround(net, &context);
    return failed(s, status, "making a stream and events");
}

void hc__sums_close(hc__sums *s) {
    if (!s->device)
        return;
    const hc_driver *d = &s->device->driver;
    int over = hc__stream_ends(s->device, s->stream);
    for (int i = 0; i < HC__SUMS_EVENTS; i++)
        if (s->events[i])
            d->event_free(s->events[i]);
    if (s->stream && over)
        d->stream_free(s->stream);
    if (s->net->ops->surround)
        s->net->ops->surround(s->net, NULL);
    s->device = NULL;
}
