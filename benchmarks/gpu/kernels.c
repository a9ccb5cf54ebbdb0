/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c - compares all kernels on this GPU with those of the host, aligned and not: kernels [LIBRARY]
 *
 * Values are small whole numbers, exact in every type, so that results are equal to the bit. The program is short, so
 * that compute-sanitizer can check it. Bytes behind a tensor must not change.
 */
#include "device_program.h"
#include "cuda/kernels/pack.h"
#include "cuda/kernels/sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 200        /* more than a launch's arguments hold */
#define LONGEST 20000      /* elements: several chunks */
#define SOURCES 5          /* of a sum */
#define MARK 0xA5          /* in bytes that must not change */
#define GAP ((size_t)64)   /* such bytes behind each tensor */
#define WIDEST ((size_t)8) /* bytes of an element */

static hc_device *device;
static const hc_driver *driver;
static hc_gpu_stream stream;
static hc_packer packer;
static hc_summer summer;
static int verified;

static hc_gpu_address new_memory(size_t bytes) {
    hc_gpu_address at;
    CHECK(driver->memory_new(&at, bytes) == 0);
    return at;
}

static void bring(hc_gpu_address to, const void *from, size_t bytes) {
    CHECK(driver->to_device(to, from, bytes, stream) == 0 && driver->stream_wait(stream) == 0);
}

static void fetch(void *to, hc_gpu_address from, size_t bytes) {
    CHECK(driver->stream_wait(stream) == 0 && driver->to_host(to, from, bytes, stream) == 0 &&
          driver->stream_wait(stream) == 0);
}

static void *new_host(size_t bytes) {
    void *memory = malloc(bytes);
    CHECK(memory);
    return memset(memory, MARK, bytes);
}

/* Writes n whole numbers from -`most` to `most` (unsigned: from 0), which depend on the seed. */
static void fill(void *to, int dtype, int64_t n, int most, int64_t seed) {
    int is_unsigned = dtype == HC_UINT8 || dtype == HC_UINT16 || dtype == HC_UINT32 || dtype == HC_UINT64;
    size_t size = hc_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t whole = (i * 7 + seed * 3) % (2 * most + 1) - (is_unsigned ? 0 : most);
        float number = (float)whole;
        if (dtype >= HC_FLOAT16)
            hc_host_convert((char *)to + (size_t)i * size, dtype, &number, HC_FLOAT32, 1, 1.0);
        else
            memcpy((char *)to + (size_t)i * size, &whole, size); /* little-endian */
    }
}

/* ---- packing --------------------------------------------------------------------------------------------------- */

static int64_t count_of(int i) {
    return i == 3 ? LONGEST : i % 37;
}

/* Places tensors with gaps between them, the first one `shift` bytes after an aligned address; returns all bytes. */
static size_t lay(hc_pack_tensor *tensors, hc_gpu_address base, size_t size, size_t shift) {
    size_t at = shift;
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = (hc_pack_tensor){base + at, count_of(i)};
        at += ((size_t)count_of(i) * size + GAP + size - 1) / size * size;
    }
    return at;
}

static size_t buffer_bytes(size_t size) {
    size_t bytes = 0;
    for (int i = 0; i < TENSORS; i++)
        bytes += ((size_t)count_of(i) * size + HC_PACK_UNIT - 1) / HC_PACK_UNIT * HC_PACK_UNIT;
    return bytes;
}

static void launch_pack(const hc_pack_tensor *tensors, int tensor, int buffer, int unpack, double scale,
                        hc_gpu_address at) {
    hc_pack_order order = {tensors, TENSORS, tensor, buffer, unpack, scale, 1.0, at};
    int status;
    do
        status = hc_pack_launch(&packer, &order, stream);
    while (status == 1);
    if (status < 0)
        fprintf(stderr, "%s\n", packer.module.text);
    CHECK(status == HC_OK);
}

/* Packs with a factor, and unpacks with its inverse: the buffer has the scaled values, and no other byte changes. */
static void there_and_back(int tensor, int buffer, double scale, size_t shift) {
    size_t size = hc_dtype_size(tensor), narrow = hc_dtype_size(buffer), packed_bytes = buffer_bytes(narrow);
    hc_pack_tensor tensors[TENSORS];
    size_t bytes = lay(tensors, 0, size, shift) + GAP;
    char *sent = new_host(bytes), *got = new_host(bytes), *packed = new_host(packed_bytes),
         *wanted = new_host(packed_bytes), *marks = new_host(bytes);
    hc_gpu_address base = new_memory(bytes), at = new_memory(packed_bytes);
    size_t place = 0;
    for (int i = 0; i < TENSORS; i++) {
        char *values = sent + tensors[i].address;
        fill(values, tensor, tensors[i].count, 100, i);
        if (tensor == buffer && scale == 1.0)
            memcpy(wanted + place, values, (size_t)tensors[i].count * size);
        else
            hc_host_convert(wanted + place, buffer, values, tensor, tensors[i].count, scale);
        place += ((size_t)tensors[i].count * narrow + HC_PACK_UNIT - 1) / HC_PACK_UNIT * HC_PACK_UNIT;
    }
    bring(at, packed, packed_bytes);
    bring(base, sent, bytes);
    lay(tensors, base, size, shift);
    launch_pack(tensors, tensor, buffer, 0, scale, at);
    fetch(packed, at, packed_bytes);
    CHECK(!memcmp(packed, wanted, packed_bytes));
    bring(base, marks, bytes);
    launch_pack(tensors, tensor, buffer, 1, 1.0 / scale, at);
    fetch(got, base, bytes);
    CHECK(!memcmp(got, sent, bytes));
    CHECK(driver->memory_free(base) == 0 && driver->memory_free(at) == 0);
    char *const memory[] = {sent, got, packed, wanted, marks};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    verified += 2;
}

static void pack_all(void) {
    static const int copied[] = {HC_UINT8, HC_INT16, HC_INT32, HC_INT64};
    for (int tensor = HC_FLOAT16; tensor <= HC_FLOAT64; tensor++)
        for (int buffer = HC_FLOAT16; buffer <= HC_FLOAT64; buffer++)
            for (size_t shift = 0; shift < 16; shift += 8) {
                there_and_back(tensor, buffer, 0.5, shift);
                there_and_back(tensor, buffer, 1.0, shift);
            }
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        for (size_t shift = 0; shift < 16; shift += 8)
            there_and_back(copied[i], copied[i], 1.0, shift);
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

/* `aligned`: all arrays begin at multiples of 16 bytes, so that the kernel uses vectors. */
static void add_up(int dtype, int reduction, int64_t n, int aligned) {
    size_t size = hc_dtype_size(dtype), bytes = (size_t)n * size, room = (size_t)(LONGEST + 16) * WIDEST;
    static hc_gpu_address memory[SOURCES];
    static char *host[SOURCES];
    const void *from[SOURCES], *from_host[SOURCES];
    char *wanted = new_host(bytes + GAP), *got = new_host(bytes + GAP);
    for (int q = 0; q < SOURCES; q++) {
        memory[q] = memory[q] ? memory[q] : new_memory(room);
        host[q] = host[q] ? host[q] : new_host(room);
        fill(host[q], dtype, n, 2, q);
        memset(host[q] + bytes, MARK, GAP);
        hc_gpu_address at = memory[q] + (aligned ? 0 : size);
        bring(at, host[q], bytes + GAP);
        from[q] = (const void *)(uintptr_t)at;
        from_host[q] = host[q];
    }
    hc_host_reduce(wanted, dtype, from_host, SOURCES, dtype, reduction, n, 1.0, 1.0);
    hc_sum_order order = {(void *)(uintptr_t)from[0], from, SOURCES, dtype, reduction, n};
    int status = hc_sum_launch(&summer, &order, stream);
    if (status < 0)
        fprintf(stderr, "%s\n", summer.text);
    CHECK(status == HC_OK);
    fetch(got, (hc_gpu_address)(uintptr_t)from[0], bytes + GAP);
    CHECK(!memcmp(got, wanted, bytes + GAP));
    free(wanted);
    free(got);
    verified++;
}

static void add_all(void) {
    static const int reductions[] = {HC_SUM, HC_PRODUCT, HC_MIN, HC_MAX};
    for (int dtype = 0; dtype < HC_DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < sizeof reductions / sizeof *reductions && hc_sum_kernel(dtype) >= 0; i++) {
            add_up(dtype, reductions[i], LONGEST, 1);
            add_up(dtype, reductions[i], 1 + dtype, 0);
        }
}

int main(int argc, char **argv) {
    const hc_device_files files = {argc > 1 ? argv[1] : NULL, "hpccoll/_kernels"};
    device = open_device(&files);
    driver = &device->driver;
    CHECK(driver->stream_new(&stream, HC_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(hc_packer_open(&packer, driver, files.kernels) == HC_OK &&
          hc_summer_open(&summer, driver, files.kernels) == HC_OK);
    pack_all();
    add_all();
    hc_packer_close(&packer);
    hc_summer_close(&summer);
    CHECK(driver->stream_free(stream) == 0);
    hc_device_close(device);
    printf("{\"what\": \"launches of kernels with the host's values\", \"count\": %d}\n", verified);
    return 0;
}
