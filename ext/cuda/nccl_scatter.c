/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_scatter.c - reducescatter over one communicator: a window of all shares at a time, packed and scaled.
 *
 * Where a window's parts have gaps (tensors whose rows do not come out even), two calls can do it: ncclReduceScatter, in
 * which everybody sends all but one of the parts, gaps included, or one ncclReduce a rank in a group, in which what each
 * part really has goes round once. The one that moves fewer bytes is called.
 */
#include "nccl_direct.h"

#include <stdlib.h>

#define WINDOW_BYTES ((int64_t)64 << 20) /* of all parts together. An estimate */
#define LEAST_BYTES ((int64_t)4096)      /* of a part */

static hc__nccl_scatter *scatter_of(const hc__step *step) {
    return (hc__nccl_scatter *)(uintptr_t)step;
}

static int32_t me(const hc__nccl_scatter *o) {
    return o->step.node->base.local_rank;
}

/* ---- a window -------------------------------------------------------------------------------------------------------- */

/* All ranks give, and take, the tensor as it lies. Who has joined does as if. */
static int cut_whole(hc__nccl_scatter *o) {
    const hc_piece *piece = &o->shares.batch->pieces[0];
    char *out = hc__share_out(&o->shares, 0, me(o));
    int64_t all = o->bytes * o->shares.size, missing = (piece->in ? 0 : all) + (out ? 0 : o->bytes);
    int status = hc__step_reserve(&o->step, missing);
    o->give = piece->in ? piece->in : o->step.scratch;
    o->take = out ? out : o->step.scratch + missing - o->bytes;
    return status == HC_OK && !piece->in ? hc__nccl_neutral(o->step.node, o->step.scratch, all) : status;
}

/* Where tensor i meets rank r's part of the window: bytes [from, to) of its share, at `place` of the part. */
typedef struct span {
    int64_t from, to, place;
} span;

static span span_of(const hc__nccl_scatter *o, int32_t i, int32_t r) {
    int64_t start = o->shares.starts[i], share = hc__share_bytes(&o->shares, i, r);
    int64_t from = o->from > start ? o->from - start : 0, to = o->from + o->bytes - start;
    return (span){from, to < share ? to : share, start + from - o->from};
}

/* The tensors of the window: *first, and one past the last. */
static int32_t tensors(const hc__nccl_scatter *o, int32_t *first) {
    int32_t n = o->shares.batch->npieces, end;
    *first = end = hc_piece_at(o->shares.starts, n, o->from);
    while (end < n && o->shares.starts[end] < o->from + o->bytes)
        end++;
    return end;
}

static int add_copies(hc__nccl_scatter *o, int32_t i, int32_t r) {
    const hc__shares *s = &o->shares;
    const hc_piece *piece = &s->batch->pieces[i];
    char *out = r == me(o) ? hc__share_out(s, i, r) : NULL;
    span at = span_of(o, i, r);
    int status = HC_OK;
    if (at.from >= at.to)
        return HC_OK;
    if (piece->in) {
        status = hc__copies_add(&o->step.in, (const char *)piece->in + hc__share_before(s, i, r) + at.from,
                                at.to - at.from, r * o->bytes + at.place);
        if (status >= 0)
            o->step.in.of[o->step.in.n - 1].scale = piece->scale;
    }
    if (out && status >= 0)
        status = hc__copies_add(&o->step.out, out + at.from, at.to - at.from, r * o->bytes + at.place);
    return status;
}

/* The parts lie one after another in scratch memory; mine is where my result is. */
static int cut_parts(hc__nccl_scatter *o) {
    int32_t size = o->shares.size, first, end = tensors(o, &first);
    int complete = 1, status = hc__step_reserve(&o->step, o->bytes * size);
    for (int32_t r = 0; r < size; r++)
        for (int32_t i = first; i < end && status >= 0; i++)
            status = add_copies(o, i, r);
    for (int32_t i = first; i < end; i++)
        complete &= o->shares.batch->pieces[i].in != NULL;
    o->give = o->step.scratch;
    o->take = o->step.scratch + me(o) * o->bytes;
    return status < 0 || complete ? status : hc__nccl_neutral(o->step.node, o->step.scratch, o->bytes * size);
}

static int cut_window(hc__step *step) {
    hc__nccl_scatter *o = scatter_of(step);
    int64_t all = o->shares.starts[o->shares.batch->npieces];
    o->from = o->next * o->each;
    o->bytes = o->from + o->each < all ? o->each : all - o->from;
    if (!o->whole)
        return cut_parts(o);
    o->bytes = hc__share_bytes(&o->shares, 0, 0);
    return cut_whole(o);
}

/* ---- calls of NCCL --------------------------------------------------------------------------------------------------- */

/* Bytes from the beginning of rank r's part to the end of the last tensor there. */
static int64_t part_bytes(const hc__nccl_scatter *o, int32_t r) {
    int32_t first, end = tensors(o, &first);
    int64_t bytes = 0;
    for (int32_t i = first; i < end; i++) {
        span at = span_of(o, i, r);
        bytes = at.from < at.to ? at.place + at.to - at.from : bytes;
    }
    return bytes;
}

static int call_each(const hc__nccl_scatter *o, int dtype, int op, int64_t size) {
    const hc__nccl_node *n = o->step.node;
    const hc_nccl *nccl = &n->comms->nccl;
    int status = nccl->group_start();
    for (int32_t r = 0; r < o->shares.size; r++) {
        char *at = o->step.scratch + r * o->bytes;
        int64_t bytes = part_bytes(o, r);
        if (bytes)
            status = hc__nccl_worse(
                status, nccl->reduce(at, at, (size_t)(bytes / size), dtype, op, r, n->comms->comm, n->work));
    }
    return hc__nccl_worse(status, nccl->group_end());
}

static int call_scatter(const hc__step *step) {
    const hc__nccl_scatter *o = scatter_of(step);
    const hc__nccl_node *n = step->node;
    const hc_batch *b = o->shares.batch;
    int dtype = hc__nccl_dtype(b->dtype), op = hc__nccl_op(b->reduction, b->dtype);
    int64_t size = (int64_t)hc_dtype_size(b->dtype), really = 0;
    for (int32_t r = 0; r < o->shares.size; r++)
        really += part_bytes(o, r);
    if (o->bytes * (o->shares.size - 1) > really)
        return call_each(o, dtype, op, size);
    return n->comms->nccl.reduce_scatter(o->give, o->take, (size_t)(o->bytes / size), dtype, op,
                                         n->comms->comm, n->work);
}

static const hc__step_ops scatters = {cut_window, call_scatter, "a reducescatter"};

/* ---- a batch --------------------------------------------------------------------------------------------------------- */

void hc__nccl_scatter_open(hc__nccl_scatter *o, hc__nccl_node *node, int64_t chunk_bytes) {
    o->step.node = node;
    o->most = chunk_bytes > 0 ? chunk_bytes : WINDOW_BYTES;
}

int hc__nccl_scatter_start(hc__nccl_scatter *o, hc_batch *batch) {
    hc__nccl_node *n = o->step.node;
    int32_t size = n->base.local_size;
    const hc_piece *first = &batch->pieces[0];
    int status = hc__nccl_begin(n, batch);
    if (status >= 0)
        status = hc__shares_lay(&o->shares, batch, size);
    o->late = HC_OK;
    for (int32_t i = 0; i < batch->npieces && status >= 0; i++)
        status = hc__place_on_device(n->device, batch, &batch->pieces[i],
                                     hc_share(batch->pieces[i].rows, size, me(o)), &o->late, n->text);
    if (status < 0)
        return status;
    int64_t all = o->shares.starts[batch->npieces];
    o->whole = batch->npieces == 1 && first->rows % size == 0 && first->scale == 1.0;
    o->each = o->most / size / HC_PACK_UNIT * HC_PACK_UNIT;
    o->each = o->whole ? all : o->each < LEAST_BYTES ? LEAST_BYTES : o->each;
    o->windows = all ? (all + o->each - 1) / o->each : 0;
    o->next = 0;
    hc__step_begin(&o->step);
    return HC_OK;
}

int hc__nccl_scatter_test(hc__nccl_scatter *o) {
    while (o->next < o->windows) {
        int status = hc__step_move(&o->step, &scatters);
        if (status != HC_DONE)
            return status;
        o->next++;
    }
    int status = hc__nccl_end(o->step.node);
    return status < 0 ? status : o->late < 0 ? o->late : HC_DONE;
}

void hc__nccl_scatter_close(hc__nccl_scatter *o) {
    hc__step_free(&o->step);
    free(o->shares.starts);
    o->shares.starts = NULL;
}
