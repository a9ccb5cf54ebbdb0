/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_scatter.c - the stages of a reducescatter, where they differ from those of an allreduce.
 *
 *     reduce    windows of all ranks' shares -> buffer -> ncclReduceScatter: local rank j has the node's sums for the
 *               j-th ranks of all nodes
 *     net       reduces and scatters these sums among the j-th ranks
 *     spread    my share -> tensors; no gather is needed
 *
 * All nodes have the same number of ranks, and every rank drives a rail. Where one communicator joins all ranks there
 * is no net; then a tensor is reduced in place if its rows divide evenly and it needs no factor.
 *
 * Where rows do not divide evenly, the parts of a window have gaps. Two calls are possible: ncclReduceScatter, in which
 * every rank sends all parts but one, gaps included; or a group of one ncclReduce per rank, which sends each part
 * without its gaps once around the ring. The code calls the one that moves fewer bytes.
 */
#include "cuda/nccl/nccl_node.h"

#include <stdlib.h>

#define WINDOW_BYTES ((int64_t)64 << 20) /* of all parts, if there is no net. An estimate */
#define LEAST_BYTES ((int64_t)4096)      /* of a part */

/* ---- layout ----------------------------------------------------------------------------------------------------- */

/* The order of parts in the buffer: local rank 0 of every node, then local rank 1 of every node, and so on. */
int hc__nccl_order_parts(hc__nccl_node *n) {
    const hc__comms *c = n->comms;
    n->ranks = calloc((size_t)c->size, sizeof *n->ranks);
    if (!n->ranks)
        return HC_NO_MEMORY;
    n->groups = c->size / c->group_size;
    for (int32_t r = 0; r < c->size; r++) {
        int32_t local = 0;
        for (int32_t q = 0; q < r; q++)
            local += c->group_of[q] == c->group_of[r];
        int32_t place = local * n->groups + c->group_of[r];
        if (place < c->size) /* else nodes are uneven, and no batch comes here */
            n->ranks[place] = r;
    }
    return HC_OK;
}

int hc__nccl_lay_shares(hc__nccl_node *n, int64_t chunk_elements) {
    const hc_batch *b = n->batch;
    const hc_piece *first = &b->pieces[0];
    int64_t size = n->comms->size, unit = HC_PACK_UNIT * n->size / (n->size < n->wire_size ? n->size : n->wire_size);
    int64_t most = chunk_elements > 0 ? chunk_elements * n->size : WINDOW_BYTES, each = most / size;
    if (hc__shares_lay(&n->shares, b, n->comms->size, unit) < 0)
        return HC_NO_MEMORY;
    int64_t all = n->shares.starts[b->npieces];
    n->whole = n->rails == 0 && b->npieces == 1 && first->rows % size == 0 && hc__nccl_scale(n, 0) == 1.0;
    n->each = n->whole ? all : (each < LEAST_BYTES ? LEAST_BYTES : each) / unit * unit;
    n->nchunks = all ? (all + n->each - 1) / n->each : 0;
    n->chunk = n->whole ? 0 : (n->each < all ? n->each : all) / n->size * size;
    return HC_OK;
}

/* ---- a window --------------------------------------------------------------------------------------------------- */

/* All ranks pass the tensor in place. A rank that has joined passes spare memory. */
static int cut_whole(hc__nccl_node *n, hc__nccl_slot *slot) {
    const hc_piece *piece = &n->batch->pieces[0];
    int64_t part = hc__share_bytes(&n->shares, 0, 0), all = part * n->comms->size;
    char *out = hc__share_out(&n->shares, 0, n->comms->rank);
    int64_t missing = (piece->in ? 0 : all) + (out ? 0 : part);
    slot->part = part / n->size;
    slot->n = all / n->size;
    if (missing > n->spare_bytes) {
        int status = hc__nccl_grow(n, HC__ON_DEVICE, &n->spare, missing);
        n->spare_bytes = status < 0 ? 0 : missing;
        if (status < 0)
            return status;
    }
    slot->in_place = piece->in ? (char *)(uintptr_t)piece->in : n->spare;
    slot->out_place = out ? out : n->spare + missing - part;
    return piece->in ? HC_OK : hc__nccl_neutral(n, n->spare, all);
}

/* The overlap of tensor i with rank r's part of the window: bytes [from, to) of its share, at `place` in the part. */
typedef struct span {
    int64_t from, to, place;
} span;

static int64_t window_bytes(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    return slot->n / n->comms->size * n->size;
}

static span span_of(const hc__nccl_node *n, const hc__nccl_slot *slot, int32_t i, int32_t r) {
    int64_t start = n->shares.starts[i], share = hc__share_bytes(&n->shares, i, r);
    int64_t from = slot->from > start ? slot->from - start : 0, to = slot->from + window_bytes(n, slot) - start;
    return (span){from, to < share ? to : share, start + from - slot->from};
}

/* The tensors of the window: sets *first, returns the end. */
static int32_t tensors(const hc__nccl_node *n, const hc__nccl_slot *slot, int32_t *first) {
    int32_t pieces = n->batch->npieces, end;
    *first = end = hc_piece_at(n->shares.starts, pieces, slot->from);
    while (end < pieces && n->shares.starts[end] < slot->from + window_bytes(n, slot))
        end++;
    return end;
}

/* Adds the copies between tensor i and the part that begins at `part` in the buffer. */
static int add_copies(hc__nccl_node *n, hc__nccl_slot *slot, int32_t i, int32_t r, int64_t part) {
    const hc_piece *piece = &n->batch->pieces[i];
    char *out = r == n->comms->rank ? hc__share_out(&n->shares, i, r) : NULL;
    span at = span_of(n, slot, i, r);
    int status = HC_OK;
    if (at.from >= at.to)
        return HC_OK;
    if (piece->in) {
        status = hc__copies_add(&slot->in, (const char *)piece->in + hc__share_before(&n->shares, i, r) + at.from,
                                at.to - at.from, part + at.place);
        if (status >= 0)
            slot->in.of[slot->in.n - 1].scale = hc__nccl_scale(n, i);
    }
    if (out && status >= 0)
        status = hc__copies_add(&slot->out, out + at.from, at.to - at.from, (part + at.place) / n->size * n->wire_size);
    return status;
}

int hc__nccl_cut_shares(hc__nccl_node *n, int64_t chunk, hc__nccl_slot *slot) {
    int64_t all = n->shares.starts[n->batch->npieces];
    int32_t size = n->comms->size, first;
    int status = HC_OK;
    slot->in.n = slot->out.n = 0;
    slot->complete = 1;
    slot->in_place = slot->out_place = NULL;
    slot->from = chunk * n->each;
    if (n->whole)
        return cut_whole(n, slot);
    int64_t bytes = slot->from + n->each < all ? n->each : all - slot->from;
    slot->n = bytes / n->size * size;
    slot->part = bytes / n->size * n->groups;
    int32_t end = tensors(n, slot, &first);
    for (int32_t place = 0; place < size; place++)
        for (int32_t i = first; i < end && status >= 0; i++)
            status = add_copies(n, slot, i, n->ranks[place], place * bytes);
    for (int32_t i = first; i < end; i++)
        slot->complete &= n->batch->pieces[i].in != NULL;
    return status;
}

/* ---- calls of NCCL ---------------------------------------------------------------------------------------------- */

/* Elements from the beginning of local rank j's parts to the end of the last tensor there. */
static int64_t really(const hc__nccl_node *n, const hc__nccl_slot *slot, int32_t j) {
    int32_t first, end = tensors(n, slot, &first);
    int64_t bytes = 0;
    for (int32_t k = 0; k < n->groups; k++)
        for (int32_t i = first; i < end; i++) {
            span at = span_of(n, slot, i, n->ranks[j * n->groups + k]);
            bytes = at.from < at.to ? k * window_bytes(n, slot) + at.place + at.to - at.from : bytes;
        }
    return bytes / n->size;
}

static int call_each(const hc__nccl_node *n, const hc__nccl_slot *slot) {
    const hc_nccl *nccl = &n->comms->nccl;
    int status = nccl->group_start();
    for (int32_t j = 0; j < n->base.local_size; j++) {
        char *at = slot->buffer + j * slot->part * n->size;
        int64_t count = really(n, slot, j);
        if (count)
            status = hc__nccl_worse(status,
                                    nccl->reduce(at, at, (size_t)count, n->dtype, n->op, j, n->comms->comm, n->work));
    }
    return hc__nccl_worse(status, nccl->group_end());
}

int hc__nccl_call_scatter(hc__nccl_node *n, const hc__nccl_slot *slot) {
    char *mine = slot->buffer + n->base.local_rank * slot->part * n->size;
    int64_t least = 0;
    for (int32_t j = 0; j < n->base.local_size && !n->whole; j++)
        least += really(n, slot, j);
    if (!n->whole && slot->part * (n->base.local_size - 1) > least)
        return call_each(n, slot);
    return n->comms->nccl.reduce_scatter(n->whole ? slot->in_place : slot->buffer, n->whole ? slot->out_place : mine,
                                         (size_t)slot->part, n->dtype, n->op, n->comms->comm, n->work);
}

/* ---- the net's part --------------------------------------------------------------------------------------------- */

void hc__nccl_node_bounds(const hc__nccl_node *n, const hc__nccl_slot *slot, int64_t *bounds) {
    for (int32_t k = 0; k <= n->groups; k++)
        bounds[k] = slot->part / n->groups * k;
}
