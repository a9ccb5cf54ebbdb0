/* SPDX-License-Identifier: Apache-2.0
 *
 * on_device.h - runs a test's batches on a device: its tensors are brought there and back, in a caller's stream.
 *
 * Nothing is waited for before the data plane has the batch: inputs are on their way, and what stands in the outputs is
 * still being written, behind the event `ready`. Right behind `finished` the inputs are overwritten.
 */
#ifndef ON_DEVICE_H
#define ON_DEVICE_H

#include "transport/net_threads.h"
#include "cuda/driver/device.h"

typedef struct on_device {
    hc_device *device;
    hc_gpu_stream stream;
    hc_gpu_event ready, finished;
    hc_data *host, *data; /* the set's planes for host memory and for the device's */
} on_device;

/* One tensor of a batch, twice. */
typedef struct shadow {
    hc_piece host;
    size_t in_bytes, out_bytes;
    hc_gpu_address in, out;
} shadow;

#define OK(call) CHECK((call) == 0, "%s", "of the driver")

/* Tests run in the root of the repository. */
static inline hc_device_files device_files(void) {
    return (hc_device_files){getenv("HPCCOLL_CUDA_LIBRARY"), "hpccoll/_kernels"};
}

static inline hc_device_data_config device_config(const hc_hierarchy_config *place) {
    static const char *const no_files[] = {NULL};
    const char *mode = getenv("TEST_DEVICE_MODE"), *other = getenv("TEST_NCCL_OF_RANK_1");
    const char *patience = getenv("TEST_PATIENCE_MS"), *aware = getenv("TEST_GPU_AWARE");
    const char *small = getenv("TEST_SMALL");
    static const char *proofs[MAX_RANKS][2];
    if (place->set_rank != 1 || !getenv("TEST_NO_PROOF_ON_RANK_1"))
        proofs[place->set_rank][0] = getenv("TEST_PROOF");
    return (hc_device_data_config){
        .number = HC_DEVICE_CURRENT,
        .files = device_files(),
        .nccl_library = other && place->set_rank == 1 ? other : getenv("HPCCOLL_NCCL_LIBRARY"),
        .nccl_files = no_files,
        .gpu_aware = {aware ? hc_gpu_aware_named(aware) : HC_GPU_AWARE_NO, proofs[place->set_rank], NULL},
        .small = small ? atoi(small) : 0,
        .mode = mode ? hc_device_mode_named(mode) : HC_DEVICE_STAGED,
        .shares_device = getenv("TEST_OWN_DEVICES") == NULL,
        .patience = 1000000 * (patience ? (uint64_t)atoi(patience) : 60000)};
}

static inline hc_data *device_open(on_device *d, const hc_hierarchy_config *place, hc_data *host, hc_net *net) {
    static char why[MAX_RANKS][HC_DEVICE_WHY];
    hc_device_data_config config = device_config(place);
    hc_plane_parts parts = {HC_PLANE_VERSION, *place, host, net, hc_hierarchy_new, hc_host_neutral};
    char *text = why[place->set_rank];
    CHECK(hc_device_open(config.number, &config.files, &d->device, text) == HC_OK, "%s", text);
    config.device = &d->device;
    d->host = host;
    hc_device_enter(d->device);
    OK(d->device->driver.stream_new(&d->stream, HC_STREAM_NON_BLOCKING, 0));
    OK(d->device->driver.event_new(&d->ready, HC_EVENT_DISABLE_TIMING));
    OK(d->device->driver.event_new(&d->finished, HC_EVENT_DISABLE_TIMING));
    CHECK(hc_device_data_new(&config, &parts, &d->data) == HC_OK, "device data plane");
    return d->data;
}

static inline void device_close(on_device *d) {
    const hc_driver *driver = &d->device->driver;
    d->data->ops->free(d->data);
    d->host->ops->free(d->host);
    OK(driver->event_free(d->ready));
    OK(driver->event_free(d->finished));
    OK(driver->stream_free(d->stream));
    hc_device_close(d->device);
}

static inline hc_gpu_address bring(on_device *d, const void *from, size_t bytes) {
    hc_gpu_address to;
    OK(d->device->driver.memory_new(&to, bytes + 16));
    if (bytes)
        OK(d->device->driver.to_device(to, from, bytes, d->stream));
    return to;
}

static inline void *pointer(hc_gpu_address at) {
    return (void *)(uintptr_t)at;
}

static inline void shadow_piece(on_device *d, const hc_batch *b, hc_piece *piece, shadow *s) {
    size_t size = hc_dtype_size(b->dtype), all = (size_t)piece->count * size;
    int sized = b->operation == HC_ALLREDUCE || b->operation == HC_BROADCAST;
    *s = (shadow){.host = *piece, .in_bytes = all, .out_bytes = sized ? all : (size_t)piece->out_capacity};
    if (piece->in)
        s->in = bring(d, piece->in, s->in_bytes);
    if (piece->out)
        s->out = piece->out == piece->in ? s->in : bring(d, piece->out, s->out_bytes);
    piece->in = pointer(s->in);
    piece->out = pointer(s->out);
}

/* The result, fetched behind the event; then the tensors are overwritten and freed. */
static inline void unshadow_piece(on_device *d, const hc_batch *b, hc_piece *piece, shadow *s) {
    const hc_driver *driver = &d->device->driver;
    size_t bytes = s->out_bytes;
    void *owned = piece->out_owned ? piece->out : NULL;
    if (owned) {
        bytes = (size_t)(piece->out_rows * piece->row) * hc_dtype_size(b->dtype);
        s->host.out = hc_result_new(bytes);
    }
    if (bytes && piece->out)
        OK(driver->to_host(s->host.out, (hc_gpu_address)(uintptr_t)piece->out, bytes, d->stream));
    void *poison = memset(malloc(s->in_bytes + 1), 0xEE, s->in_bytes + 1);
    if (s->in && s->in_bytes)
        OK(driver->to_device(s->in, poison, s->in_bytes, d->stream));
    OK(driver->stream_wait(d->stream));
    free(poison);
    if (s->in)
        OK(driver->memory_free(s->in));
    if (s->out && s->out != s->in)
        OK(driver->memory_free(s->out));
    hc_device_result_free(d->device, owned, d->stream);
    piece->in = s->host.in;
    piece->out = s->host.out;
}

/* HC_DONE, or a status; `run` gives the batch to the data plane and asks until it has ended. */
static inline int run_on_device(on_device *d, hc_batch *batch, int (*run)(hc_data *, hc_batch *, void *),
                                void *context) {
    const hc_driver *driver = &d->device->driver;
    shadow *shadows = malloc((size_t)batch->npieces * sizeof *shadows + 1);
    void *ready = d->ready, *finished = d->finished;
    for (int32_t i = 0; i < batch->npieces; i++)
        shadow_piece(d, batch, &batch->pieces[i], &shadows[i]);
    OK(driver->event_record(d->ready, d->stream));
    batch->memory = HC_MEMORY_CUDA;
    batch->ncalls = 1;
    batch->ready = &ready;
    batch->finished = &finished;
    int status = run(d->data, batch, context);
    OK(driver->stream_wait_event(d->stream, d->finished, 0));
    for (int32_t i = 0; i < batch->npieces; i++)
        unshadow_piece(d, batch, &batch->pieces[i], &shadows[i]);
    free(shadows);
    return status;
}

#endif
