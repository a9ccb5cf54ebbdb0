/* SPDX-License-Identifier: Apache-2.0
 *
 * device_failures.c - what a device's data plane says and does when things go wrong; ranks as threads, the fakes.
 *
 *     device_failures LAYOUT facts [OPERATION]     one sum; what its batches run on, or why they do not
 *     device_failures LAYOUT sizes of 1000, 16384, 16385, 50000 elements: how many went which way
 *     device_failures LAYOUT watched [OPERATION]   one sum is launched and never ends: what the watch says; then all is
 *                                                  given up
 *     device_failures LAYOUT idle [OPERATION]      two sums, with more than all patience in between
 *     device_failures LAYOUT alone      the last rank does not come
 *     device_failures 0 results         memory of results: not used again before its reader has read it
 *     device_failures 0 opening         devices that are not there
 */
#define ON_DEVICE 1
#include "transport/emulated.h"

#define COUNT 50000

static int operation = HC_ALLREDUCE;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Float32 elements on the device, summed or what was asked for: what came of it, once it is launched. */
static int launch(rank_state *s, int64_t count, double seconds) {
    static float values[MAX_RANKS][COUNT];
    static int64_t splits[MAX_RANKS][2 * MAX_RANKS];
    on_device *d = &s->device;
    void *ready = d->ready, *finished = d->finished;
    static hc_piece pieces[MAX_RANKS]; /* who gives up after a failure looks at the batch again */
    static hc_batch batches[MAX_RANKS];
    hc_piece *piece = &pieces[s->rank];
    hc_batch *batch = &batches[s->rank];
    *batch = rows_of(operation, piece, values[s->rank], count, splits[s->rank]);
    piece->in = pointer(bring(d, values[s->rank], sizeof values[0]));
    piece->out = piece->out ? (void *)(uintptr_t)piece->in : NULL;
    batch->memory = HC_MEMORY_CUDA;
    batch->ncalls = 1;
    batch->ready = &ready;
    batch->finished = &finished;
    OK(d->device->driver.event_record(d->ready, d->stream));
    int status = s->data->ops->start(s->data, batch);
    for (double end = now() + seconds; status >= 0 && status != HC_DONE && now() < end; sched_yield())
        status = s->data->ops->test(s->data);
    return status;
}

static void say(const rank_state *s, const char *what, int status) {
    printf("%d %s %s: %s\n", s->rank, what, status == HC_DONE ? "DONE" : hc_status_name(status),
           status < 0 && s->data->text ? s->data->text : hc_device_data_facts(s->data));
}

/* Gives up; then nothing of it is under way. */
static void leave(rank_state *s) {
    s->data->ops->abandon(s->data);
    s->device.host->ops->abandon(s->device.host);
    drop_rank(s);
}

static void run_facts(int32_t rank) {
    rank_state s;
    make_rank(&s, rank, 0, nets[rank]);
    int status = launch(&s, COUNT, 20);
    say(&s, "batch", status);
    if (status == HC_DONE)
        OK(s.device.device->driver.event_wait(s.device.finished));
    leave(&s);
}

static void run_idle(int32_t rank) {
    rank_state s;
    make_rank(&s, rank, 0, nets[rank]);
    for (int i = 0; i < 2; i++) {
        CHECK(launch(&s, COUNT, 20) == HC_DONE, "%s", s.data->text ? s.data->text : "");
        OK(s.device.device->driver.event_wait(s.device.finished));
        if (i == 0)
            nanosleep(&(struct timespec){2, 0}, NULL);
    }
    leave(&s);
}

static void run_sizes(int32_t rank) {
    static const int64_t counts[] = {1000, 16384, 16385, COUNT};
    rank_state s;
    make_rank(&s, rank, 0, nets[rank]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        CHECK(launch(&s, counts[i], 20) == HC_DONE, "%s", s.data->text ? s.data->text : "");
        OK(s.device.device->driver.event_wait(s.device.finished));
    }
    printf("%d staged %d, fast %d\n", rank, (int)hc_device_data_count(s.data, HC_PATH_STAGED),
           (int)hc_device_data_count(s.data, HC_PATH_NCCL));
    leave(&s);
}

static void run_watched(int32_t rank) {
    rank_state s;
    make_rank(&s, rank, 0, nets[rank]);
    CHECK(launch(&s, COUNT, 20) == HC_DONE, "%s", s.data->text ? s.data->text : "");
    int status = HC_OK;
    for (double end = now() + 5; status >= 0 && now() < end; sched_yield())
        status = s.data->ops->watch(s.data);
    say(&s, "watch", status);
    CHECK(s.device.device->driver.event_query(s.device.finished) == HC_DRIVER_NOT_READY, "ended by itself");
    s.data->ops->abandon(s.data);
    s.device.host->ops->abandon(s.device.host);
    OK(s.device.device->driver.event_wait(s.device.finished));
    drop_rank(&s);
}

static void run_alone(int32_t rank) {
    rank_state s;
    make_rank(&s, rank, 0, nets[rank]);
    if (rank < size - 1)
        say(&s, "batch", launch(&s, COUNT, 1));
    leave(&s);
}

static void run_results(int32_t rank) {
    rank_state s;
    void *first, *second, *third;
    make_rank(&s, rank, 0, nets[rank]);
    on_device *d = &s.device;
    const hc_driver *driver = &d->device->driver;
    char byte = 1;
    CHECK(hc_device_result_new(d->device, 5000, &first) == HC_OK, "memory");
    OK(driver->to_device((hc_gpu_address)(uintptr_t)first, &byte, 1, d->stream)); /* lazy: not before it is asked */
    hc_device_result_free(d->device, first, d->stream);
    CHECK(hc_device_result_new(d->device, 5000, &second) == HC_OK && second != first, "used before its time");
    OK(driver->stream_wait(d->stream));
    CHECK(hc_device_result_new(d->device, 4900, &third) == HC_OK && third == first, "not used again");
    hc_device_result_free(d->device, second, d->stream);
    hc_device_result_free(d->device, third, d->stream);
    CHECK(hc_device_of(d->device, third) == 0 && hc_device_of(d->device, &byte) < 0, "which device");
    leave(&s);
}

static void run_opening(int32_t rank) {
    static char why[HC_DEVICE_WHY];
    hc_device *device = NULL;
    const hc_device_files files = device_files(), none = {"/no/such/file", files.kernels};
    (void)rank;
    CHECK(hc_device_open(7, &files, &device, why) == HC_UNSUPPORTED && !device, "open");
    printf("%s\n", why);
    CHECK(hc_device_open_at(why, &files, &device, why) == HC_INVALID && !device, "open");
    printf("%s\n", why);
    CHECK(hc_device_open(0, &none, &device, why) == HC_UNSUPPORTED && !device, "open");
    printf("%s\n", why);
    if (hc_device_open(HC_DEVICE_CURRENT, &files, &device, why) < 0)
        printf("%s\n", why);
    hc_device_close(device);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(int32_t);
    } runs[] = {{"facts", run_facts}, {"sizes", run_sizes},     {"watched", run_watched}, {"idle", run_idle},
                {"alone", run_alone}, {"results", run_results}, {"opening", run_opening}};
    CHECK(argc == 3 || argc == 4, "usage: see the head of this file");
    operation = argc == 4 ? operation_named(argv[3]) : HC_ALLREDUCE;
    setvbuf(stdout, NULL, _IOLBF, 0);
    make_job(argv[1]);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (strcmp(argv[2], runs[i].name) == 0)
            run_threads(size, runs[i].run);
    drop_job();
    return 0;
}
