/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.c - an NCCL without GPUs: ranks are processes or threads that meet in a shared segment, and really reduce.
 *
 * A call is work in a stream of the fake driver, done chunk by chunk whenever that stream gets its turn. As in NCCL,
 * the initialisation of a non-blocking communicator goes on while get_async_error is asked.
 *     FAKE_NCCL_FAIL=init:1:3:1     rank 1: initialisation gives status 3
 *     FAKE_NCCL_FAIL=call:1:4:2     rank 1: the second call gives status 4 at once
 *     FAKE_NCCL_FAIL=async:1:6:2    rank 1: the second call never ends, and get_async_error gives 6
 *     FAKE_NCCL_FAIL=hang:1:0:2     rank 1: the second call never ends, and nothing says so
 *     FAKE_NCCL_ALONE=1 calls of different communicators run one after another on a device, as kernels that fill
 *                                   it do; two ranks whose devices then wait for each other are found
 *     FAKE_NCCL_LATE=3              calls of non-blocking communicators are in progress until they were asked 3 times
 *     FAKE_NCCL_WORDS=...           what the last error was, in the library's words
 * -DFAKE_NCCL_VERSION=23003 or the same in the environment is its version.
 * -DFAKE_NCCL_BROKEN leaves out ncclAllReduce.
 */
#include "comm.h"
#include "fake.h"
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST, SEND, RECV };
typedef struct call {
    struct call *next;
    comm *comm;
    enum kind kind;
    const char *in;
    char *out;
    size_t count, at;
    int dtype, op, peer; /* peer: or the root */
    int wrote, number, done;
} call;
typedef struct bundle { /* the calls of a group, as one piece of work */
    call *head;
} bundle;

static __thread int depth, group_status;
static __thread call *group_head, **group_tail;
static __thread hc_gpu_stream group_stream;

static int all_reached(const comm *c, _Atomic uint32_t *marks, uint32_t number) {
    for (int q = 0; q < c->size; q++)
        if ((int32_t)(atomic_load(&marks[q]) - number) < 0)
            return 0;
    return 1;
}

static void reduce(const call *l, size_t offset, size_t n) {
    static const int reductions[] = {HC_SUM, HC_PRODUCT, HC_MAX, HC_MIN, HC_AVERAGE};
    const comm *c = l->comm;
    int dtype = fake_dtype(l->dtype), average = l->op == HC_NCCL_AVERAGE;
    const void *from[MAX_RANKS];
    for (int q = 0; q < c->size; q++)
        from[q] = c->segment->data[q] + offset;
    char *out = l->out + l->at * hc_dtype_size(dtype);
    hc_host_reduce(out, dtype, from, c->size, dtype, reductions[l->op], (int64_t)n, 1.0, average ? c->size : 1.0);
}

static void write_chunk(const call *l, size_t n) {
    const comm *c = l->comm;
    size_t size = hc_dtype_size(fake_dtype(l->dtype));
    char *mine = c->segment->data[c->rank];
    if (l->kind == REDUCE_SCATTER)
        for (int q = 0; q < c->size; q++)
            memcpy(mine + (size_t)q * n * size, l->in + ((size_t)q * l->count + l->at) * size, n * size);
    else if (l->kind != BROADCAST || c->rank == l->peer)
        memcpy(mine, l->in + l->at * size, n * size);
}

static void read_chunk(const call *l, size_t n) {
    const comm *c = l->comm;
    size_t size = hc_dtype_size(fake_dtype(l->dtype));
    if (l->kind == ALL_REDUCE || (l->kind == REDUCE && c->rank == l->peer))
        reduce(l, 0, n);
    else if (l->kind == REDUCE)
        return;
    else if (l->kind == REDUCE_SCATTER)
        reduce(l, (size_t)c->rank * n * size, n);
    else if (l->kind == BROADCAST)
        memcpy(l->out + l->at * size, c->segment->data[l->peer], n * size);
    else
        for (int q = 0; q < c->size; q++)
            memcpy(l->out + ((size_t)q * l->count + l->at) * size, c->segment->data[q], n * size);
}

/* NCCL would hang, or worse; here it is said. */
static void check_call(const call *l) {
    const comm *c = l->comm;
    for (int q = 0; q < c->size; q++)
        if (atomic_load(&c->segment->call[q]) != atomic_load(&c->segment->call[c->rank])) {
            fprintf(stderr, "fake NCCL: ranks %d and %d are in different calls\n", q, c->rank);
            abort();
        }
}

static uint64_t call_number(const call *l) {
    uint64_t peer = l->kind == REDUCE || l->kind == BROADCAST ? (uint64_t)l->peer : 0;
    return (uint64_t)l->count << 16 | peer << 12 | (uint64_t)l->dtype << 8 | (uint64_t)l->kind;
}

/* A collective: publish my chunk when all have read the last one, read when all have published. */
static int step_collective(call *l) {
    comm *c = l->comm;
    size_t most = SEGMENT_BYTES / hc_dtype_size(fake_dtype(l->dtype)) /
                  (l->kind == REDUCE_SCATTER ? (size_t)c->size : 1);
    size_t n = l->count - l->at < most ? l->count - l->at : most;
    if (!l->wrote) {
        if (!all_reached(c, c->segment->read, c->chunk))
            return 0;
        write_chunk(l, n);
        atomic_store(&c->segment->call[c->rank], call_number(l));
        atomic_store(&c->segment->wrote[c->rank], c->chunk + 1);
        l->wrote = 1;
    }
    if (!all_reached(c, c->segment->wrote, c->chunk + 1))
        return 0;
    check_call(l);
    read_chunk(l, n);
    c->chunk++;
    atomic_store(&c->segment->read[c->rank], c->chunk);
    l->wrote = 0;
    l->at += n;
    return l->at == l->count;
}

static int step_message(call *l) {
    comm *c = l->comm;
    int sends = l->kind == SEND;
    size_t size = hc_dtype_size(fake_dtype(l->dtype)), most = BOX / size;
    size_t n = l->count - l->at < most ? l->count - l->at : most;
    box *b = sends ? &c->segment->boxes[c->rank][l->peer] : &c->segment->boxes[l->peer][c->rank];
    if (sends ? atomic_load(&b->read) != c->sent[l->peer] : atomic_load(&b->wrote) == c->received[l->peer])
        return 0;
    if (sends) {
        memcpy(b->data, l->in + l->at * size, n * size);
        atomic_store(&b->wrote, ++c->sent[l->peer]);
    } else {
        memcpy(l->out + l->at * size, b->data, n * size);
        atomic_store(&b->read, ++c->received[l->peer]);
    }
    l->at += n;
    return l->at == l->count;
}

/* An earlier call of the group that must come first: the same pair of ranks, or both collectives. */
static int behind(const bundle *b, const call *l) {
    for (const call *e = b->head; e != l; e = e->next)
        if (!e->done && e->comm == l->comm &&
            (e->kind < SEND ? l->kind < SEND : e->kind == l->kind && e->peer == l->peer))
            return 1;
    return 0;
}

/* ---- a device that runs one communicator's calls at a time ------------------------------------------------------ */

static const call *running; /* on this process's device; the fake driver lets one thread at a time in here */

/* "Call `waiting` of a communicator waits for call `number` of this one." */
static uint64_t wait_for(const comm *c, int number, int waiting) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (const char *at = c->name; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3ull;
    return hash + ((uint64_t)(uint32_t)number << 32) + (uint32_t)waiting;
}

/* `l` waits here for `running`: on another rank it may be the other way round. */
static void check_circle(const call *l) {
    const comm *c = l->comm, *other = running->comm;
    atomic_store(&c->segment->behind[c->rank], wait_for(other, running->number, l->number));
    for (int q = 0; q < other->size; q++)
        if (atomic_load(&other->segment->behind[q]) == wait_for(c, l->number, running->number)) {
            fprintf(stderr,
                    "fake NCCL: two communicators are called in different orders on two ranks: each has a device "
                    "that the other one waits for\n");
            abort();
        }
}

/* 1: the device is this call's, and that of its group, until it has ended. */
static int take_device(const call *l) {
    if (!getenv("FAKE_NCCL_ALONE") || l->comm->aborted)
        return 1;
    if (running && running != l) {
        if (running->comm != l->comm)
            check_circle(l);
        return 0;
    }
    running = l;
    return 1;
}

int bundle_run(void *data) {
    bundle *b = data;
    int left = 0;
    if (!take_device(b->head))
        return 0;
    for (call *l = b->head; l; l = l->next) {
        if (!l->done && !behind(b, l))
            l->done = l->comm->aborted || (l->number != l->comm->failing && l->count == 0) ||
                      (l->number != l->comm->failing && (l->kind < SEND ? step_collective(l) : step_message(l)));
        left += !l->done;
    }
    if (left)
        return 0;
    if (running == b->head)
        running = NULL;
    for (call *l = b->head, *next; l; l = next) {
        next = l->next;
        comm_let_go(l->comm);
        free(l);
    }
    free(b);
    return 1;
}

int fake_group_start(void) {
    if (depth++ == 0) {
        group_head = NULL;
        group_tail = &group_head;
        group_status = 0;
    }
    return 0;
}

int fake_group_end(void) {
    if (depth == 0)
        return HC_NCCL_INVALID_USAGE;
    if (--depth > 0 || !group_head)
        return group_status;
    comm *c = group_head->comm;
    const char *late = getenv("FAKE_NCCL_LATE");
    bundle *b = malloc(sizeof *b);
    b->head = group_head;
    if (late && !c->blocking && !group_status && c->status == HC_NCCL_SUCCESS) {
        c->late = b;
        c->late_stream = group_stream;
        c->late_asks = atoi(late);
        return c->status = HC_NCCL_IN_PROGRESS;
    }
    return fake_enqueue(group_stream, bundle_run, b) ? HC_NCCL_DRIVER_FAILED : group_status;
}

/* Takes a call into the group, its own one if there is none. */
static int submit(call l, hc_gpu_stream stream) {
    comm *c = l.comm;
    l.number = ++c->calls;
    int at_once = comm_planted(c, "call", l.number), later = comm_planted(c, "async", l.number);
    int in_failing_group = depth > 0 && c->failing; /* its status shows later */
    if (c->status != HC_NCCL_SUCCESS && !in_failing_group)
        return HC_NCCL_INVALID_USAGE;
    if (at_once > 0)
        return at_once;
    if (later > 0)
        c->status = later;
    if (later > 0 || comm_planted(c, "hang", l.number) >= 0)
        c->failing = l.number;
    fake_group_start();
    if (group_head && group_stream != stream) {
        fake_group_end();
        return group_status = HC_NCCL_INVALID_USAGE; /* the fake's limit: one stream a group */
    }
    group_stream = stream;
    call *kept = malloc(sizeof *kept);
    *kept = l;
    c->users++;
    *group_tail = kept;
    group_tail = &kept->next;
    return fake_group_end();
}

int fake_all_reduce(const void *in, void *out, size_t n, int dtype, int op, hc_nccl_comm c, hc_gpu_stream s);
#ifndef FAKE_NCCL_BROKEN
int fake_all_reduce(const void *in, void *out, size_t n, int dtype, int op, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = ALL_REDUCE, .in = in, .out = out, .count = n, .dtype = dtype, .op = op}, s);
}
#endif

int fake_reduce_scatter(const void *in, void *out, size_t n, int dtype, int op, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = REDUCE_SCATTER, .in = in, .out = out, .count = n, .dtype = dtype, .op = op},
                  s);
}

int fake_all_gather(const void *in, void *out, size_t n, int dtype, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = ALL_GATHER, .in = in, .out = out, .count = n, .dtype = dtype}, s);
}

int fake_broadcast(const void *in, void *out, size_t n, int dtype, int root, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = BROADCAST, .in = in, .out = out, .count = n, .dtype = dtype, .peer = root},
                  s);
}

int fake_reduce(const void *in, void *out, size_t n, int dtype, int op, int root, hc_nccl_comm c, hc_gpu_stream s) {
    return submit(
        (call){.comm = c, .kind = REDUCE, .in = in, .out = out, .count = n, .dtype = dtype, .op = op, .peer = root}, s);
}

int fake_send(const void *in, size_t n, int dtype, int peer, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = SEND, .in = in, .count = n, .dtype = dtype, .peer = peer}, s);
}

int fake_recv(void *out, size_t n, int dtype, int peer, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = RECV, .out = out, .count = n, .dtype = dtype, .peer = peer}, s);
}
