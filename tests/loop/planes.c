/* SPDX-License-Identifier: Apache-2.0
 *
 * planes.c - a set has a data plane for each kind of memory; their batches run one at a time, in the order of its log.
 *
 * usage: planes host|both|fails     batches of the host alone; of both kinds in turn; a plane that cannot be made
 *
 * One rank. Its second plane has no device: it writes a mark into what is said to lie on one, after some tests, and
 * sees to it that it is never given a batch of the host, nor a second one beside the first.
 */
#include "worlds.h"

#define BATCHES 40
#define TESTS 5

typedef struct plane {
    hc_data base;
    hc_batch *batch;
    int tests;
} plane;

static int made, freed;
static int64_t order[BATCHES], started;

static int start(hc_data *data, hc_batch *batch) {
    plane *p = (plane *)data;
    CHECK(batch->memory == HC_MEMORY_CUDA && !p->batch);
    order[started++] = *(int64_t *)batch->pieces[0].out;
    p->batch = batch;
    p->tests = 0;
    return HC_OK;
}

static int test(hc_data *data) {
    plane *p = (plane *)data;
    if (++p->tests < TESTS)
        return HC_MOVED;
    *(int64_t *)p->batch->pieces[0].out = -1;
    p->batch = NULL;
    return HC_DONE;
}

static void abandon(hc_data *data) {
    ((plane *)data)->batch = NULL;
}

static void free_plane(hc_data *data) {
    CHECK(!((plane *)data)->batch);
    free(data);
    freed++;
}

static const struct hc_data_ops ops = {
    .name = "marks", .start = start, .test = test, .abandon = abandon, .free = free_plane};

static int make(hc_plane_maker *maker, int memory, hc_data **data, char *text) {
    (void)maker;
    (void)text;
    CHECK(memory == HC_MEMORY_CUDA);
    plane *p = calloc(1, sizeof *p);
    CHECK(p);
    p->base.ops = &ops;
    *data = &p->base;
    made++;
    return HC_OK;
}

static int refuse(hc_plane_maker *maker, int memory, hc_data **data, char *text) {
    (void)maker;
    (void)memory;
    (void)data;
    snprintf(text, HC_PLANE_TEXT, "there is no such thing");
    return HC_UNSUPPORTED;
}

static void free_maker(hc_plane_maker *maker) {
    (void)maker;
    CHECK(made == freed);
    freed += 100;
}

static hc_handle *submit(hc_loop *loop, int i, int memory, int64_t *value) {
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    hc_handle *handle = sum_of(name, value, 1);
    handle->request.memory = (uint8_t)memory;
    hc_loop_submit(loop, handle, 0);
    return handle;
}

/* START and END of batches in turn, by number. */
static void check_order(hc_loop *loop) {
    static hc_trace_record records[16 * BATCHES];
    uint64_t next = 0, last = 0;
    size_t n = hc_loop_trace_read(loop, &next, records, sizeof records / sizeof *records);
    int open = 0;
    for (size_t i = 0; i < n; i++) {
        if (records[i].kind != HC_TRACE_START && records[i].kind != HC_TRACE_END)
            continue;
        CHECK(open == (records[i].kind == HC_TRACE_END));
        CHECK(open ? records[i].batch == last : records[i].batch > last || last == 0);
        last = records[i].batch;
        open = !open;
    }
    CHECK(!open);
}

static void run_both(hc_loop *loop, int both) {
    int64_t values[BATCHES];
    hc_handle *handles[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        values[i] = i;
        handles[i] = submit(loop, i, both && i % 3 ? HC_MEMORY_CUDA : HC_MEMORY_HOST, &values[i]);
    }
    for (int i = 0; i < BATCHES; i++) {
        CHECK(finish(loop, handles[i]) == HC_OK);
        CHECK(values[i] == (both && i % 3 ? -1 : i));
    }
    CHECK(made == both);
    for (int i = 1; i < started; i++)
        CHECK(order[i] > order[i - 1]);
    check_order(loop);
}

static void run_failure(hc_loop *loop) {
    int64_t value = 1;
    hc_handle *handle = submit(loop, 0, HC_MEMORY_CUDA, &value);
    while (!hc_loop_wait(loop, &handle, 1, 50000000)) {}
    CHECK(handle->status == HC_TRANSPORT && strstr(handle->text, "there is no such thing"));
    CHECK(hc_loop_broken(loop) && value == 1);
    hc_handle_release(handle);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int fails = !strcmp(argv[1], "fails");
    hc_plane_maker maker = {fails ? refuse : make, free_maker};
    worlds w = {
        .maker = &maker,
        .knobs = {
            .engine = {.cache_capacity = 64, .fusion_threshold = 1, .raise_bytes = 1 << 20, .raise_window = 1000000},
            .wire = HC_WIRE_SAME}};
    worlds_prepare(&w, 1, 1);
    hc_loop *loop = worlds_join(&w, 0);
    if (fails)
        run_failure(loop);
    else
        run_both(loop, !strcmp(argv[1], "both"));
    if (fails)
        hc_loop_free(loop);
    else
        worlds_leave(&w, 0);
    CHECK(freed == 100 + made);
    worlds_end(&w);
    puts("fine");
    return 0;
}
