/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.c - builds a batch for the data plane from agreed items, and delivers its results to the handles.
 *
 * An item has an agreed signature and a ticket, which is this rank's handle; the handle's pieces have the addresses of
 * the tensors. A rank that has joined has no handle: its pieces have no memory, and sizes from the signature.
 */
#include "loop/handle.h"
#include "loop/batch.h"
#include "loop/state.h"
#include "loop/trace_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_inexact(int dtype) {
    return dtype == HC_FLOAT16 || dtype == HC_BFLOAT16 || dtype >= HC_FLOAT32;
}

/* Returns prescale and postscale as one factor, which rounds once, not twice. */
double hc__factor_of(const hc_request *agreed, int dtype) {
    return is_inexact(dtype) ? agreed->prescale * agreed->postscale : 1.0;
}

/* The wire type between nodes: the call's compression, else the World's, else the dtype. */
static int wire_of(const hc_loop *loop, const hc_request *agreed, int dtype) {
    int wide = dtype == HC_FLOAT32 || dtype == HC_FLOAT64;
    int wire = agreed->wire != HC_WIRE_SAME ? agreed->wire : loop->config.wire;
    return hc_operation_has(agreed->operation, HC_OP_NARROWS) && wide && wire != HC_WIRE_SAME ? wire : dtype;
}

static void set_up(const hc_loop *loop, const hc__set_queue *queue, hc__run *b, const hc_item *item) {
    const hc_request *agreed = item->agreed;
    int dtype = agreed->tensors[item->first].dtype;
    b->batch = (hc_batch){
        .operation = agreed->operation,
        .reduction = agreed->reduction,
        .dtype = (uint8_t)dtype,
        .wire_dtype = (uint8_t)wire_of(loop, agreed, dtype),
        .memory = agreed->memory,
        .deterministic = loop->config.deterministic,
        .equal_rows = (agreed->flags & HC_REQUEST_EQUAL_ROWS) != 0,
        .root = agreed->root,
        .divisor = agreed->reduction == HC_AVERAGE ? queue->size : 1,
        .pieces = b->batch.pieces,
    };
}

/* Makes the piece of a rank that has joined: neutral elements, or no rows if each rank chooses its rows. */
static hc_piece joined_piece(const hc__run *b, const hc_request *agreed, const hc_tensor *tensor) {
    int uneven = hc_operation_has(agreed->operation, HC_OP_ROWS_DIFFER);
    int elementwise = hc_operation_has(agreed->operation, HC_OP_ELEMENTWISE);
    int64_t count = 1, row = 1;
    for (int d = 0; d < tensor->ndim; d++)
        count *= tensor->dims[d];
    for (int d = 1; d < tensor->ndim; d++)
        row *= tensor->dims[d];
    return (hc_piece){
        .count = uneven ? 0 : count,
        .row = elementwise ? 1 : row,
        .rows = uneven || tensor->ndim == 0 ? 0 : tensor->dims[0],
        .drop = 1,
        .send_rows = b->zeros,
        .recv_rows = b->scratch,
    };
}

static void add_item(hc__run *b, const hc_item *item) {
    const hc_request *agreed = item->agreed;
    hc_handle *handle = (hc_handle *)(uintptr_t)item->ticket;
    for (uint32_t i = item->first; i < item->first + item->count; i++) {
        const hc_tensor *tensor = &agreed->tensors[i];
        int32_t at = b->batch.npieces++;
        hc_piece *piece = &b->batch.pieces[at];
        b->origin[at] = handle ? &handle->pieces[i] : NULL;
        *piece = handle ? handle->pieces[i] : joined_piece(b, agreed, tensor);
        piece->scale = hc__factor_of(agreed, tensor->dtype);
        b->batch.count += piece->count;
        b->bytes += (uint64_t)piece->count * hc_dtype_size(tensor->dtype);
    }
}

static int reserve(const hc__set_queue *queue, hc__run *b, int32_t npieces) {
    if (!b->zeros) {
        b->zeros = hc_calloc((size_t)queue->size * 2, sizeof *b->zeros);
        if (!b->zeros)
            return HC_NO_MEMORY;
        b->scratch = b->zeros + queue->size;
    }
    if (npieces <= b->capacity)
        return HC_OK;
    size_t room = (size_t)npieces + (size_t)npieces / 2 + 4;
    hc_piece *pieces = hc_realloc(b->batch.pieces, 0, room * sizeof *pieces);
    if (pieces)
        b->batch.pieces = pieces;
    hc_piece **origin = hc_realloc(b->origin, 0, room * sizeof(hc_piece *));
    if (origin)
        b->origin = origin;
    if (!pieces || !origin)
        return HC_NO_MEMORY;
    b->capacity = (int32_t)room;
    return HC_OK;
}

/* Reserves memory for a pair of events per call; a rank that has joined has no calls. */
static int reserve_events(hc__run *b, uint32_t ncalls) {
    if (ncalls > b->room) {
        void **events = hc_realloc(b->events, 0, 2 * (size_t)ncalls * sizeof(void *));
        if (!events)
            return HC_NO_MEMORY;
        b->events = events;
        b->room = ncalls;
    }
    b->batch.ready = b->events;
    b->batch.finished = b->events + b->room;
    return HC_OK;
}

static void add_events(hc__run *b, const hc_handle *handle) {
    int32_t at = b->batch.ncalls++;
    b->events[at] = handle->ready;
    b->events[(uint32_t)at + b->room] = handle->finished;
}

hc__run *hc__run_compose(const hc_loop *loop, hc__set_queue *queue, const hc_action *run) {
    int32_t npieces = 0;
    for (uint32_t i = 0; i < run->nitems; i++)
        npieces += (int32_t)run->items[i].count;
    hc__run *b = queue->spare;
    if (b)
        queue->spare = b->next;
    else
        b = hc_calloc(1, sizeof *b);
    if (!b)
        return NULL;
    if (reserve(queue, b, npieces) != HC_OK) {
        hc__run_free(b);
        return NULL;
    }
    set_up(loop, queue, b, &run->items[0]);
    if (b->batch.memory == HC_MEMORY_CUDA && reserve_events(b, run->nitems) != HC_OK) {
        hc__run_free(b);
        return NULL;
    }
    b->number = run->batch;
    b->cached = run->cached;
    b->nitems = run->nitems;
    b->first = (const hc_handle *)(uintptr_t)run->items[0].ticket;
    b->bytes = 0;
    b->next = NULL;
    for (uint32_t i = 0; i < run->nitems; i++)
        add_item(b, &run->items[i]);
    return b;
}

hc__run *hc__run_build(hc_loop *loop, hc__set_queue *queue, const hc_action *run) {
    hc__run *b = hc__run_compose(loop, queue, run);
    for (uint32_t i = 0; b && i < run->nitems; i++) {
        hc_handle *handle = (hc_handle *)(uintptr_t)run->items[i].ticket;
        if (!handle)
            continue;
        hc__trace_handle(loop, HC_TRACE_FUSE, handle, b->number);
        if (b->batch.memory == HC_MEMORY_CUDA)
            add_events(b, handle);
        if (loop->config.debug && run->items[i].first == 0)
            hc__checksum_verify(handle);
    }
    return b;
}

/* Adds to the text the rank that has no memory for its result. If that needs memory that is not there, the text
 * stays. */
static void name_refuser(const hc_loop *loop, hc_piece *piece) {
    char who[HC_WHO], text[HC_WHO + 128];
    hc_who_in_set(&loop->ranks.processes, piece->refused_by, piece->refused_by_world, who);
    snprintf(text, sizeof text, "%s %s", who, piece->why);
    char *named = hc_strdup(text);
    if (!named)
        return;
    hc_free(piece->why);
    piece->why = named;
}

void hc__run_take_results(hc__run *b) {
    for (int32_t i = 0; i < b->batch.npieces; i++) {
        hc_piece *from = b->origin[i];
        if (!from || !from->out_owned)
            continue;
        from->out = NULL;
        from->out_owned = 0;
    }
}

void hc__run_deliver(const hc_loop *loop, hc__run *b) {
    for (int32_t i = 0; i < b->batch.npieces; i++) {
        hc_piece *to = b->origin[i], *from = &b->batch.pieces[i];
        if (to) {
            if (from->why)
                name_refuser(loop, from);
            to->out = from->out;
            to->out_owned = from->out_owned;
            to->out_rows = from->out_rows;
            to->status = from->status;
            to->why = from->why;
        } else {
            if (from->out_owned)
                hc_result_free(from->out);
            hc_free(from->why);
        }
        from->why = NULL;
    }
}

void hc__run_free(hc__run *b) {
    if (!b)
        return;
    for (int32_t i = 0; i < b->batch.npieces; i++)
        hc_free(b->batch.pieces[i].why); /* of an abandoned batch */
    hc_free(b->batch.pieces);
    hc_free(b->origin);
    hc_free(b->events);
    hc_free(b->zeros);
    hc_free(b);
}
