/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.c - measures how fast one rank moves batches on its device, beside raw copies:
 *
 *     rates MODE REPEATS MEBIBYTES [KIBIBYTES of a chunk; 0: by the size of a batch]
 *
 * It prints lines of JSON: what, bytes, seconds (of every repeat, sorted). "launched" ends when the data plane has
 * launched its work, "finished" when the device has done it. One rank does not show links between devices, other ranks
 * or networks.
 */
#include "device_program.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hc_device *device;
static const hc_driver *driver;
static hc_data *host, *data;
static hc_device_files files;
static hc_gpu_stream stream, other;
static hc_gpu_event ready, finished;
static hc_gpu_address tensor, tensor2;
static void *pinned, *pinned2;
static double *took;
static int repeats;

static void print(const char *what, size_t bytes) {
    printf("{\"what\": \"%s\", \"bytes\": %zu, ", what, bytes);
    print_seconds(took, repeats);
}

/* ---- raw copies --------------------------------------------------------------------------------------------- */

static void copy_down(size_t bytes) {
    CHECK(driver->to_host(pinned, tensor, bytes, stream) == 0);
}

static void copy_up(size_t bytes) {
    CHECK(driver->to_device(tensor, pinned, bytes, stream) == 0);
}

static void copy_both(size_t bytes) {
    copy_down(bytes);
    CHECK(driver->to_device(tensor2, pinned2, bytes, other) == 0);
}

static void measure_copy(const char *what, void (*copy)(size_t), size_t bytes) {
    for (int i = -1; i < repeats; i++) { /* the first is not counted */
        double begin = now();
        copy(bytes);
        CHECK(driver->stream_wait(stream) == 0 && driver->stream_wait(other) == 0);
        took[i < 0 ? 0 : i] = now() - begin;
    }
    print(what, bytes);
}

/* ---- batches ------------------------------------------------------------------------------------------------ */

static double sum(size_t bytes, double *launched) {
    void *const r = ready, *const f = finished;
    void *at = (void *)(uintptr_t)tensor;
    hc_piece piece = {.in = at, .out = at, .count = (int64_t)bytes / 4, .row = 1, .scale = 1.0};
    hc_batch batch = {.operation = HC_ALLREDUCE,
                      .reduction = HC_SUM,
                      .dtype = HC_FLOAT32,
                      .wire_dtype = HC_FLOAT32,
                      .memory = HC_MEMORY_CUDA,
                      .root = -1,
                      .divisor = 1,
                      .count = piece.count,
                      .npieces = 1,
                      .pieces = &piece,
                      .ncalls = 1,
                      .ready = &r,
                      .finished = &f};
    double begin = now();
    CHECK(driver->event_record(ready, stream) == 0);
    int status = data->ops->start(data, &batch);
    while (status >= 0 && status != HC_DONE)
        status = data->ops->test(data);
    *launched = now() - begin;
    if (status < 0)
        fprintf(stderr, "%s\n", data->text ? data->text : hc_status_text(status));
    CHECK(status == HC_DONE && driver->event_wait(finished) == 0);
    return now() - begin;
}

static void measure_sum(size_t bytes, int until_launched) {
    double launched, whole;
    for (int i = -3; i < repeats; i++) {
        whole = sum(bytes, &launched);
        took[i < 0 ? 0 : i] = until_launched ? launched : whole;
    }
    print(until_launched ? "sum, launched" : "sum, finished", bytes);
}

/* Checks that a sum over one rank leaves the values as they are. */
static void verify(size_t bytes) {
    double launched;
    for (size_t i = 0; i < bytes / 4; i++)
        ((float *)pinned)[i] = (float)(i % 1000);
    CHECK(driver->to_device(tensor, pinned, bytes, stream) == 0);
    sum(bytes, &launched);
    memset(pinned, 0xEE, bytes);
    CHECK(driver->to_host(pinned, tensor, bytes, stream) == 0 && driver->stream_wait(stream) == 0);
    for (size_t i = 0; i < bytes / 4; i++)
        CHECK(((float *)pinned)[i] == (float)(i % 1000));
}

/* ---- one rank ----------------------------------------------------------------------------------------------- */

static void make_device(size_t bytes) {
    device = open_device(&files);
    driver = &device->driver;
    CHECK(driver->stream_new(&stream, HC_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(driver->stream_new(&other, HC_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(driver->event_new(&ready, HC_EVENT_DISABLE_TIMING) == 0);
    CHECK(driver->event_new(&finished, HC_EVENT_DISABLE_TIMING) == 0);
    CHECK(driver->memory_new(&tensor, bytes) == 0 && driver->memory_new(&tensor2, bytes) == 0);
    CHECK(driver->host_new(&pinned, bytes, HC_HOST_MEMORY_PORTABLE) == 0);
    CHECK(driver->host_new(&pinned2, bytes, HC_HOST_MEMORY_PORTABLE) == 0);
}

static void make_data(const char *mode, int64_t chunk_bytes) {
    static const int32_t zero[] = {0};
    static const char *const no_files[] = {NULL};
    hc_segment control_segment, node_segment;
    hc_node_control *node_control;
    hc_node *node;
    CHECK(hc_segment_private(&control_segment, hc_node_control_bytes(1)) == HC_OK);
    CHECK(hc_segment_private(&node_segment, hc_shm_bytes(1)) == HC_OK);
    CHECK(hc_node_control_new(&control_segment, 0, 1, zero, &node_control) == HC_OK);
    CHECK(hc_shm_node_new(node_segment, node_control, zero, 0, 1, &node) == HC_OK);
    hc_plane_parts parts = {.version = HC_PLANE_VERSION,
                            .place = {.set_size = 1, .members = zero, .node_of = zero, .chunk_bytes = chunk_bytes},
                            .neutral = hc_host_neutral,
                            .new_hierarchy = hc_hierarchy_new};
    hc_device_data_config config = {.device = &device,
                                    .files = files,
                                    .nccl_library = getenv("HPCCOLL_NCCL_LIBRARY"),
                                    .nccl_files = no_files,
                                    .mode = hc_device_mode_named(mode),
                                    .patience = 60000000000};
    CHECK(hc_hierarchy_new(&parts.place, node, NULL, &host) == HC_OK);
    parts.host = host;
    CHECK(hc_device_data_new(&config, &parts, &data) == HC_OK);
}

int main(int argc, char **argv) {
    CHECK(argc >= 4 && hc_device_mode_named(argv[1]) >= 0);
    files = (hc_device_files){getenv("HPCCOLL_CUDA_LIBRARY"),
                              "hpccoll/_kernels"}; /* relative to the repository's root */
    repeats = atoi(argv[2]);
    size_t most = (size_t)atoi(argv[3]) << 20;
    CHECK(repeats > 0 && most > 0);
    took = calloc((size_t)repeats, sizeof *took);
    make_device(most);
    make_data(argv[1], argc > 4 ? (int64_t)atoi(argv[4]) << 10 : 0);
    verify(most);
    fprintf(stderr, "%s\n", hc_device_data_facts(data));
    for (size_t bytes = 4; bytes <= most; bytes *= bytes < 65536 ? 16384 : 4) {
        measure_copy("down", copy_down, bytes);
        measure_copy("up", copy_up, bytes);
        measure_copy("down and up", copy_both, bytes);
        measure_sum(bytes, 1);
        measure_sum(bytes, 0);
    }
    data->ops->free(data);
    host->ops->free(host);
    return 0;
}
