/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.c - copies between tensors and pinned memory: one by one, or packed on the device into one copy.
 */
#include "cuda/staged/copies.h"

#include <stdlib.h>

/* On an H200 a copy of 4 bytes between device and host takes 6 to 7 us, and one of 256 KiB at the link's rate 5 more.
 * Packing takes a launch and a second pass over the bytes inside the device. */
#define FEW 4
#define LARGE_BYTES ((int64_t)256 << 10)
#define LEAST_BYTES ((int64_t)64 << 10) /* of a stage; doubles, so outgrown memory is less than the current */

int hc__copies_add(hc__copies *c, const void *address, int64_t bytes, int64_t place) {
    if (bytes == 0)
        return HC_OK;
    if (c->n == c->room) {
        int32_t room = 2 * c->room + 8;
        hc__copy *of = realloc(c->of, (size_t)room * sizeof *of);
        if (of)
            c->of = of;
        hc_pack_tensor *tensors = realloc(c->tensors, (2 * (size_t)room + 1) * sizeof *tensors);
        if (tensors)
            c->tensors = tensors;
        if (!of || !tensors)
            return HC_NO_MEMORY;
        c->room = room;
    }
    c->of[c->n++] = (hc__copy){hc__address(address), bytes, place, 1.0};
    return HC_OK;
}

void hc__copies_free(hc__copies *c) {
    free(c->of);
    free(c->tensors);
    *c = (hc__copies){0};
}

/* A gap becomes a tensor without an address: the packer skips its place. */
int hc__copies_tensors(hc__copies *c, int64_t size, int64_t buffer_size) {
    int64_t place = c->n ? c->of[0].place : 0;
    int n = 0;
    if (place % HC_PACK_UNIT)
        return -1;
    for (int32_t i = 0; i < c->n; i++) {
        const hc__copy *copy = &c->of[i];
        if (copy->place < place || copy->place % HC_PACK_UNIT)
            return -1;
        if (copy->place > place)
            c->tensors[n++] = (hc_pack_tensor){0, (copy->place - place) / buffer_size};
        c->tensors[n++] = (hc_pack_tensor){copy->address, copy->bytes / size};
        place = copy->place + hc__aligned(copy->bytes / size * buffer_size);
    }
    return n;
}

/* ---- a buffer on the device ----------------------------------------------------------------------------------- */

/* Packs all ranges with this factor (usually one factor for all); the others get no address, so the packer skips
 * them. */
static int pack_scaled(hc__copies *c, const hc__launch *to, int dtype, char *buffer, double scale) {
    int64_t size = (int64_t)hc_dtype_size(dtype);
    int count = hc__copies_tensors(c, size, size), at = 0;
    for (int32_t i = 0; i < c->n; i++, at++) {
        while (c->tensors[at].address != c->of[i].address)
            at++;
        if (c->of[i].scale != scale)
            c->tensors[at].address = 0;
    }
    hc_pack_order order = {.tensors = c->tensors,
                           .n = count,
                           .tensor = dtype,
                           .buffer = dtype,
                           .scale = scale,
                           .divisor = 1.0,
                           .at = hc__address(buffer + c->of[0].place)};
    return hc__device_pack(to->device, &order, to->stream, to->text, to->room);
}

int hc__copies_pack(hc__copies *c, const hc__launch *to, int dtype, char *buffer) {
    int status = HC_OK;
    for (int32_t i = 0; i < c->n && status == HC_OK; i++) {
        int32_t first = 0;
        while (first < i && c->of[first].scale != c->of[i].scale)
            first++;
        if (first == i)
            status = pack_scaled(c, to, dtype, buffer, c->of[i].scale);
    }
    return status;
}

int hc__copies_unpack(hc__copies *c, const hc__launch *to, int dtype, const char *buffer, int buffer_dtype,
                      double divisor) {
    if (c->n == 0)
        return HC_OK;
    int count = hc__copies_tensors(c, (int64_t)hc_dtype_size(dtype), (int64_t)hc_dtype_size(buffer_dtype));
    hc_pack_order order = {.tensors = c->tensors,
                           .n = count,
                           .tensor = dtype,
                           .buffer = buffer_dtype,
                           .unpack = 1,
                           .scale = 1.0,
                           .divisor = divisor,
                           .at = hc__address(buffer + c->of[0].place)};
    return hc__device_pack(to->device, &order, to->stream, to->text, to->room);
}

/* ---- the stage ----------------------------------------------------------------------------------------------- */

int hc__stage_reserve(hc__stage *s, int64_t bytes) {
    if (s->host && bytes <= s->bytes) /* also for no bytes: a tensor without an address asks for a new result */
        return HC_OK;
    void *host;
    int64_t room = LEAST_BYTES;
    while (room < bytes)
        room *= 2;
    bytes = room;
    hc__stage_free(s);
    int status = hc__device_take(s->device, HC__PINNED, (size_t)bytes, &host);
    s->host = host;
    s->bytes = status == HC_OK ? bytes : 0;
    return status;
}

void hc__stage_free(hc__stage *s) {
    hc__device_give(s->device, s->host);
    hc__device_give(s->device, s->packed);
    s->host = NULL;
    s->packed = NULL;
    s->bytes = 0;
}

/* ---- launching ------------------------------------------------------------------------------------------------- */

static int is_worth_packing(const hc__copies *c) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->n; i++)
        bytes += c->of[i].bytes;
    return c->n > FEW && bytes / c->n < LARGE_BYTES;
}

static int copy_one(const hc__stage *s, const hc__copy *c, int up, hc_gpu_stream stream) {
    const hc_driver *d = &s->device->driver;
    return up ? d->to_device(c->address, s->host + c->place, (size_t)c->bytes, stream)
              : d->to_host(s->host + c->place, c->address, (size_t)c->bytes, stream);
}

static int launch_each(const hc__copies *c, const hc__stage *s, int up, hc_gpu_stream stream) {
    int status = 0;
    for (int32_t i = 0; i < c->n && !status; i++)
        status = copy_one(s, &c->of[i], up, stream);
    return status;
}

/* `n` tensors, in the copies' table. */
static int launch_packed(hc__copies *c, const hc__launch *to, hc__stage *s, int n, int dtype, int up) {
    const hc__copy *last = &c->of[c->n - 1];
    int64_t first = c->of[0].place;
    hc__copy whole = {hc__address(s->packed) + (hc_gpu_address)first, last->place + last->bytes - first, first, 1.0};
    hc_pack_order order = {.tensors = c->tensors,
                           .n = n,
                           .tensor = dtype,
                           .buffer = dtype,
                           .unpack = up,
                           .scale = 1.0,
                           .divisor = 1.0,
                           .at = whole.address};
    int status = up ? copy_one(s, &whole, up, to->stream) : 0; /* a retry repeats this copy: no harm */
    if (!status) {
        int packed = hc__device_pack(to->device, &order, to->stream, to->text, to->room);
        if (packed)
            return packed;
        status = up ? 0 : copy_one(s, &whole, up, to->stream);
    }
    return hc__device_failed(s->device, status, "copying packed tensors", to->text, to->room);
}

int hc__copies_launch(hc__copies *c, const hc__launch *to, hc__stage *s, int dtype, int up) {
    int64_t size = (int64_t)hc_dtype_size(dtype);
    int n = is_worth_packing(c) ? hc__copies_tensors(c, size, size) : -1;
    if (n > 0 && !s->packed && hc__device_take(s->device, HC__ON_DEVICE, (size_t)s->bytes, &s->packed) < 0)
        n = -1; /* copies one by one need no device memory */
    if (n > 0)
        return launch_packed(c, to, s, n, dtype, up);
    return hc__device_failed(s->device, launch_each(c, s, up, to->stream), "copying tensors", to->text, to->room);
}
