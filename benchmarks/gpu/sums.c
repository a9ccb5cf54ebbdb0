/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c - measures the kernels that add up 2 to 8 arrays, beside one copy inside the device: sums REPEATS MEBIBYTES
 *
 * It prints lines of JSON: what, inputs, dtype, bytes (read and written), seconds (of every repeat, sorted).
 */
#include "device_program.h"
#include "cuda/kernels/sum.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_INPUTS 8
#define CALLS 10 /* per repeat; the device is waited for once */

static hc_device *device;
static const hc_driver *driver;
static hc_gpu_stream stream;
static hc_summer summer;
static hc_gpu_address array[MOST_INPUTS + 1];
static double *took;
static int repeats;

static void copy_once(int inputs, int dtype, size_t bytes) {
    (void)inputs, (void)dtype;
    CHECK(driver->on_device(array[MOST_INPUTS], array[0], bytes, stream) == 0);
}

static void sum_once(int inputs, int dtype, size_t bytes) {
    const void *from[MOST_INPUTS];
    for (int q = 0; q < inputs; q++)
        from[q] = (const void *)(uintptr_t)array[q];
    hc_sum_order order = {.to = (void *)(uintptr_t)array[MOST_INPUTS],
                          .from = from,
                          .n_from = inputs,
                          .dtype = dtype,
                          .reduction = HC_SUM,
                          .count = (int64_t)(bytes / hc_dtype_size(dtype))};
    CHECK(hc_sum_launch(&summer, &order, stream) == HC_OK);
}

static void measure(const char *what, void (*once)(int, int, size_t), int inputs, int dtype, size_t bytes) {
    for (int i = -1; i < repeats; i++) { /* the first is not counted */
        double begin = now();
        for (int k = 0; k < CALLS; k++)
            once(inputs, dtype, bytes);
        CHECK(driver->stream_wait(stream) == 0);
        took[i < 0 ? 0 : i] = (now() - begin) / CALLS;
    }
    printf("{\"what\": \"%s\", \"inputs\": %d, \"dtype\": \"%s\", \"bytes\": %zu, ", what, inputs, hc_dtype_name(dtype),
           (size_t)(inputs + 1) * bytes);
    print_seconds(took, repeats);
}

int main(int argc, char **argv) {
    static const int dtypes[] = {HC_FLOAT32, HC_FLOAT16, HC_BFLOAT16};
    const hc_device_files files = {getenv("HPCCOLL_CUDA_LIBRARY"), "hpccoll/_kernels"}; /* from the repository's root */
    CHECK(argc == 3);
    repeats = atoi(argv[1]);
    size_t bytes = (size_t)atoi(argv[2]) << 20;
    CHECK(repeats > 0 && bytes > 0);
    took = calloc((size_t)repeats, sizeof *took);
    device = open_device(&files);
    driver = &device->driver;
    CHECK(driver->stream_new(&stream, HC_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(hc_summer_open(&summer, driver, files.kernels) == HC_OK);
    for (int q = 0; q <= MOST_INPUTS; q++)
        CHECK(driver->memory_new(&array[q], bytes) == 0);
    for (size_t size = 1 << 20; size <= bytes; size *= 8) {
        measure("one copy", copy_once, 1, HC_FLOAT32, size);
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
            for (int inputs = 2; inputs <= MOST_INPUTS; inputs += inputs < 4 ? 1 : 4)
                measure("sum", sum_once, inputs, dtypes[t], size);
    }
    hc_summer_close(&summer);
    hc_device_close(device);
    return 0;
}
