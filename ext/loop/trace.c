/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c - the last few thousand events of this rank, for whoever wants to look.
 *
 * One writer (the driver), any number of readers, no lock. The writer is in the slot of record number `head`, which
 * is that of record head - ROOM too. A reader copies a record, then looks at the head again: if it has come so far
 * that the writer may have been in that slot meanwhile, the copy is dropped.
 */
#include "loop/driver.h"

#include <string.h>

void hc__trace_write(hc_loop *loop, const hc_trace_record *record) {
    uint64_t at = atomic_load_explicit(&loop->trace_head, memory_order_relaxed);
    hc_trace_record *to = &loop->trace[at % HC__TRACE_ROOM];
    *to = *record;
    to->time = hc__loop_now();
    atomic_store_explicit(&loop->trace_head, at + 1, memory_order_release);
}

/* The end of a name says more than its beginning: "...layer4.2.conv3.weight". */
static void copy_name(char *to, const hc_request *request) {
    size_t n = request->name_len, room = HC_TRACE_NAME - 1;
    if (n <= room) {
        memcpy(to, request->name, n);
        return;
    }
    to[0] = '~';
    memcpy(to + 1, request->name + n - (room - 1), room - 1);
}

static int is_request(const hc_handle *handle) {
    return handle->kind == HC_EV_ENQUEUE || handle->kind == HC_EV_JOIN || handle->kind == HC_HANDLE_P2P;
}

/* Commands to the loop itself (STOP, ADD_SET, ...) leave no trace. */
void hc__trace_handle(hc_loop *loop, int kind, const hc_handle *handle, uint64_t batch) {
    if (!is_request(handle))
        return;
    hc_trace_record record = {
        .kind = (uint8_t)kind,
        .operation = handle->request.operation,
        .set = handle->set,
        .peer = handle->op ? handle->op->peer : 0,
        .bytes = handle->bytes,
        .ticket = handle->request.ticket,
        .status = (int16_t)handle->status,
        .batch = batch,
        .count = 1,
    };
    copy_name(record.name, &handle->request);
    hc__trace_write(loop, &record);
}

/* The slot at head - ROOM may be under the writer's pen: it does not count as readable. */
size_t hc_loop_trace_read(hc_loop *loop, uint64_t *next, hc_trace_record *out, size_t room) {
    size_t n = 0;
    uint64_t head = atomic_load_explicit(&loop->trace_head, memory_order_acquire);
    if (head >= HC__TRACE_ROOM && *next <= head - HC__TRACE_ROOM)
        *next = head - HC__TRACE_ROOM + 1;
    while (n < room && *next < head) {
        out[n] = loop->trace[*next % HC__TRACE_ROOM];
        atomic_thread_fence(memory_order_acquire);
        uint64_t now = atomic_load_explicit(&loop->trace_head, memory_order_relaxed);
        if (now < HC__TRACE_ROOM || *next > now - HC__TRACE_ROOM)
            n++;
        ++*next;
    }
    return n;
}
