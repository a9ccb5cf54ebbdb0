/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_rows.c - allgather and alltoall over one communicator.
 *
 *     allgather   ncclAllGather where all give the same, else one ncclBroadcast a rank in a group: every byte crosses each
 *                 link of NCCL's ring once, where sends to all would cross the links between nodes once a rank
 *     alltoall    ncclSend and ncclRecv in a group
 *
 * Bytes are bytes: any type goes. Who has joined gives nothing, and takes what nobody wants into scratch memory.
 */
#include "nccl_direct.h"

#include <stdlib.h>

#define PACKED_BYTES ((int64_t)8 << 20) /* results that are packed together. An estimate */

/* ---- scratch -------------------------------------------------------------------------------------------------------- */

int hc__scratch_reserve(hc__nccl_node *n, hc__scratch *s, int64_t bytes) {
    if (bytes <= s->bytes)
        return HC_OK;
    int64_t room = 2 * s->bytes > bytes ? 2 * s->bytes : bytes;
    int status = hc__nccl_grow(n, HC__ON_DEVICE, &s->at, room);
    s->bytes = status < 0 ? 0 : room;
    return status;
}

void hc__scratch_free(hc__nccl_node *n, hc__scratch *s) {
    if (s->at)
        hc_device_result_free(n->device, s->at, n->work);
    *s = (hc__scratch){0};
}

/* ---- a run ---------------------------------------------------------------------------------------------------------- */

/* Bytes of tensors [first, end) that a stream has: one as it is, several each at a multiple of 16. */
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

/* How far the tensors from `first` on are packed together. All ranks know all of an allgather, and of an alltoall the
 * longest stream. */
static int32_t find_end(const hc__nccl_rows *o) {
    const hc_batch *b = o->rows.batch;
    int32_t end = o->first + 1;
    if (b->operation == HC_ALLTOALL)
        return o->rows.longest * o->rows.size <= o->most ? b->npieces : end;
    for (int64_t bytes = all_bytes(o, o->first); end < b->npieces; end++) {
        bytes += all_bytes(o, end);
        if (bytes > o->most)
            break;
    }
    return end;
}

/* Where a stream's part of the run lies in its tensor; NULL: in none, or in several. */
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

/* Of several tensors: the copies between them and the stream's part of the run. */
static int add_copies(hc__nccl_rows *o, int incoming, int32_t stream, int64_t place) {
    hc__copies *copies = incoming ? &o->out : &o->in;
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

/* The next tensors, and where each stream's part of them is: in its tensor, or in scratch memory. */
static int cut_run(hc__nccl_rows *o) {
    int64_t place = 0;
    o->end = find_end(o);
    o->in.n = o->out.n = 0;
    int status = hc__scratch_reserve(o->node, &o->scratch, scratch_bytes(o));
    for (int incoming = 0; incoming < 2; incoming++)
        for (int32_t r = 0; r < hc__rows_streams(&o->rows, incoming) && status >= 0; r++) {
            hc__part *part = &o->parts[incoming * o->rows.size + r];
            *part = (hc__part){in_tensor(o, incoming, r), run_bytes(o, incoming, r, o->first, o->end)};
            if (part->at)
                continue;
            part->at = o->scratch.at + place;
            if (o->end - o->first > 1)
                status = add_copies(o, incoming, r, place);
            place += part->bytes;
        }
    return status;
}

/* ---- calls of NCCL --------------------------------------------------------------------------------------------------- */

static int are_even(const hc__part *parts, int32_t n) {
    for (int32_t r = 1; r < n; r++)
        if (parts[r].bytes != parts[0].bytes)
            return 0;
    return 1;
}

static int call_gather(const hc__nccl_rows *o, const hc__part *give, const hc__part *take) {
    const hc__nccl_node *n = o->node;
    const hc_nccl *nccl = &n->comms->nccl;
    if (are_even(take, o->rows.size))
        return take->bytes ? nccl->all_gather(give->at, take->at, (size_t)take->bytes, HC_NCCL_UINT8,
                                              n->comms->comm, n->work)
                           : HC_NCCL_SUCCESS;
    int status = nccl->group_start();
    for (int32_t r = 0; r < o->rows.size; r++) {
        const char *from = r == n->base.local_rank ? give->at : take[r].at;
        if (take[r].bytes)
            status = hc__nccl_worse(status, nccl->broadcast(from, take[r].at, (size_t)take[r].bytes,
                                                            HC_NCCL_UINT8, r, n->comms->comm, n->work));
    }
    return hc__nccl_worse(status, nccl->group_end());
}

static int call_letters(const hc__nccl_rows *o, const hc__part *give, const hc__part *take) {
    const hc__nccl_node *n = o->node;
    const hc_nccl *nccl = &n->comms->nccl;
    int status = nccl->group_start();
    for (int32_t r = 0; r < o->rows.size; r++) {
        if (give[r].bytes)
            status = hc__nccl_worse(status, nccl->send(give[r].at, (size_t)give[r].bytes, HC_NCCL_UINT8, r,
                                                       n->comms->comm, n->work));
        if (take[r].bytes)
            status = hc__nccl_worse(status, nccl->recv(take[r].at, (size_t)take[r].bytes, HC_NCCL_UINT8, r,
                                                       n->comms->comm, n->work));
    }
    return hc__nccl_worse(status, nccl->group_end());
}

/* ---- a batch --------------------------------------------------------------------------------------------------------- */

int hc__nccl_rows_open(hc__nccl_rows *o, hc__nccl_node *node, hc_data *host, int64_t chunk_bytes) {
    o->node = node;
    o->most = chunk_bytes > 0 ? chunk_bytes : PACKED_BYTES;
    o->rows.device = node->device;
    o->rows.host = host;
    o->rows.size = node->base.local_size;
    o->rows.text = node->text;
    o->parts = calloc(2 * (size_t)node->base.local_size, sizeof *o->parts);
    return o->parts ? HC_OK : HC_NO_MEMORY;
}

int hc__nccl_rows_start(hc__nccl_rows *o, hc_batch *batch) {
    o->counted = o->cut = o->called = 0;
    o->first = 0;
    int status = hc__nccl_begin(o->node, batch);
    return status < 0 ? status : hc__rows_begin(&o->rows, batch);
}

/* The run through its stages: HC_DONE, when all of it is launched. */
static int move_run(hc__nccl_rows *o) {
    hc__nccl_node *n = o->node;
    const hc__part *take = o->parts + o->rows.size;
    int status = o->cut ? HC_OK : cut_run(o), gathers = o->rows.batch->operation == HC_ALLGATHER;
    if (status < 0)
        return status;
    o->cut = 1;
    if (!o->called) {
        status = hc__copies_pack(&o->in, n->device, o->rows.batch->dtype, o->scratch.at, n->work, n->text,
                                 sizeof n->text);
        if (status)
            return hc__nccl_again(n, status);
        n->called = gathers ? call_gather(o, o->parts, take) : call_letters(o, o->parts, take);
        o->called = 1;
    }
    if (o->called == 1) {
        status = hc__nccl_settle(n, gathers ? "an allgather" : "an alltoall");
        if (status != HC_DONE)
            return status;
        o->called = 2;
    }
    status = hc__copies_unpack(&o->out, n->device, o->rows.batch->dtype, o->scratch.at, o->rows.batch->dtype,
                               n->work, n->text, sizeof n->text);
    return status ? hc__nccl_again(n, status) : HC_DONE;
}

int hc__nccl_rows_test(hc__nccl_rows *o) {
    int status;
    if (!o->counted) {
        status = hc__rows_test(&o->rows);
        if (status != HC_DONE)
            return status;
        o->counted = 1;
    }
    while (o->first < o->rows.batch->npieces) {
        status = move_run(o);
        if (status != HC_DONE)
            return status;
        o->first = o->end;
        o->cut = o->called = 0;
    }
    status = hc__nccl_end(o->node);
    return status < 0 ? status : o->rows.late < 0 ? o->rows.late : HC_DONE;
}

void hc__nccl_rows_close(hc__nccl_rows *o) {
    hc__rows_end(&o->rows);
    hc__scratch_free(o->node, &o->scratch);
    hc__copies_free(&o->in);
    hc__copies_free(&o->out);
    free(o->parts);
    o->parts = NULL;
}
