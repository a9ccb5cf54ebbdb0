/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c - scan and exscan: rank r gets the reduction of the ranks up to r, or before it.
 *
 * Values are combined in the order of the set's ranks, float16 and bfloat16 in float32 with one rounding at the end, so
 * the bits depend neither on the path nor on how requests were fused.
 *
 *     few bytes    every rank gets the values of all ranks (gather_bytes.c), and reduces those that it needs
 *     many bytes   a chain in chunks: rank r receives the prefix of the ranks before it, adds its values and sends the
 *                  sum to rank r + 1, which meanwhile works on the chunk before
 *
 * In the chain a rank receives and sends the data once: through the shared segment between neighbours on one node, over
 * the net between nodes. If nodes hold consecutive ranks, the net carries (nodes - 1) times the data.
 *
 * The ranks of a node step together, because an exchange takes all of them: in step t the rank that is d ranks behind
 * the node's first one offers chunk t - d to its neighbour.
 */
#include "transport/hierarchy/scan.h"

#include "transport/hierarchy/gather_bytes.h"
#include "transport/hierarchy/hierarchy_state.h"
#include "transport/hierarchy/placement.h"
#include "transport/hierarchy/results.h"
#include "transport/hierarchy/tags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The chain is faster above this: a rank reads the values of all others in more time than a step of the chain takes. */
#define AT_ONCE_BYTES ((int64_t)32 << 10)
#define AT_ONCE_MOST ((int64_t)256 << 10) /* of all ranks */
#define CHUNK_BYTES ((int64_t)64 << 10)   /* stays in a core's cache with the rank's own values */
#define SLOTS HC__SCAN_SLOTS

/* ---- values ------------------------------------------------------------------------------------------------ */

static size_t dtype_size(const hc__hierarchy *h) {
    return hc_dtype_size(h->batch->dtype);
}

/* A factor is applied to the sum. But the chain's partial sums may overflow where their product with a small factor
 * does not; so the power of two in that factor is applied to the values, which rounds nothing, and the bits are the
 * same. */
static double own_scale(const hc__hierarchy *h, int32_t piece) {
    double scale = h->batch->pieces[piece].scale;
    int exponent;
    if (h->scan.at_once || !(fabs(scale) < 1.0) || scale == 0.0)
        return 1.0;
    frexp(scale, &exponent);
    return ldexp(1.0, exponent - 1);
}

static double result_scale(const hc__hierarchy *h, int32_t piece) {
    return h->batch->pieces[piece].scale / own_scale(h, piece);
}

/* Copies this rank's elements [from, to) of the batch, as `kind`. */
static void take_own_values(hc__hierarchy *h, int64_t from, int64_t to, int kind, char *at) {
    const hc_batch *b = h->batch;
    const int64_t *starts = h->scan.starts;
    for (int32_t i = hc_piece_at(starts, b->npieces, from); from < to; i++) {
        int64_t n = (to < starts[i + 1] ? to : starts[i + 1]) - from;
        const char *in = b->pieces[i].in;
        if (in)
            hc_host_convert(at, kind, in + (size_t)(from - starts[i]) * dtype_size(h), b->dtype, n, own_scale(h, i));
        else
            hc_host_neutral(at, kind, b->reduction, n);
        at += (size_t)n * hc_dtype_size(kind);
        from += n;
    }
}

/* Fills in neutral elements. Only copies have streaming stores, so these fill private memory first. */
static void fill(const hc__hierarchy *h, char *out, int64_t n) {
    const hc_batch *b = h->batch;
    char *neutral = h->node->results == HC_STORES_STREAM ? h->scan.own_values : out;
    hc_host_neutral(neutral, b->dtype, b->reduction, n);
    if (neutral != out)
        hc_node_copy_result(h->node, out, neutral, (size_t)n * dtype_size(h));
}

/* Reduces the n_from operands, elements [begin, end) of the batch as `kind`, into the tensors; n_from 0: the neutral
 * element. */
static void put_result(hc__hierarchy *h, int64_t begin, int64_t end, const char **from, int n_from, int kind) {
    const hc_batch *b = h->batch;
    const int64_t *starts = h->scan.starts;
    const void **at = h->scan.operands;
    for (int32_t i = hc_piece_at(starts, b->npieces, begin); i < b->npieces && starts[i] < end; i++) {
        int64_t low = begin > starts[i] ? begin : starts[i], high = end < starts[i + 1] ? end : starts[i + 1];
        if (!b->pieces[i].out || low >= high)
            continue;
        char *out = (char *)b->pieces[i].out + (size_t)(low - starts[i]) * dtype_size(h);
        for (int q = 0; q < n_from; q++)
            at[q] = from[q] + (size_t)(low - begin) * hc_dtype_size(kind);
        if (n_from == 0)
            fill(h, out, high - low);
        else
            hc_host_reduce(out, b->dtype, at, n_from, kind, b->reduction, high - low, result_scale(h, i), 1.0);
    }
}

/* ---- few bytes ---------------------------------------------------------------------------------------------- */

static int start_at_once(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    size_t bytes = (size_t)s->count * dtype_size(h);
    s->memory = hc_work_new(bytes * ((size_t)h->place.size + 1));
    if (!s->memory)
        return HC_NO_MEMORY;
    s->own_values = s->memory + bytes * (size_t)h->place.size;
    take_own_values(h, 0, s->count, h->batch->dtype, s->own_values);
    for (int32_t r = 0; r < h->place.size; r++)
        h->gather.lengths[r] = (int64_t)bytes;
    return hc__gather_start(h, s->own_values, s->memory);
}

static int test_at_once(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    int status = hc__gather_test(h);
    if (status != HC_DONE)
        return status;
    int32_t n = h->place.rank + !s->exclusive;
    for (int32_t q = 0; q < n; q++)
        s->values[q] = s->memory + h->gather.offsets[q];
    put_result(h, 0, s->count, s->values, n, h->batch->dtype);
    return HC_DONE;
}

/* ---- the chain ---------------------------------------------------------------------------------------------- */

static char *slot(const hc__scan *s, int64_t chunk) {
    return s->memory + (size_t)(chunk % SLOTS) * (size_t)s->chunk * hc_dtype_size(s->kind);
}

static int64_t chunk_end(const hc__scan *s, int64_t chunk) {
    return (chunk + 1) * s->chunk < s->count ? (chunk + 1) * s->chunk : s->count;
}

static int64_t chunk_bytes(const hc__scan *s, int64_t chunk) {
    return (chunk_end(s, chunk) - chunk * s->chunk) * (int64_t)hc_dtype_size(s->kind);
}

static int is_near(const hc__hierarchy *h, int32_t rank) {
    return rank >= 0 && rank < h->place.size && h->place.node_of[rank] == h->place.node;
}

static int is_far(const hc__hierarchy *h, int32_t rank) {
    return rank >= 0 && rank < h->place.size && h->place.node_of[rank] != h->place.node;
}

/* The chunk that my node's j-th rank offers in a step, or -1. */
static int64_t passed_on(const hc__hierarchy *h, int32_t j, int64_t step) {
    int32_t r = hc__set_rank(&h->place, h->place.node, j);
    int64_t chunk = step - (r - hc__set_rank(&h->place, h->place.node, 0));
    return is_near(h, r + 1) && chunk >= 0 && chunk < h->scan.nchunks ? chunk : -1;
}

static int start_chain(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    const hc__placement *p = &h->place;
    int64_t most = CHUNK_BYTES;
    if (p->nodes > 1 && h->net->message_bytes > 0 && h->net->message_bytes < most)
        most = h->net->message_bytes;
    s->kind = hc__accumulation_dtype(h->batch->dtype);
    s->chunk = most / (int64_t)hc_dtype_size(s->kind);
    s->chunk = s->chunk > 0 ? s->chunk : 1;
    s->nchunks = (s->count + s->chunk - 1) / s->chunk;
    if (p->local_size > 1)
        s->steps = s->nchunks + hc__set_rank(p, p->node, p->local_size - 1) - hc__set_rank(p, p->node, 0);
    size_t bytes = (size_t)s->chunk * hc_dtype_size(s->kind);
    s->memory = hc_work_new(bytes * (SLOTS + 1));
    if (!s->memory)
        return HC_NO_MEMORY;
    s->own_values = s->memory + bytes * SLOTS;
    s->done.received = p->rank == 0 ? s->nchunks : 0;
    s->done.filled = s->exclusive && p->rank == 0 ? 0 : s->nchunks;
    return HC_OK;
}

/* A chunk in the tensors of one piece. */
typedef struct place {
    const char *in;
    char *out; /* NULL: the chunk's result has another type or a factor, or is not of one piece, or may replace `in` */
} place;

/* Where the chain can work in the tensors themselves. */
static place place_of(const hc__hierarchy *h, int64_t chunk) {
    const hc__scan *s = &h->scan;
    int64_t from = chunk * s->chunk;
    int32_t i = hc_piece_at(s->starts, h->batch->npieces, from);
    const hc_piece *piece = &h->batch->pieces[i];
    size_t at = (size_t)(from - s->starts[i]) * dtype_size(h);
    if (s->kind != h->batch->dtype || piece->scale != 1.0 || !piece->in || !piece->out ||
        chunk_end(s, chunk) > s->starts[i + 1] || (s->exclusive && piece->in == piece->out))
        return (place){NULL, NULL};
    return (place){(const char *)piece->in + at, (char *)piece->out + at};
}

/* Where the prefix of a chunk comes from the rank before. */
static char *prefix_of(const hc__hierarchy *h, int64_t chunk) {
    place p = h->scan.exclusive ? place_of(h, chunk) : (place){NULL, NULL};
    return p.out ? p.out : slot(&h->scan, chunk);
}

/* Adds the values of the tensor to the prefix: into the result, or, where that is the prefix, into the slot. */
static void add_in_place(hc__hierarchy *h, int64_t chunk, const place *p) {
    hc__scan *s = &h->scan;
    int is_first = h->place.rank == 0, is_last = h->place.rank + 1 == h->place.size;
    int64_t n = chunk_end(s, chunk) - chunk * s->chunk;
    char *sum = s->exclusive ? slot(s, chunk) : p->out;
    const void *operands[2] = {is_first ? p->in : prefix_of(h, chunk), p->in};
    int is_sum = s->exclusive && is_first && !hc_reduction_is_logical(h->batch->reduction); /* the values are it */
    if (!is_sum && !(s->exclusive && is_last))
        hc_host_reduce(sum, s->kind, operands, is_first ? 1 : 2, s->kind, h->batch->reduction, n, 1.0, 1.0);
    s->sums[chunk % SLOTS] = is_sum ? p->in : sum;
}

/* Adds this rank's values to the prefix, and writes the result. */
static void add_chunk(hc__hierarchy *h, int64_t chunk) {
    hc__scan *s = &h->scan;
    int64_t from = chunk * s->chunk, to = chunk_end(s, chunk);
    place p = place_of(h, chunk);
    if (p.out) {
        add_in_place(h, chunk, &p);
        return;
    }
    char *prefix = slot(s, chunk);
    s->sums[chunk % SLOTS] = prefix;
    const char *result = prefix;
    int is_first = h->place.rank == 0;
    take_own_values(h, from, to, s->kind, s->own_values); /* before the result is written: out may be in */
    if (s->exclusive && !is_first)
        put_result(h, from, to, &result, 1, s->kind);
    const void *operands[2] = {is_first ? s->own_values : prefix, s->own_values};
    if (s->exclusive && h->place.rank + 1 == h->place.size)
        return; /* the last rank sends nothing */
    hc_host_reduce(prefix, s->kind, operands, is_first ? 1 : 2, s->kind, h->batch->reduction, to - from, 1.0, 1.0);
    if (!s->exclusive)
        put_result(h, from, to, &result, 1, s->kind);
}

static int add_next(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    if (s->done.added == s->done.received || s->done.added == s->done.passed + SLOTS)
        return HC_IDLE;
    add_chunk(h, s->done.added++);
    if (h->place.rank + 1 == h->place.size)
        s->done.passed = s->done.added;
    return HC_MOVED;
}

/* 1: no rank reads what this rank copies into its result: an exscan's last prefix, or the neutral elements. */
static int is_final(const hc__hierarchy *h) {
    int32_t me = h->place.rank;
    return h->scan.exclusive && (me == 0 || (me + 1 == h->place.size && place_of(h, 0).out));
}

/* In an exscan the result of the first rank has neutral elements. No rank waits for them, so it fills them in while it
 * has nothing else to do. The values may be in the same place, so they are passed on first. */
static int fill_next(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    if (s->done.filled >= s->done.passed)
        return HC_IDLE;
    int64_t chunk = s->done.filled++;
    put_result(h, chunk * s->chunk, chunk_end(s, chunk), NULL, 0, s->kind);
    return HC_MOVED;
}

static int receive_next(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    int32_t from = h->place.rank - 1;
    if (!is_far(h, from))
        return HC_IDLE;
    for (; s->done.posted < s->nchunks && s->done.posted < s->done.passed + SLOTS; s->done.posted++) {
        int status = h->net->ops->irecv(h->net, h->place.world[from], h->between.tags + HC__TAG_SCAN,
                                        prefix_of(h, s->done.posted), (size_t)chunk_bytes(s, s->done.posted),
                                        &s->receives[s->done.posted % SLOTS]);
        if (status < 0)
            return status;
    }
    if (s->done.received == s->done.posted)
        return HC_IDLE;
    size_t bytes;
    int status = h->net->ops->test(h->net, &s->receives[s->done.received % SLOTS], &bytes, NULL);
    if (status != HC_DONE)
        return status;
    if ((int64_t)bytes != chunk_bytes(s, s->done.received))
        return HC_TRANSPORT;
    s->done.received++;
    return HC_MOVED;
}

static int send_next(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    int32_t to = h->place.rank + 1;
    if (!is_far(h, to))
        return HC_IDLE;
    for (; s->done.sent < s->done.added; s->done.sent++) {
        int status = h->net->ops->isend(h->net, h->place.world[to], h->between.tags + HC__TAG_SCAN,
                                        s->sums[s->done.sent % SLOTS], (size_t)chunk_bytes(s, s->done.sent),
                                        &s->sends[s->done.sent % SLOTS]);
        if (status < 0)
            return status;
    }
    if (s->done.passed == s->done.sent)
        return HC_IDLE;
    int status = h->net->ops->test(h->net, &s->sends[s->done.passed % SLOTS], NULL, NULL);
    if (status != HC_DONE)
        return status;
    s->done.passed++;
    return HC_MOVED;
}

/* One step of the node: each rank's chunk to its neighbour, if they share the node. */
static int step_next(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    int32_t me = h->place.local_rank;
    if (s->step == s->steps)
        return HC_IDLE;
    int64_t out = passed_on(h, me, s->step), in = -1;
    if (is_near(h, h->place.rank - 1))
        in = passed_on(h, me - 1, s->step); /* the set's neighbour is also the node's */
    if (out >= s->done.added || (in >= 0 && in >= s->done.passed + SLOTS))
        return HC_IDLE;
    memset(h->streams.reads, 0, (size_t)h->place.local_size * sizeof *h->streams.reads);
    for (int32_t j = 0; j < h->place.local_size; j++) {
        int64_t chunk = passed_on(h, j, s->step);
        h->streams.lengths[j] = chunk < 0 ? 0 : chunk_bytes(s, chunk);
    }
    if (in >= 0)
        h->streams.reads[me - 1] = (hc_stream_read){prefix_of(h, in), 0, chunk_bytes(s, in)};
    hc_stream_part own = {out < 0 ? NULL : s->sums[out % SLOTS], h->streams.lengths[me]};
    int status = h->node->ops->exchange(h->node, &own, 1, h->streams.reads, h->streams.lengths, 1);
    if (status != HC_DONE)
        return status;
    s->step++;
    s->done.received += in >= 0;
    s->done.passed += out >= 0;
    return HC_MOVED;
}

static int test_chain(hc__hierarchy *h) {
    static int (*const parts[])(hc__hierarchy *) = {receive_next, step_next, add_next, send_next};
    hc__scan *s = &h->scan;
    int moved = 0, again = 1;
    while (again) {
        again = 0;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            int status = parts[i](h);
            if (status < 0)
                return status;
            again |= status == HC_MOVED;
        }
        if (!again)
            again = fill_next(h) == HC_MOVED;
        moved |= again;
        if (s->done.passed == s->nchunks && s->step == s->steps && s->done.filled >= s->nchunks)
            return HC_DONE;
    }
    return moved ? HC_MOVED : HC_IDLE;
}

/* ---- start to end --------------------------------------------------------------------------------------------- */

static int start(hc__hierarchy *h, int exclusive) {
    hc__scan *s = &h->scan;
    const hc_batch *b = h->batch;
    size_t ranks = (size_t)h->place.size;
    if (!h->node->ops->exchange)
        return HC_UNSUPPORTED;
    *s = (hc__scan){.exclusive = exclusive};
    s->starts = hc_malloc(((size_t)b->npieces + 1) * sizeof *s->starts);
    s->operands = hc_malloc(ranks * sizeof *s->operands);
    s->values = hc_malloc(ranks * sizeof *s->values);
    if (!s->starts || !s->operands || !s->values)
        return HC_NO_MEMORY;
    for (int32_t i = 0; i < b->npieces; i++) {
        s->starts[i] = s->count;
        s->count += b->pieces[i].count;
    }
    s->starts[b->npieces] = s->count;
    int64_t bytes = s->count * (int64_t)dtype_size(h);
    s->at_once = bytes <= AT_ONCE_BYTES && bytes <= AT_ONCE_MOST / (int64_t)ranks;
    if (s->at_once)
        return start_at_once(h);
    int status = start_chain(h);
    if (status >= 0 && is_final(h))
        hc__expect_result(h, 2 * bytes);
    return status;
}

static int scan_start(hc__hierarchy *h) {
    return start(h, 0);
}

static int exscan_start(hc__hierarchy *h) {
    return start(h, 1);
}

static int scan_test(hc__hierarchy *h) {
    return h->scan.at_once ? test_at_once(h) : test_chain(h);
}

void hc__scan_abandon(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    for (int i = 0; i < SLOTS; i++) {
        if (s->receives[i] && h->net->ops->cancel(h->net, &s->receives[i]) != HC_OK)
            s->stuck = 1;
        if (s->sends[i] && h->net->ops->cancel(h->net, &s->sends[i]) != HC_OK)
            s->stuck = 1;
    }
}

static void scan_end(hc__hierarchy *h) {
    hc__scan *s = &h->scan;
    if (!s->stuck) /* else the library may still use it, so it is not freed */
        hc_result_free(s->memory);
    hc_free(s->starts);
    hc_free(s->operands);
    hc_free(s->values);
    *s = (hc__scan){.stuck = s->stuck};
}

const hc__operation hc__op_SCAN = {scan_start, scan_test, scan_end};
const hc__operation hc__op_EXSCAN = {exscan_start, scan_test, scan_end};
