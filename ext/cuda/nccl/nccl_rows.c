/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_rows.c - allgather and alltoall over one communicator.
 *
 *     allgather   ncclAllGather where all ranks give equally much, else a group with an ncclBroadcast per rank: every
 *                 byte crosses each link of NCCL's ring once; with sends, links between nodes once per rank
 *     alltoall    ncclSend and ncclRecv in a group
 *
 * NCCL moves bytes, so every type works. A rank that has joined gives nothing, and receives into scratch memory.
 */
#include "cuda/nccl/nccl_direct.h"

#include <stdlib.h>

#define PACKED_BYTES ((int64_t)8 << 20) /* results that are packed together. An estimate */

static hc__nccl_rows *rows_of(const hc__step *step) {
    return (hc__nccl_rows *)(uintptr_t)step;
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

/* Bytes of tensors [first, end) in a stream: one tensor without padding, several each at a multiple of 16. */
static int64_t run_bytes(const hc__nccl_rows *o, int incoming, int32_t stream, int32_t first, int32_t end) {
    int64_t bytes = 0;
    if (end - first == 1)
        return hc__rows_bytes(&o->rows, incoming, stream, first);
    for (int32_t i = first; i < end; i++)
        bytes += hc__aligned(hc__rows_bytes(&o->rows, incoming, stream, i));
    return bytes;
}

static int64_t all_bytes(const hc__nccl_rows *o, int32_t i) {
    int64_t bytes = 0;
    for (int32_t r = 0; r < o->rows.size; r++)
        bytes += run_bytes(o, HC__INCOMING, r, i, i + 1);
    return bytes;
}

/* The end of the run of tensors from `first` that are packed together. It must be the same on all ranks, which know all
 * streams of an allgather, but only the longest of an alltoall. */
static int32_t find_end(const hc__nccl_rows *o) {
    const hc_batch *b = o->rows.batch;
    int32_t end = o->first + 1;
    if (hc_operation_has(b->operation, HC_OP_COUNTS))
        return o->rows.longest * o->rows.size <= o->most ? b->npieces : end;
    for (int64_t bytes = all_bytes(o, o->first); end < b->npieces; end++) {
        bytes += all_bytes(o, end);
        if (bytes > o->most)
            break;
    }
    return end;
}

/* The address of a stream's part of the run in its tensor; NULL: it is in no tensor, or in several. */
static char *in_tensor(const hc__nccl_rows *o, int incoming, int32_t stream) {
    return o->end - o->first == 1 ? hc__rows_at(&o->rows, incoming, stream, o->first) : NULL;
}

static int64_t scratch_bytes(const hc__nccl_rows *o) {
    int64_t bytes = 0;
    for (int incoming = 0; incoming < 2; incoming++)
        for (int32_t r = 0; r < hc__rows_streams(&o->rows, incoming); r++)
            if (!in_tensor(o, incoming, r))
                bytes += run_bytes(o, incoming, r, o->first, o->end);
    return bytes;
}

/* Adds the copies between several tensors and the stream's part of the run. */
static int add_copies(hc__nccl_rows *o, int incoming, int32_t stream, int64_t place) {
    hc__copies *copies = incoming ? &o->step.out : &o->step.in;
    int status = HC_OK;
    for (int32_t i = o->first; i < o->end && status >= 0; i++) {
        int64_t bytes = hc__rows_bytes(&o->rows, incoming, stream, i);
        const char *tensor = hc__rows_at(&o->rows, incoming, stream, i);
        if (tensor)
            status = hc__copies_add(copies, tensor, bytes, place);
        place += hc__aligned(bytes);
    }
    return status;
}

/* Chooses the next tensors and the place of each stream's part: in its tensor, or in scratch memory. */
static int cut_run(hc__step *step) {
    hc__nccl_rows *o = rows_of(step);
    int64_t place = 0;
    o->end = find_end(o);
    int status = hc__step_reserve(step, scratch_bytes(o));
    for (int incoming = 0; incoming < 2; incoming++)
        for (int32_t r = 0; r < hc__rows_streams(&o->rows, incoming) && status >= 0; r++) {
            hc__nccl_part *part = &o->parts[incoming * o->rows.size + r];
            *part = (hc__nccl_part){in_tensor(o, incoming, r), run_bytes(o, incoming, r, o->first, o->end)};
            if (part->at)
                continue;
            part->at = step->scratch + place;
            if (o->end - o->first > 1)
                status = add_copies(o, incoming, r, place);
            place += part->bytes;
        }
    return status;
}

/* ---- calls of NCCL ---------------------------------------------------------------------------------------------- */

static int are_even(const hc__nccl_part *parts, int32_t n) {
    for (int32_t r = 1; r < n; r++)
        if (parts[r].bytes != parts[0].bytes)
            return 0;
    return 1;
}

static int call_gather(const hc__step *step) {
    const hc__nccl_rows *o = rows_of(step);
    const hc__nccl_part *give = o->parts, *take = o->parts + o->rows.size;
    const hc__nccl_node *n = step->node;
    const hc_nccl *nccl = &n->comms->nccl;
    if (are_even(take, o->rows.size))
        return take->bytes
                   ? nccl->all_gather(give->at, take->at, (size_t)take->bytes, HC_NCCL_UINT8, n->comms->comm, n->work)
                   : HC_NCCL_SUCCESS;
    int status = nccl->group_start();
    for (int32_t r = 0; r < o->rows.size; r++) {
        const char *from = r == n->base.local_rank ? give->at : take[r].at;
        if (take[r].bytes)
            status = hc__nccl_worse(status, nccl->broadcast(from, take[r].at, (size_t)take[r].bytes, HC_NCCL_UINT8, r,
                                                            n->comms->comm, n->work));
    }
    return hc__nccl_worse(status, nccl->group_end());
}

static int call_messages(const hc__step *step) {
    const hc__nccl_rows *o = rows_of(step);
    const hc__nccl_part *give = o->parts, *take = o->parts + o->rows.size;
    const hc__nccl_node *n = step->node;
    const hc_nccl *nccl = &n->comms->nccl;
    int status = nccl->group_start();
    for (int32_t r = 0; r < o->rows.size; r++) {
        if (give[r].bytes)
            status = hc__nccl_worse(
                status, nccl->send(give[r].at, (size_t)give[r].bytes, HC_NCCL_UINT8, r, n->comms->comm, n->work));
        if (take[r].bytes)
            status = hc__nccl_worse(
                status, nccl->recv(take[r].at, (size_t)take[r].bytes, HC_NCCL_UINT8, r, n->comms->comm, n->work));
    }
    return hc__nccl_worse(status, nccl->group_end());
}

static const hc__step_ops gathers = {cut_run, call_gather, "an allgather"};
static const hc__step_ops exchanges = {cut_run, call_messages, "an alltoall"};

/* ---- a batch ---------------------------------------------------------------------------------------------------- */

int hc__nccl_rows_open(hc__nccl_rows *o, hc__nccl_node *node, hc_data *host, const int32_t *world,
                       int64_t chunk_bytes) {
    o->step.node = node;
    o->most = chunk_bytes > 0 ? chunk_bytes : PACKED_BYTES;
    o->rows.device = node->device;
    o->rows.host = host;
    o->rows.rank = node->base.local_rank;
    o->rows.size = node->base.local_size;
    o->rows.world = world;
    o->rows.text = node->text;
    o->parts = calloc(2 * (size_t)node->base.local_size, sizeof *o->parts);
    return o->parts ? HC_OK : HC_NO_MEMORY;
}

int hc__nccl_rows_start(hc__nccl_rows *o, hc_batch *batch) {
    o->counted = 0;
    o->first = 0;
    hc__step_begin(&o->step);
    int status = hc__nccl_begin(o->step.node, batch);
    return status < 0 ? status : hc__rows_begin(&o->rows, batch);
}

int hc__nccl_rows_test(hc__nccl_rows *o) {
    const hc__step_ops *ops = hc_operation_has(o->rows.batch->operation, HC_OP_COUNTS) ? &exchanges : &gathers;
    int status;
    if (!o->counted) {
        status = hc__rows_test(&o->rows);
        if (status != HC_DONE)
            return status;
        o->counted = 1;
    }
    while (o->first < o->rows.batch->npieces) {
        status = hc__step_move(&o->step, ops);
        if (status != HC_DONE)
            return status;
        o->first = o->end;
    }
    status = hc__nccl_end(o->step.node);
    return status < 0 ? status : HC_DONE;
}

void hc__nccl_rows_close(hc__nccl_rows *o) {
    hc__rows_end(&o->rows);
    hc__step_free(&o->step);
    free(o->parts);
    o->parts = NULL;
}
