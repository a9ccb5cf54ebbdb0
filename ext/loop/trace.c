/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c - records the last few thousand events of this rank.
 *
 * One writer (the driver), any number of readers, no lock. The writer uses the slot of record number `head`, which is
 * also that of record head - ROOM. A reader copies a record, then reads the head again: if the writer may have used
 * that slot meanwhile, it drops the copy.
 */
#include "loop/clock.h"
#include "loop/state.h"
#include "loop/trace_ring.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOT(number) ((number) % HC_TRACE_ROOM)

/* ---- the ring ---------------------------------------------------------------------------------------- */

static size_t bytes_of(uint32_t site_bytes) {
    return sizeof(hc_trace_header) + HC_TRACE_ROOM * (sizeof(hc_trace_record) + site_bytes);
}

/* Maps memory that other processes can read; if the system refuses, private memory. */
static void *map(size_t bytes, int *fd) {
    *fd = memfd_create(HC_TRACE_MEMFD, MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0) {
        void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
        if (shared != MAP_FAILED)
            return shared;
    }
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return own == MAP_FAILED ? NULL : own;
}

int hc__trace_new(hc_loop *loop) {
    hc__trace *trace = &loop->trace;
    uint32_t site_bytes = loop->config.debug ? HC_TRACE_SITE : 0;
    char *memory = map(bytes_of(site_bytes), &trace->fd);
    if (!memory)
        return HC_NO_MEMORY;
    trace->header = (hc_trace_header *)(void *)memory;
    trace->records = (hc_trace_record *)(void *)(memory + sizeof(hc_trace_header));
    if (site_bytes)
        trace->sites = (char (*)[HC_TRACE_SITE])(trace->records + HC_TRACE_ROOM);
    hc_trace_header *header = trace->header;
    memcpy(header->magic, HC_TRACE_MAGIC, sizeof HC_TRACE_MAGIC);
    header->version = HC_TRACE_VERSION;
    header->header_bytes = sizeof *header;
    header->record_bytes = sizeof(hc_trace_record);
    header->site_bytes = site_bytes;
    header->nrecords = HC_TRACE_ROOM;
    header->rank = loop->config.engine.rank;
    header->size = loop->config.engine.size;
    header->pid = (int32_t)getpid();
    hc__trace_prepare(loop);
    return HC_OK;
}

void hc__trace_free(hc__trace *trace) {
    if (!trace->header)
        return;
    munmap(trace->header, bytes_of(trace->header->site_bytes));
    if (trace->fd >= 0)
        close(trace->fd);
}

/* The child of a fork must not write into the parent's trace, so it gets private pages. */
void hc__trace_forked(hc__trace *trace) {
    mmap(trace->header, bytes_of(trace->header->site_bytes), PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    close(trace->fd);
    trace->fd = -1;
}

/* ---- writing ----------------------------------------------------------------------------------------- */

/* Begins the next record: zero, with time, kind and an empty name. A reader that sees a byte of it must see the present
 * head, too, which shows that the earlier record in this slot is overwritten: so the fence. */
static hc_trace_record *begin(hc_loop *loop, int kind) {
    uint64_t at = atomic_load_explicit(&loop->trace.header->head, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    hc_trace_record *record = &loop->trace.records[SLOT(at)];
    memset(record, 0, offsetof(hc_trace_record, name) + 1);
    record->time = hc__loop_now();
    record->kind = (uint8_t)kind;
    if (loop->trace.sites)
        loop->trace.sites[SLOT(at)][0] = 0;
    return record;
}

static void end(hc_loop *loop) {
    atomic_ullong *head = &loop->trace.header->head;
    atomic_store_explicit(head, atomic_load_explicit(head, memory_order_relaxed) + 1, memory_order_release);
}

void hc__trace_message(hc_loop *loop, int kind, int32_t peer, uint64_t bytes) {
    hc_trace_record *record = begin(loop, kind);
    record->peer = peer;
    record->bytes = bytes;
    end(loop);
}

void hc__trace_batch(hc_loop *loop, int kind, uint32_t set, const hc__run *run) {
    hc_trace_record *record = begin(loop, kind);
    record->operation = run->batch.operation;
    record->set = set;
    record->batch = run->number;
    record->bytes = run->bytes;
    record->count = run->nitems;
    end(loop);
}

/* Keeps the end of a long name, which tells more than its beginning: "...layer4.2.conv3.weight". */
static void copy_name(char *to, const hc_request *request) {
    size_t n = request->name_len, room = HC_TRACE_NAME - 1;
    if (n <= room) {
        memcpy(to, request->name, n);
        to[n] = 0;
        return;
    }
    to[0] = '~';
    memcpy(to + 1, request->name + n - (room - 1), room - 1);
    to[room] = 0;
}

static int is_request(const hc_handle *handle) {
    return handle->kind == HC_EV_ENQUEUE || handle->kind == HC_HANDLE_COUNTED || handle->kind == HC_EV_JOIN ||
           handle->kind == HC_HANDLE_P2P || handle->kind == HC_HANDLE_PLAN;
}

static void copy_signature(hc_trace_record *record, const hc_request *request) {
    record->count = request->ntensors;
    record->root = request->root;
    record->reduction = request->reduction;
    record->memory = request->memory;
    if (!request->ntensors)
        return;
    const hc_tensor *tensor = &request->tensors[0];
    record->dtype = tensor->dtype;
    record->ndim = tensor->ndim;
    for (int d = 0; d < tensor->ndim && d < HC_TRACE_DIMS; d++)
        record->dims[d] = tensor->dims[d];
}

static void copy_site(hc_loop *loop, const char *site) {
    char *to = loop->trace.sites[SLOT(atomic_load_explicit(&loop->trace.header->head, memory_order_relaxed))];
    snprintf(to, HC_TRACE_SITE, "%s", site);
}

/* Commands to the loop itself (STOP, ADD_SET, ...) are not traced. */
void hc__trace_handle(hc_loop *loop, int kind, const hc_handle *handle, uint64_t batch) {
    if (!is_request(handle))
        return;
    hc_trace_record *record = begin(loop, kind);
    record->operation = handle->request.operation;
    record->set = handle->set;
    record->bytes = handle->bytes;
    record->ticket = handle->request.ticket;
    record->status = (int16_t)handle->status;
    record->batch = batch;
    record->count = 1;
    record->plan = handle->kind == HC_HANDLE_PLAN;
    if (handle->op) {
        record->peer = handle->op->peer;
        record->tag = handle->op->tag;
    }
    if (kind == HC_TRACE_ENQUEUE)
        copy_signature(record, &handle->request);
    if (kind == HC_TRACE_ENQUEUE && handle->site && loop->trace.sites)
        copy_site(loop, handle->site);
    copy_name(record->name, &handle->request);
    end(loop);
}

/* The file ends with this record: the completions of all handles follow, and would push the cause out of it. */
void hc__trace_break(hc_loop *loop, int status, const char *text) {
    hc_trace_header *header = loop->trace.header;
    snprintf(header->cause, sizeof header->cause, "%s", text);
    begin(loop, HC_TRACE_BREAK)->status = (int16_t)status;
    end(loop);
    loop->trace.broke_at = atomic_load_explicit(&header->head, memory_order_relaxed);
}

void hc__trace_set(hc_loop *loop, const hc__set_queue *queue, int32_t lead) {
    hc_trace_set *set = &loop->trace.header->sets[queue->number];
    *set = (hc_trace_set){.used = queue->used, .wire = queue->wire, .size = queue->size, .lead = lead};
}

/* ---- reading ----------------------------------------------------------------------------------------- */

/* The writer may be using the slot of record head - ROOM, so that is not readable. */
size_t hc_loop_trace_read(hc_loop *loop, uint64_t *next, hc_trace_record *out, size_t room) {
    size_t n = 0;
    atomic_ullong *at = &loop->trace.header->head;
    uint64_t head = atomic_load_explicit(at, memory_order_acquire);
    if (head >= HC_TRACE_ROOM && *next <= head - HC_TRACE_ROOM)
        *next = head - HC_TRACE_ROOM + 1;
    while (n < room && *next < head) {
        out[n] = loop->trace.records[SLOT(*next)];
        atomic_thread_fence(memory_order_acquire);
        uint64_t now = atomic_load_explicit(at, memory_order_relaxed);
        if (now < HC_TRACE_ROOM || *next > now - HC_TRACE_ROOM)
            n++;
        ++*next;
    }
    return n;
}
