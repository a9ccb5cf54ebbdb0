/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_contract.c - what is counted on of a driver: order in a stream, events between streams, errors that come late.
 *
 *     driver_contract LIBRARY                the contract; with a real driver, too
 *     driver_contract LIBRARY late|broken    of the fake only: work that has not begun, work that fails
 */
#include <string.h>

#include "check.h"

enum { N = 1 << 16, ROUNDS = 20 };
static hc_driver d;

static hc_gpu_stream new_stream(void) {
    hc_gpu_stream s;
    CHECK(d.stream_new(&s, HC_STREAM_NON_BLOCKING, 0) == 0);
    return s;
}

static hc_gpu_address new_memory(size_t bytes) {
    hc_gpu_address a;
    CHECK(d.memory_new(&a, bytes) == 0 && a % 256 == 0);
    return a;
}

static char *new_host(size_t bytes) {
    void *p;
    CHECK(d.host_new(&p, bytes, HC_HOST_MEMORY_PORTABLE) == 0);
    return p;
}

/* In one stream: up, across, down, in order. */
static void order_in_a_stream(void) {
    hc_gpu_stream s = new_stream();
    hc_gpu_address a = new_memory(N), b = new_memory(N);
    char *up = new_host(N), *down = new_host(N);
    for (int i = 0; i < N; i++)
        up[i] = (char)(i * 7);
    CHECK(d.to_device(a, up, N, s) == 0 && d.on_device(b, a, N, s) == 0 && d.to_host(down, b, N, s) == 0);
    CHECK(d.stream_wait(s) == 0 && d.stream_query(s) == 0);
    CHECK(memcmp(up, down, N) == 0);
    CHECK(d.memory_free(a) == 0 && d.memory_free(b) == 0 && d.stream_free(s) == 0);
    CHECK(d.host_free(up) == 0 && d.host_free(down) == 0);
}

/* Two streams hand one buffer to and fro by events; each round must see the other's bytes. */
static void events_between_streams(void) {
    hc_gpu_stream s[2] = {new_stream(), new_stream()};
    hc_gpu_event e;
    hc_gpu_address a = new_memory(1);
    char *up = new_host(ROUNDS), *down = new_host(ROUNDS);
    CHECK(d.event_new(&e, HC_EVENT_DISABLE_TIMING) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        up[i] = (char)(i + 1);
        CHECK(d.to_device(a, up + i, 1, s[0]) == 0);
        CHECK(d.event_record(e, s[0]) == 0 && d.stream_wait_event(s[1], e, 0) == 0);
        CHECK(d.to_host(down + i, a, 1, s[1]) == 0);
        CHECK(d.event_record(e, s[1]) == 0 && d.stream_wait_event(s[0], e, 0) == 0);
    }
    while (d.event_query(e) == HC_DRIVER_NOT_READY)
        ;
    CHECK(d.event_query(e) == 0 && d.event_wait(e) == 0);
    CHECK(memcmp(up, down, ROUNDS) == 0);
    CHECK(d.event_free(e) == 0 && d.stream_free(s[0]) == 0 && d.stream_free(s[1]) == 0);
    CHECK(d.memory_free(a) == 0 && d.host_free(up) == 0 && d.host_free(down) == 0);
}

/* Waiting for an event that was never recorded is no wait; freeing one that is in use is no harm. */
static void events_that_nobody_recorded(void) {
    hc_gpu_stream s = new_stream();
    hc_gpu_event e;
    CHECK(d.event_new(&e, HC_EVENT_DISABLE_TIMING) == 0 && d.event_query(e) == 0);
    CHECK(d.stream_wait_event(s, e, 0) == 0 && d.event_record(e, s) == 0 && d.event_free(e) == 0);
    CHECK(d.stream_wait(s) == 0 && d.stream_free(s) == 0);
}

/* Which device is current, and which one an address lies on; the host's lies on none. */
static void places(void) {
    hc_gpu_context context = NULL;
    hc_gpu_address a = new_memory(N);
    int device = -1, here = -1;
    CHECK(d.context_now(&context) == 0 && context && d.context_device(&device) == 0 && device == 0);
    CHECK(d.pointer_fact(&here, HC_POINTER_DEVICE, a + N - 1) == 0 && here == 0);
    CHECK(d.pointer_fact(&here, HC_POINTER_DEVICE, (hc_gpu_address)(uintptr_t)&device) != 0);
    CHECK(d.memory_free(a) == 0);
}

static void misuse(void) {
    hc_gpu_module m;
    hc_gpu_address a;
    CHECK(d.memory_new(&a, 0) != 0);
    CHECK(d.module_load(&m, "this is no PTX") != 0);
    CHECK(strlen(hc_driver_text(&d, 12345)) > 0);
}

/* Lazy: a copy is not made by its call, and takes what the host has when the stream comes to it. */
static void late(void) {
    hc_gpu_stream s = new_stream();
    hc_gpu_address a = new_memory(4);
    char *up = new_host(4), *down = new_host(4);
    memcpy(up, "old", 4);
    memcpy(down, "...", 4);
    CHECK(d.to_device(a, up, 4, s) == 0 && d.to_host(down, a, 4, s) == 0);
    CHECK(strcmp(down, "...") == 0);
    memcpy(up, "new", 4);
    CHECK(d.stream_query(s) == HC_DRIVER_NOT_READY && d.stream_wait(s) == 0);
    CHECK(strcmp(down, "new") == 0);
    CHECK(d.to_device(a + 1, up, 4, s) == 1); /* beyond the end */
    CHECK(d.memory_free(a) == 0 && d.host_free(up) == 0 && d.host_free(down) == 0 && d.stream_free(s) == 0);
}

/* FAKE_CUDA_FAIL=work:700:2: the second piece of work fails, and then everything does. */
static void broken(void) {
    hc_gpu_stream s = new_stream();
    hc_gpu_address a = new_memory(4);
    CHECK(d.to_device(a, "one", 4, s) == 0 && d.stream_wait(s) == 0);
    int status = d.to_device(a, "two", 4, s);
    CHECK(status == 0 || status == 700);
    CHECK(d.stream_wait(s) == 700 && d.stream_query(s) == 700 && d.memory_new(&a, 4) == 700);
    CHECK(strstr(hc_driver_text(&d, 700), "illegal memory access"));
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    open_driver(&d, argv[1]);
    if (argc > 2 && strcmp(argv[2], "late") == 0)
        late();
    else if (argc > 2)
        broken();
    else {
        order_in_a_stream();
        events_between_streams();
        events_that_nobody_recorded();
        places();
        misuse();
    }
    printf("%d, %d devices\n", d.version, d.devices);
    return 0;
}
