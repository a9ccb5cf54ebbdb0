/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.c - a driver without a GPU: "device" memory is the host's, streams are queues, kernels are host functions.
 *
 * Nothing runs in a thread of its own: work moves when somebody calls, in an order that the environment chooses,
 * so that a test that passes always passes.
 *     FAKE_CUDA_ORDER=eager    each piece of work runs as soon as its stream's order allows
 *     FAKE_CUDA_ORDER=lazy     nothing runs before somebody waits or asks
 *     FAKE_CUDA_ORDER=<seed>   each call lets a few pieces of random streams run, some of them delayed
 *     FAKE_CUDA_FAIL=cuMemAlloc_v2:2:3    the third call of cuMemAlloc_v2 gives status 2
 *     FAKE_CUDA_FAIL=work:700:5           the fifth piece of work fails; from then on every call gives 700
 *     FAKE_CUDA_DEVICES=2
 */
#include "fake.h"
#include "names.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201 };

typedef struct work {
    struct work *next;
    int (*run)(void *);
    void *data;
    unsigned delay; /* times that it is passed over although it could run */
} work;
typedef struct stream {
    struct stream *next;
    work *head, **tail;
} stream;
typedef struct event {
    uint64_t recorded, reached; /* tickets: of the last record, and of the last one that its stream came to */
    int users;
} event;
typedef struct block {
    struct block *next;
    uint64_t address, bytes;
    int device, kind; /* HC_MEMORY_OF_DEVICE, or pinned */
} block;
enum { PINNED = 1 };

static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static stream *streams, thread_stream = {.tail = &thread_stream.head},
                        default_stream = {.next = &thread_stream, .tail = &default_stream.head};
static block *blocks;
static char contexts[16]; /* of the devices: their addresses only */
static __thread void *current;
static uint64_t random_state;
static int eager, broken, fail_status, fail_after;
static char fail_name[64];

/* ---- the order in which work runs ------------------------------------------------------------------ */

static void start(void) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    const char *order = getenv("FAKE_CUDA_ORDER"), *fail = getenv("FAKE_CUDA_FAIL");
    eager = !order || strcmp(order, "eager") == 0;
    random_state = order ? strtoull(order, NULL, 10) : 0; /* 0: lazy */
    if (fail && sscanf(fail, "%63[^:]:%d:%d", fail_name, &fail_status, &fail_after) != 3)
        abort();
    streams = &default_stream;
}

static unsigned below(unsigned n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 32) % n;
}

static int fails(const char *name) {
    if (strcmp(name, fail_name) == 0 && fail_after > 0 && --fail_after == 0)
        return fail_status;
    return 0;
}

static int try_stream(stream *s) {
    work *w = s->head;
    if (!w || (w->delay > 0 && w->delay--) || !w->run(w->data))
        return 0;
    if (!broken)
        broken = fails("work");
    s->head = w->next;
    if (!s->head)
        s->tail = &s->head;
    free(w);
    return 1;
}

/* Every stream gets its chance once, from a random one on; how many pieces ran. */
static int sweep(void) {
    int ran = 0;
    unsigned n = 0;
    for (stream *s = streams; s; s = s->next)
        n++;
    stream *s = streams;
    for (unsigned skip = random_state ? below(n) : 0; skip; skip--)
        s = s->next;
    for (; n; n--, s = s->next ? s->next : streams)
        ran += try_stream(s);
    return ran;
}

/* What a call lets happen: everything, nothing, or a little. */
static void go_on(int asked) {
    if (eager)
        while (sweep() > 0)
            ;
    else if (random_state)
        for (unsigned n = below(3); n; n--)
            sweep();
    else if (asked)
        sweep();
}

static int enter(const char *name) {
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    int status = fails(name);
    return broken ? broken : status;
}

int fake_failure(const char *name) {
    int status = enter(name);
    pthread_mutex_unlock(&lock);
    return status;
}

static int leave(int status) {
    pthread_mutex_unlock(&lock);
    return status;
}

#define ENTER(name)           \
    int status = enter(name); \
    if (status)               \
    return leave(status)

/* The driver's own handles: 0 and 1 the default stream, 2 the thread's (one for all threads here). */
static stream *stream_of(void *handle) {
    uintptr_t number = (uintptr_t)handle;
    return number == 2 ? &thread_stream : number < 2 ? &default_stream : handle;
}

int fake_enqueue(void *handle, int (*run)(void *), void *data) {
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    stream *s = stream_of(handle);
    work *w = malloc(sizeof *w);
    *w = (work){.run = run, .data = data, .delay = random_state && !eager ? below(4) : 0};
    *s->tail = w;
    s->tail = &w->next;
    go_on(0);
    return leave(broken);
}

/* ---- devices and memory ------------------------------------------------------------------------------- */

int fake_init(unsigned flags) {
    ENTER("cuInit");
    return leave(flags ? INVALID_VALUE : 0);
}

int fake_get_version(int *version) {
    *version = 12080;
    return 0;
}

int fake_error_text(int status, const char **text) {
    *text = status == OUT_OF_MEMORY ? "out of memory"
            : status == NO_DEVICE   ? "no CUDA-capable device is detected"
            : status == 700         ? "an illegal memory access was encountered"
                                    : NULL;
    return *text ? 0 : INVALID_VALUE;
}

int fake_device_count(int *count) {
    ENTER("cuDeviceGetCount");
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    *count = devices ? atoi(devices) : 1;
    return leave(0);
}

int fake_device_get(int *device, int number) {
    *device = number;
    return 0;
}

int fake_device_name(char *name, int room, int device) {
    snprintf(name, (size_t)room, "fake device %d", device);
    return 0;
}

int fake_device_pci(char *id, int room, int device) {
    snprintf(id, (size_t)room, "0000:%02X:00.0", 0x4A + device);
    return 0;
}

int fake_context_retain(hc_gpu_context *context, int device) {
    ENTER("cuDevicePrimaryCtxRetain");
    *context = &contexts[device];
    return leave(0);
}

int fake_context_release(int device) {
    (void)device;
    return 0;
}

int fake_context_use(hc_gpu_context context) {
    ENTER("cuCtxSetCurrent");
    current = context;
    return leave(0);
}

int fake_context_now(hc_gpu_context *context) {
    *context = current;
    return 0;
}

int fake_context_device(int *device) {
    if (!current)
        return INVALID_CONTEXT;
    *device = (int)((char *)current - contexts);
    return 0;
}

static void add_block(void *memory, size_t bytes, int kind) {
    block *b = malloc(sizeof *b);
    *b = (block){.next = blocks,
                 .address = (uint64_t)(uintptr_t)memory,
                 .bytes = bytes,
                 .device = current ? (int)((char *)current - contexts) : 0,
                 .kind = kind};
    memset(memory, 0xCD, bytes); /* nobody may count on zeros */
    blocks = b;
}

/* 0: there is no such block. */
static int free_block(uint64_t address) {
    for (block **at = &blocks; *at; at = &(*at)->next) {
        block *b = *at;
        if (b->address != address)
            continue;
        *at = b->next;
        free(b);
        free((void *)(uintptr_t)address);
        return 1;
    }
    return 0;
}

int fake_memory_new(hc_gpu_address *address, size_t bytes) {
    ENTER("cuMemAlloc_v2");
    void *memory = NULL;
    if (!current || !bytes || posix_memalign(&memory, 512, bytes) != 0)
        return leave(current && bytes ? OUT_OF_MEMORY : INVALID_VALUE);
    add_block(memory, bytes, HC_MEMORY_OF_DEVICE);
    *address = (uint64_t)(uintptr_t)memory;
    return leave(0);
}

int fake_memory_free(hc_gpu_address address) {
    ENTER("cuMemFree_v2");
    return leave(free_block(address) ? 0 : INVALID_VALUE);
}

int fake_host_new(void **memory, size_t bytes, unsigned flags) {
    ENTER("cuMemHostAlloc");
    (void)flags;
    *memory = malloc(bytes);
    if (!*memory)
        return leave(OUT_OF_MEMORY);
    add_block(*memory, bytes, PINNED);
    return leave(0);
}

int fake_host_free(void *memory) {
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    free_block((uint64_t)(uintptr_t)memory);
    return leave(0);
}

/* ---- copies ---------------------------------------------------------------------------------------------- */

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

static int run_copy(void *data) {
    copy *c = data;
    memmove(c->to, c->from, c->bytes);
    free(c);
    return 1;
}

static const block *block_with(uint64_t address, size_t bytes) {
    for (const block *b = blocks; b; b = b->next)
        if (address >= b->address && bytes <= b->bytes && address - b->address <= b->bytes - bytes)
            return b;
    return NULL;
}

static int lies_in_a_block(uint64_t address, size_t bytes) {
    const block *b = block_with(address, bytes);
    return b && b->kind == HC_MEMORY_OF_DEVICE;
}

int fake_pointer_fact(void *fact, int attribute, hc_gpu_address address) {
    ENTER("cuPointerGetAttribute");
    const block *b = block_with(address, 1);
    if (!b || (attribute != HC_POINTER_DEVICE && attribute != HC_POINTER_MEMORY && attribute != HC_POINTER_MANAGED))
        return leave(INVALID_VALUE);
    *(int *)fact = attribute == HC_POINTER_DEVICE ? b->device : attribute == HC_POINTER_MEMORY ? b->kind : 0;
    return leave(0);
}

/* Bytes move when the stream comes to it, not now: what the host changes meanwhile is copied changed. */
static int enqueue_copy(void *to, const void *from, size_t bytes, hc_gpu_stream s) {
    copy *c = malloc(sizeof *c);
    *c = (copy){to, from, bytes};
    return fake_enqueue(s, run_copy, c);
}

int fake_to_device(hc_gpu_address to, const void *from, size_t bytes, hc_gpu_stream s) {
    ENTER("cuMemcpyHtoDAsync_v2");
    if (!lies_in_a_block(to, bytes))
        return leave(INVALID_VALUE);
    return leave(enqueue_copy((void *)(uintptr_t)to, from, bytes, s));
}

int fake_to_host(void *to, hc_gpu_address from, size_t bytes, hc_gpu_stream s) {
    ENTER("cuMemcpyDtoHAsync_v2");
    if (!lies_in_a_block(from, bytes))
        return leave(INVALID_VALUE);
    return leave(enqueue_copy(to, (void *)(uintptr_t)from, bytes, s));
}

int fake_on_device(hc_gpu_address to, hc_gpu_address from, size_t bytes, hc_gpu_stream s) {
    ENTER("cuMemcpyDtoDAsync_v2");
    if (!lies_in_a_block(from, bytes) || !lies_in_a_block(to, bytes))
        return leave(INVALID_VALUE);
    return leave(enqueue_copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, s));
}

/* ---- streams and events -------------------------------------------------------------------------------- */

int fake_stream_new(hc_gpu_stream *handle, unsigned flags, int priority) {
    ENTER("cuStreamCreateWithPriority");
    (void)flags, (void)priority;
    stream *s = calloc(1, sizeof *s);
    s->tail = &s->head;
    s->next = streams;
    streams = s;
    *handle = s;
    return leave(0);
}

/* Something runs; where nothing can, another rank is awaited. */
static void give_way(void) {
    if (sweep() > 0)
        return;
    pthread_mutex_unlock(&lock);
    sched_yield();
    pthread_mutex_lock(&lock);
}

static int drain(const stream *s) {
    while (s->head && !broken)
        give_way();
    return broken;
}

int fake_stream_free(hc_gpu_stream handle) {
    ENTER("cuStreamDestroy_v2");
    drain(handle);
    for (stream **at = &streams; *at; at = &(*at)->next)
        if (*at == handle) {
            *at = (*at)->next;
            break;
        }
    free(handle);
    return leave(0);
}

int fake_stream_query(hc_gpu_stream handle) {
    ENTER("cuStreamQuery");
    go_on(1);
    const stream *s = stream_of(handle);
    return leave(broken ? broken : s->head ? HC_DRIVER_NOT_READY : 0);
}

int fake_stream_wait(hc_gpu_stream handle) {
    ENTER("cuStreamSynchronize");
    return leave(drain(stream_of(handle)));
}

int fake_event_new(hc_gpu_event *handle, unsigned flags) {
    ENTER("cuEventCreate");
    (void)flags;
    event *e = calloc(1, sizeof *e);
    e->users = 1;
    *handle = e;
    return leave(0);
}

static void let_go(event *e) {
    if (--e->users == 0)
        free(e);
}

int fake_event_free(hc_gpu_event handle) {
    ENTER("cuEventDestroy_v2");
    let_go(handle);
    return leave(0);
}

typedef struct ticket {
    event *e;
    uint64_t number;
} ticket;

static int run_record(void *data) {
    ticket *t = data;
    if (t->e->reached < t->number)
        t->e->reached = t->number;
    let_go(t->e);
    free(t);
    return 1;
}

static int run_wait(void *data) {
    ticket *t = data;
    if (t->e->reached < t->number)
        return 0;
    let_go(t->e);
    free(t);
    return 1;
}

static int enqueue_ticket(hc_gpu_stream s, event *e, int (*run)(void *)) {
    ticket *t = malloc(sizeof *t);
    *t = (ticket){e, e->recorded};
    e->users++;
    return fake_enqueue(s, run, t);
}

int fake_event_record(hc_gpu_event handle, hc_gpu_stream s) {
    ENTER("cuEventRecord");
    event *e = handle;
    e->recorded++;
    return leave(enqueue_ticket(s, e, run_record));
}

int fake_stream_wait_event(hc_gpu_stream s, hc_gpu_event handle, unsigned flags) {
    ENTER("cuStreamWaitEvent");
    (void)flags;
    return leave(enqueue_ticket(s, handle, run_wait));
}

int fake_event_wait(hc_gpu_event handle) {
    ENTER("cuEventSynchronize");
    const event *e = handle;
    while (e->reached < e->recorded && !broken)
        give_way();
    return leave(broken);
}

int fake_event_query(hc_gpu_event handle) {
    ENTER("cuEventQuery");
    go_on(1);
    event *e = handle;
    return leave(broken ? broken : e->reached < e->recorded ? HC_DRIVER_NOT_READY : 0);
}
