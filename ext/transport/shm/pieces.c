/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.c - packs, reduces and unpacks ranges of a batch, whose tensors form one concatenation.
 *
 * Factor and divisor: the node's sum is scaled in float32 (float64) before it is rounded to the tensors' type or the
 * wire type. On one node the mean is then final. Between nodes the sum is first divided by a power of two, which rounds
 * nothing and keeps it near the mean; the net divides by the remaining factor.
 *
 * Sums are formed in private memory (scratch: block by block) and then copied into the segment. Other cores have read
 * the segment's lines, so each store needs the ownership of its line first. A store between the loads of a sum waits
 * for that; a copy has many lines in flight, or streams them if the other cores are far (kernels/copy.h). Between two
 * cores this halves the time of an allreduce (benchmarks/node_stage, 64 KB to 1 MB).
 */
#include "transport/shm/pieces.h"

#include "transport/shm/layout.h"
#include "transport/shm/shm_state.h"

int hc__take_batch(hc__shm *shm, const hc_batch *batch, int result_dtype) {
    if (hc_starts_reserve(&shm->open.starts, &shm->open.starts_room, batch->npieces) < 0)
        return HC_NO_MEMORY;
    int64_t at = 0;
    for (int32_t i = 0; i < batch->npieces; i++) {
        shm->open.starts[i] = at;
        at += batch->pieces[i].count;
    }
    shm->open.starts[batch->npieces] = at;
    shm->open.batch = batch;
    shm->open.size = hc_dtype_size(batch->dtype);
    shm->open.result_dtype = result_dtype;
    shm->open.result_size = hc_dtype_size(result_dtype);
    shm->open.out_from = 0;
    hc__shm_expect(&shm->base, 2 * at * (int64_t)shm->open.size); /* results are as large as the inputs */
    return HC_OK;
}

/* ---- ranges, piece by piece ---------------------------------------------------------------------- */

hc__spans hc__spans_of(const hc__shm *shm, hc__range range) {
    return (hc__spans){shm, range, range.from, hc_piece_at(shm->open.starts, shm->open.batch->npieces, range.from)};
}

int hc__spans_next(hc__spans *spans, hc__span *span) {
    if (spans->position >= spans->range.to)
        return 0;
    const hc__shm *shm = spans->shm;
    while (shm->open.starts[spans->piece + 1] <= spans->position)
        spans->piece++;
    const hc_piece *piece = &shm->open.batch->pieces[spans->piece];
    int64_t start = shm->open.starts[spans->piece], end = shm->open.starts[spans->piece + 1];
    int64_t to = end < spans->range.to ? end : spans->range.to;
    int64_t at = spans->position - start;
    int64_t before = shm->open.out_from > start ? shm->open.out_from - start : 0;
    *span = (hc__span){
        .piece = piece,
        .in = piece->in == NULL ? NULL : (const uint8_t *)piece->in + (size_t)at * shm->open.size,
        .out = piece->out == NULL || at < before ? NULL
                                                 : (uint8_t *)piece->out + (size_t)(at - before) * shm->open.size,
        .n = to - spans->position,
        .offset = spans->position - spans->range.from,
    };
    spans->position = to;
    return 1;
}

int hc__gives(const hc__shm *shm) {
    const hc_batch *batch = shm->open.batch;
    return batch->operation == HC_BROADCAST && batch->local_root == shm->base.local_rank;
}

/* ---- in ------------------------------------------------------------------------------------------ */

/* The input of a rank that has joined. */
static void neutral(hc__shm *shm, int dtype, int64_t n, uint8_t *to) {
    hc_host_neutral(to, dtype, shm->open.batch->reduction, n);
}

static int64_t block_end(const hc__shm *shm, int64_t at, int64_t n) {
    int64_t end = at + (int64_t)(HC__SCRATCH / shm->open.size);
    return end < n ? end : n;
}

static void pack_span(hc__shm *shm, const hc__span *span, uint8_t *to) {
    shm->base.packed_bytes += (uint64_t)span->n * shm->open.size;
    if (span->in != NULL) {
        hc__shm_show(shm, to, span->in, (size_t)span->n * shm->open.size);
        return;
    }
    for (int64_t at = 0, end; at < span->n; at = end) {
        end = block_end(shm, at, span->n);
        neutral(shm, shm->open.batch->dtype, end - at, shm->operands.scratch);
        hc__shm_show_cached(shm, to + (size_t)at * shm->open.size, shm->operands.scratch,
                            (size_t)(end - at) * shm->open.size);
    }
}

void hc__pack(hc__shm *shm, hc__range range, uint8_t *to) {
    hc__spans spans = hc__spans_of(shm, range);
    hc__span span;
    while (hc__spans_next(&spans, &span))
        pack_span(shm, &span, to + (size_t)span.offset * shm->open.size);
}

/* ---- the sum ------------------------------------------------------------------------------------- */

/* Reduces elements [at, at + n) of a span over all ranks, into private memory. */
static void reduce_block(hc__shm *shm, const hc__span *span, int64_t at, int64_t n, uint8_t *to) {
    const hc_batch *batch = shm->open.batch;
    int32_t me = shm->base.local_rank;
    size_t place = (size_t)at * shm->open.size;
    for (int32_t q = 0; q < shm->base.local_size; q++)
        shm->operands.blocks[q] = shm->operands.inputs[q] + (size_t)span->offset * shm->open.size + place;
    shm->operands.blocks[me] = span->in != NULL ? span->in + place : shm->operands.block;
    if (span->in == NULL)
        neutral(shm, batch->dtype, n, shm->operands.block);
    hc_host_reduce(to, batch->dtype, shm->operands.blocks, shm->base.local_size, batch->dtype, batch->reduction, n,
                   span->piece->scale, (double)batch->node_divisor);
    shm->base.reduced_bytes += (uint64_t)n * shm->open.size;
}

/* Copies n elements of a sum from private memory to the segment. */
static void show(hc__shm *shm, uint8_t *result, const uint8_t *sum, int64_t n) {
    if (shm->open.result_dtype != shm->open.batch->dtype) {
        hc_host_convert(shm->operands.block, shm->open.result_dtype, sum, shm->open.batch->dtype, n, 1.0);
        sum = shm->operands.block;
    }
    hc__shm_show_cached(shm, result, sum, (size_t)n * shm->open.result_size);
}

static void reduce_span(hc__shm *shm, const hc__span *span, uint8_t *result, uint8_t *out) {
    if (out == NULL && result == NULL)
        return;
    int in_one = out != NULL && span->in != NULL; /* the tensor is the destination, so scratch sets no limit */
    for (int64_t at = 0, end; at < span->n; at = end) {
        end = in_one ? span->n : block_end(shm, at, span->n);
        size_t place = (size_t)at * shm->open.size;
        uint8_t *sum = out != NULL ? out + place : shm->operands.scratch;
        reduce_block(shm, span, at, end - at, sum);
        if (result != NULL)
            show(shm, result + (size_t)at * shm->open.result_size, sum, end - at);
    }
}

void hc__reduce(hc__shm *shm, hc__range range, uint8_t *to, int targets) {
    hc__spans spans = hc__spans_of(shm, range);
    hc__span span;
    while (hc__spans_next(&spans, &span))
        reduce_span(shm, &span, (targets & HC__TO_RESULT) ? to + (size_t)span.offset * shm->open.result_size : NULL,
                    (targets & HC__TO_OUT) ? span.out : NULL);
}

void hc__reduce_alone(hc__shm *shm, hc__range range, uint8_t *to) {
    const hc_batch *batch = shm->open.batch;
    hc__spans spans = hc__spans_of(shm, range);
    hc__span span;
    while (hc__spans_next(&spans, &span)) {
        uint8_t *result = to != NULL ? to + (size_t)span.offset * shm->open.result_size : span.out;
        if (result == NULL)
            continue;
        int logical = hc_reduction_is_logical(batch->reduction);
        double divisor = (double)batch->node_divisor;
        if (span.in == NULL) {
            neutral(shm, shm->open.result_dtype, span.n, result);
        } else if (shm->open.result_dtype != batch->dtype && !logical) {
            hc_host_convert(result, shm->open.result_dtype, span.in, batch->dtype, span.n, span.piece->scale / divisor);
        } else if (result != span.in || span.piece->scale != 1.0 || divisor != 1.0 || logical) {
            const void *source = span.in;
            hc_host_reduce(result, shm->open.result_dtype, &source, 1, batch->dtype, batch->reduction, span.n,
                           span.piece->scale, divisor);
            shm->base.reduced_bytes += (uint64_t)span.n * shm->open.size;
        }
    }
}

/* ---- out ----------------------------------------------------------------------------------------- */

static void unpack_span(hc__shm *shm, const hc__span *span, const uint8_t *from) {
    if (shm->open.batch->dtype == shm->open.result_dtype)
        hc_node_copy_result(&shm->base, span->out, from, (size_t)span->n * shm->open.size);
    else
        hc_host_convert(span->out, shm->open.batch->dtype, from, shm->open.result_dtype, span->n, 1.0);
    shm->base.spread_bytes += (uint64_t)span->n * shm->open.size;
}

void hc__unpack(hc__shm *shm, hc__range range, const uint8_t *from) {
    hc__spans spans = hc__spans_of(shm, range);
    hc__span span;
    int gives = hc__gives(shm);
    while (hc__spans_next(&spans, &span))
        if (span.out != NULL && !(gives && span.out == span.in))
            unpack_span(shm, &span, gives ? span.in : from + (size_t)span.offset * shm->open.result_size);
}
