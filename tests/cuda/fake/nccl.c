/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.c - an NCCL without GPUs: ranks are processes or threads that meet in a shared segment, and really reduce.
 *
 * A call is work in a stream of the fake driver, done chunk by chunk whenever that stream gets its turn. As in NCCL,
 * initialisation and split of a non-blocking communicator go on while get_async_error is asked.
 *     FAKE_NCCL_FAIL=init:1:3:1     rank 1: initialisation gives status 3
 *     FAKE_NCCL_FAIL=call:1:4:2     rank 1: the second call gives status 4 at once
 *     FAKE_NCCL_FAIL=async:1:6:2    rank 1: the second call never ends, and get_async_error gives 6
 *     FAKE_NCCL_FAIL=hang:1:0:2     rank 1: the second call never ends, and nothing says so
 * -DFAKE_NCCL_OLD leaves out what 2.18 and later brought, -DFAKE_NCCL_BROKEN leaves out ncclAllReduce.
 */
#include "cuda/nccl.h"
#include "fake.h"
#include "room.h"
#include "transport/transport.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define X(member, name, needed, arguments) int fake_##member arguments __asm__(name);
HC_NCCL_FUNCTIONS(X)
#undef X
const char *fake_error_text(int status) __asm__("ncclGetErrorString");
const char *fake_last_error(hc_nccl_comm) __asm__("ncclGetLastError");

enum { FIRST_SCALED = 5, MAX_SCALED = 8 };

typedef struct comm {
    room *room;
    struct comm *parent; /* of a split that goes on: where it is agreed */
    char name[64];
    int rank, size, blocking, status, aborted, users;
    int color, key, round;      /* of the split that made it */
    int splits, calls, failing; /* failing: the number of the call that never ends */
    uint32_t chunk;             /* chunks of collectives so far, the same on all ranks when they are done */
    uint32_t sent[MAX_RANKS], received[MAX_RANKS];
    double factor[MAX_SCALED];
} comm;

static void let_go(comm *c) {
    if (--c->users > 0)
        return;
    if (c->room)
        munmap(c->room, sizeof(room));
    free(c);
}

/* ---- failures that a test asks for ---------------------------------------------------------------------- */

static int planted(const comm *c, const char *where, int number) {
    char name[16];
    int rank, status, at;
    const char *text = getenv("FAKE_NCCL_FAIL");
    if (!text || sscanf(text, "%15[^:]:%d:%d:%d", name, &rank, &status, &at) != 4)
        return -1;
    return strcmp(name, where) == 0 && rank == c->rank && at == number ? status : -1;
}

/* ---- communicators ---------------------------------------------------------------------------------------- */

int fake_get_version(int *version) {
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    return 0;
}

const char *fake_error_text(int status) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return status >= 0 && status <= HC_NCCL_IN_PROGRESS ? texts[status] : "unknown result code";
}

const char *fake_last_error(hc_nccl_comm c) {
    (void)c;
    return "";
}

int fake_get_id(hc_nccl_id *id) {
    static _Atomic unsigned made;
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "/fake-nccl-%d-%u", getpid(), made++);
    return 0;
}

static comm *comm_new(const hc_nccl_config *config) {
    comm *c = calloc(1, sizeof *c);
    c->users = 1;
    c->blocking = !config || config->blocking != 0;
    c->status = HC_NCCL_IN_PROGRESS;
    return c;
}

/* The split: all ranks of the parent have said their colors, and this one finds its place. */
static int settle(comm *c) {
    room *r = c->parent->room;
    for (int q = 0; q < c->parent->size; q++)
        if (atomic_load(&r->split[q].round) < c->round)
            return 0;
    c->rank = c->size = 0;
    for (int q = 0; q < c->parent->size; q++) {
        const split_vote *vote = &r->votes[c->round % VOTES][q];
        c->size += vote->color == c->color;
        c->rank += vote->color == c->color &&
                   (vote->key < c->key || (vote->key == c->key && q < c->parent->rank));
    }
    snprintf(c->name, sizeof c->name, "%.40s-%d-%d", c->parent->name, c->round, c->color);
    let_go(c->parent);
    c->parent = NULL;
    return 1;
}

/* What can be done now towards a complete communicator. */
static void progress(comm *c) {
    if (c->status != HC_NCCL_IN_PROGRESS || (c->parent && !settle(c)))
        return;
    if (!c->room) {
        c->room = room_open(c->name);
        if (!c->room) {
            c->status = HC_NCCL_SYSTEM_FAILED;
            return;
        }
        atomic_fetch_add(&c->room->attached, 1);
    }
    if (atomic_load(&c->room->attached) < c->size)
        return;
    if (c->rank == 0)
        room_unlink(c->name);
    c->status = HC_NCCL_SUCCESS;
}

static int begin(comm *c) {
    progress(c);
    while (c->blocking && c->status == HC_NCCL_IN_PROGRESS) {
        sched_yield();
        progress(c);
    }
    return c->status;
}

int fake_init(hc_nccl_comm *handle, int size, hc_nccl_id id, int rank, hc_nccl_config *config) {
    if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size || (config && config->magic != 0xcafebeef))
        return HC_NCCL_INVALID_ARGUMENT;
    comm *c = comm_new(config);
    c->rank = rank;
    c->size = size;
    snprintf(c->name, sizeof c->name, "%.63s", id.bytes);
    int status = planted(c, "init", 1);
    if (status > 0) {
        let_go(c);
        return status;
    }
    *handle = c;
    return begin(c);
}

int fake_get_async_error(hc_nccl_comm handle, int *status) {
    comm *c = handle;
    progress(c);
    *status = c->status;
    return 0;
}

int fake_finalize(hc_nccl_comm handle) {
    return ((comm *)handle)->status;
}

int fake_destroy(hc_nccl_comm handle) {
    let_go(handle);
    return 0;
}

/* What is in streams ends without touching memory. */
int fake_abort(hc_nccl_comm handle) {
    comm *c = handle;
    c->aborted = 1;
    if (c->status == HC_NCCL_IN_PROGRESS && c->room)
        room_unlink(c->name);
    let_go(c);
    return 0;
}

int fake_op_new_scaled(int *op, void *scalar, int dtype, int residence, hc_nccl_comm handle) {
    comm *c = handle;
    (void)residence; /* the host's */
    for (int i = 0; i < MAX_SCALED; i++)
        if (c->factor[i] == 0) {
            hc_host_memory.convert(&c->factor[i], HC_FLOAT64, scalar, room_dtype(dtype), 1, 1.0);
            *op = FIRST_SCALED + i;
            return 0;
        }
    return HC_NCCL_INVALID_USAGE;
}

int fake_op_free(int op, hc_nccl_comm handle) {
    ((comm *)handle)->factor[op - FIRST_SCALED] = 0;
    return 0;
}

#ifndef FAKE_NCCL_OLD
int fake_split(hc_nccl_comm handle, int color, int key, hc_nccl_comm *made, hc_nccl_config *config) {
    comm *parent = handle;
    int round = ++parent->splits;
    parent->room->votes[round % VOTES][parent->rank] = (split_vote){color, key};
    atomic_store(&parent->room->split[parent->rank].round, round);
    *made = NULL;
    if (color == HC_NCCL_NO_COLOR)
        return 0;
    comm *c = comm_new(config);
    c->parent = parent;
    parent->users++;
    c->color = color;
    c->key = key;
    c->round = round;
    *made = c;
    return begin(c);
}

int fake_memory_new(void **memory, size_t bytes) {
    *memory = malloc(bytes);
    return *memory ? 0 : HC_NCCL_DRIVER_FAILED;
}

int fake_memory_free(void *memory) {
    free(memory);
    return 0;
}

int fake_register_memory(const hc_nccl_comm c, void *memory, size_t bytes, void **handle) {
    (void)c, (void)bytes;
    *handle = memory;
    return 0;
}

int fake_release_memory(const hc_nccl_comm c, void *handle) {
    (void)c, (void)handle;
    return 0;
}
#endif

/* ---- calls: work in a stream -------------------------------------------------------------------------------- */

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };
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

static void put(char *to, const call *l, const char *from, size_t n) {
    double factor = l->op >= FIRST_SCALED && l->kind <= REDUCE_SCATTER ? l->comm->factor[l->op - FIRST_SCALED]
                                                                       : 1.0;
    hc_host_memory.convert(to, room_dtype(l->dtype), from, room_dtype(l->dtype), (int64_t)n, factor);
}

static void reduce(const call *l, size_t offset, size_t n) {
    static const int reductions[] = {HC_SUM, HC_PRODUCT, HC_MAX, HC_MIN, HC_SUM};
    const comm *c = l->comm;
    int dtype = room_dtype(l->dtype), whole = l->dtype <= HC_NCCL_UINT64, average = l->op == HC_NCCL_AVERAGE;
    const void *from[MAX_RANKS];
    for (int q = 0; q < c->size; q++)
        from[q] = c->room->data[q] + offset;
    char *out = l->out + l->at * hc_dtype_size(dtype);
    hc_host_memory.reduce(out, dtype, from, c->size, dtype, l->op < FIRST_SCALED ? reductions[l->op] : HC_SUM,
                          (int64_t)n, average && !whole ? 1.0 / c->size : 1.0);
    if (average && whole)
        hc_host_memory.divide(out, dtype, (int64_t)n, c->size);
}

static void write_chunk(const call *l, size_t n) {
    const comm *c = l->comm;
    size_t size = hc_dtype_size(room_dtype(l->dtype));
    char *mine = c->room->data[c->rank];
    if (l->kind == REDUCE_SCATTER)
        for (int q = 0; q < c->size; q++)
            put(mine + (size_t)q * n * size, l, l->in + ((size_t)q * l->count + l->at) * size, n);
    else if (l->kind != BROADCAST || c->rank == l->peer)
        put(mine, l, l->in + l->at * size, n);
}

static void read_chunk(const call *l, size_t n) {
    const comm *c = l->comm;
    size_t size = hc_dtype_size(room_dtype(l->dtype));
    if (l->kind == ALL_REDUCE)
        reduce(l, 0, n);
    else if (l->kind == REDUCE_SCATTER)
        reduce(l, (size_t)c->rank * n * size, n);
    else if (l->kind == BROADCAST)
        memcpy(l->out + l->at * size, c->room->data[l->peer], n * size);
    else
        for (int q = 0; q < c->size; q++)
            memcpy(l->out + ((size_t)q * l->count + l->at) * size, c->room->data[q], n * size);
}

/* A collective: publish my chunk when all have read the last one, read when all have published. */
static int step_collective(call *l) {
    comm *c = l->comm;
    size_t most = ROOM / hc_dtype_size(room_dtype(l->dtype)) /
                  (l->kind == REDUCE_SCATTER ? (size_t)c->size : 1);
    size_t n = l->count - l->at < most ? l->count - l->at : most;
    if (!l->wrote) {
        if (!all_reached(c, c->room->read, c->chunk))
            return 0;
        write_chunk(l, n);
        atomic_store(&c->room->wrote[c->rank], c->chunk + 1);
        l->wrote = 1;
    }
    if (!all_reached(c, c->room->wrote, c->chunk + 1))
        return 0;
    read_chunk(l, n);
    c->chunk++;
    atomic_store(&c->room->read[c->rank], c->chunk);
    l->wrote = 0;
    l->at += n;
    return l->at == l->count;
}

static int step_letter(call *l) {
    comm *c = l->comm;
    int sends = l->kind == SEND;
    size_t size = hc_dtype_size(room_dtype(l->dtype)), most = BOX / size;
    size_t n = l->count - l->at < most ? l->count - l->at : most;
    box *b = sends ? &c->room->boxes[c->rank][l->peer] : &c->room->boxes[l->peer][c->rank];
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

static int run_bundle(void *data) {
    bundle *b = data;
    int left = 0;
    for (call *l = b->head; l; l = l->next) {
        if (!l->done && !behind(b, l))
            l->done = l->comm->aborted || (l->number != l->comm->failing && l->count == 0) ||
                      (l->number != l->comm->failing &&
                       (l->kind < SEND ? step_collective(l) : step_letter(l)));
        left += !l->done;
    }
    if (left)
        return 0;
    for (call *l = b->head, *next; l; l = next) {
        next = l->next;
        let_go(l->comm);
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
    bundle *b = malloc(sizeof *b);
    b->head = group_head;
    return fake_enqueue(group_stream, run_bundle, b) ? HC_NCCL_DRIVER_FAILED : group_status;
}

/* Takes a call into the group, its own one if there is none. */
static int submit(call l, hc_gpu_stream stream) {
    comm *c = l.comm;
    l.number = ++c->calls;
    int at_once = planted(c, "call", l.number), later = planted(c, "async", l.number);
    if (c->status != HC_NCCL_SUCCESS)
        return HC_NCCL_INVALID_USAGE;
    if (at_once > 0)
        return at_once;
    if (later > 0)
        c->status = later;
    if (later > 0 || planted(c, "hang", l.number) >= 0)
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
    return submit(
        (call){.comm = c, .kind = ALL_REDUCE, .in = in, .out = out, .count = n, .dtype = dtype, .op = op}, s);
}
#endif

int fake_reduce_scatter(const void *in, void *out, size_t n, int dtype, int op, hc_nccl_comm c,
                        hc_gpu_stream s) {
    return submit(
        (call){.comm = c, .kind = REDUCE_SCATTER, .in = in, .out = out, .count = n, .dtype = dtype, .op = op},
        s);
}

int fake_all_gather(const void *in, void *out, size_t n, int dtype, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = ALL_GATHER, .in = in, .out = out, .count = n, .dtype = dtype}, s);
}

int fake_broadcast(const void *in, void *out, size_t n, int dtype, int root, hc_nccl_comm c,
                   hc_gpu_stream s) {
    return submit(
        (call){.comm = c, .kind = BROADCAST, .in = in, .out = out, .count = n, .dtype = dtype, .peer = root},
        s);
}

int fake_send(const void *in, size_t n, int dtype, int peer, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = SEND, .in = in, .count = n, .dtype = dtype, .peer = peer}, s);
}

int fake_recv(void *out, size_t n, int dtype, int peer, hc_nccl_comm c, hc_gpu_stream s) {
    return submit((call){.comm = c, .kind = RECV, .out = out, .count = n, .dtype = dtype, .peer = peer}, s);
}
