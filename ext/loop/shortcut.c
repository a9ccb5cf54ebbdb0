/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcut.c - runs a small unnamed blocking call in the waiting thread: the ranks of a set on one node exchange in
 * shared memory (transport/shm/shortcut.h), without engine and driver.
 *
 * Unnamed calls match by their order, so the next call of each rank belongs to this call. If a rank is late, makes a
 * different call, or must learn of a preemption, all ranks submit their calls to the engine, which agrees on them,
 * refuses or reports them like all others.
 *
 * What only one rank knows may not decide alone, or some ranks would have a result and others an error. A rank
 * publishes its rows and the room of its `out`, so that all ranks see whether every result fits. A rank with too large
 * a part counts its request instead (counted.c), whose words differ from those of this call.
 */
#include "loop/clock.h"
#include "loop/state.h"
#include "loop/votes.h"
#include "loop/waiting.h"

#include <string.h>

#define MISSES 16 /* in a row; after these a rank hardly waits for the others, */
#define TRIES 32  /* but in one of so many calls, so that ranks which come together again take the shortcut again */

static int may_take(hc_loop *loop, uint32_t set) {
    return !atomic_load_explicit(&loop->sets.preempted[set], memory_order_acquire) &&
           !atomic_load_explicit(&loop->failure.broken, memory_order_relaxed) &&
           !atomic_load_explicit(&loop->forked, memory_order_relaxed) && !loop->config.debug;
}

static int has(const hc_shortcut_call *call, int trait) {
    return (call->traits & trait) != 0;
}

/* ---- what the ranks give: published in the node, or gathered by votes ---------------------------------- */

static int32_t ncounts(const hc_shortcut_call *call) {
    return has(call, HC_OP_COUNTS) ? call->size : 0;
}

/* NULL: every rank gets its share. */
static const int32_t *counts_of(const hc_shortcut *shortcut, const hc_shortcut_call *call, int32_t rank) {
    if (call->votes)
        return hc__given_counts(call->votes->given[rank]);
    return shortcut ? hc_shortcut_counts(shortcut, rank) : call->counts;
}

static hc_shortcut_rows own_of(const hc_shortcut *shortcut, const hc_shortcut_call *call, int32_t rank) {
    hc_shortcut_rows own = call->own;
    _Static_assert(sizeof own == sizeof(uint64_t), "a rank publishes it as one word");
    if (call->votes || shortcut) {
        uint64_t word = call->votes ? call->votes->given[rank]->own : hc_shortcut_own(shortcut, rank);
        memcpy(&own, &word, sizeof own);
    }
    return own;
}

static const char *part_of(const hc_shortcut *shortcut, const hc_shortcut_call *call, int32_t rank) {
    if (call->votes) /* the caller may have left, with its `in` */
        return hc__given_part(call->votes->given[rank]);
    if (!shortcut || rank == call->rank)
        return call->in;
    size_t row = (size_t)call->row * hc_dtype_size(call->agreed.dtype);
    return hc_shortcut_part(shortcut, rank, ncounts(call), (size_t)own_of(shortcut, call, rank).rows * row);
}

/* The rows that rank `from` gives to rank `to`. */
static int32_t rows_between(const hc_shortcut *shortcut, const hc_shortcut_call *call, int32_t from, int32_t to) {
    const hc_shortcut_agreed *agreed = &call->agreed;
    if (!hc_operation_gives(agreed->operation, agreed->root, from) ||
        !hc_operation_gets(agreed->operation, agreed->root, to))
        return 0;
    int32_t rows = own_of(shortcut, call, from).rows;
    const int32_t *counts = has(call, HC_OP_COUNTS) ? counts_of(shortcut, call, from) : NULL;
    if (counts)
        return counts[to];
    return has(call, HC_OP_COUNTS) ? (int32_t)hc_share(rows, call->size, to) : rows;
}

int64_t hc_loop_shortcut_rows(const hc_shortcut *shortcut, const hc_shortcut_call *call, int64_t *from) {
    int64_t sum = 0;
    for (int32_t q = 0; q < call->size; q++) {
        int64_t rows = rows_between(shortcut, call, q, call->rank);
        if (from)
            from[q] = rows;
        sum += rows;
    }
    return sum;
}

int hc__shortcut_fits(const hc_shortcut *shortcut, const hc_shortcut_call *call) {
    for (int32_t r = 0; r < call->size; r++) {
        int32_t room = own_of(shortcut, call, r).room, rows = 0;
        for (int32_t q = 0; room >= 0 && q < call->size; q++)
            rows += rows_between(shortcut, call, q, r);
        if (room >= 0 && room != rows)
            return 0;
    }
    return 1;
}

/* The part of each input that this rank reduces. */
static void find_share(const hc_shortcut_call *call, size_t *from, size_t *bytes) {
    size_t row = (size_t)call->row * hc_dtype_size(call->agreed.dtype);
    *from = (size_t)hc_share_begin(call->own.rows, call->size, call->rank) * row;
    *bytes = (size_t)hc_share(call->own.rows, call->size, call->rank) * row;
}

/* ---- all take it, or none ---------------------------------------------------------------------------- */

/* Leaves out of an offer what no other rank reads. Not of a small one: that would gain nothing, and in a set on several
 * nodes, where all are small, the leader reads all parts. */
static void keep_own(const hc_shortcut_call *call, hc_shortcut_offer *offer) {
    size_t row = (size_t)call->row * hc_dtype_size(call->agreed.dtype);
    int is_last = call->rank == call->size - 1, is_root = call->agreed.root == call->rank;
    if ((has(call, HC_OP_TO_ROOT) && is_root) || (has(call, HC_OP_PREFIX) && is_last))
        offer->bytes = 0;
    for (int32_t r = 0; r < offer->ncounts && r < call->rank; r++)
        offer->own_from += (size_t)call->counts[r] * row;
    offer->own_bytes = offer->ncounts ? (size_t)call->counts[call->rank] * row : 0;
    if (has(call, HC_OP_REDUCES) && !has(call, HC_OP_ELEMENTWISE))
        find_share(call, &offer->own_from, &offer->own_bytes);
}

/* All ranks have the same answer. Votes decide when they are complete. */
static inline int decide(const hc_shortcut *shortcut, const hc_shortcut_call *call, int state) {
    if (has(call, HC_OP_RESULT_ALLOCATED) && state == HC_SHORTCUT_TAKEN && !call->votes &&
        !hc__shortcut_fits(shortcut, call))
        return HC_SHORTCUT_OFF;
    return state;
}

int hc_loop_shortcut(hc_loop *loop, uint32_t set, hc_shortcut *shortcut, const hc_shortcut_call *call) {
    hc_shortcut_offer offer;
    _Static_assert(sizeof call->agreed == HC_SHORTCUT_WORDS * sizeof(uint64_t), "the ranks compare words");
    if (!may_take(loop, set))
        return HC_SHORTCUT_OFF;
    if (call->is_large)
        return HC_SHORTCUT_LARGE;
    if (!shortcut)
        return decide(shortcut, call, HC_SHORTCUT_TAKEN);
    offer.agreed = &call->agreed;
    memcpy(&offer.own, &call->own, sizeof offer.own);
    int offers = hc_operation_gives(call->agreed.operation, call->agreed.root, call->rank);
    offer.counts = call->counts;
    offer.ncounts = offers ? ncounts(call) : 0;
    offer.part = call->in;
    offer.bytes = offers ? call->bytes : 0;
    offer.own_from = offer.own_bytes = 0;
    offer.has_core = 0;
    if (call->bytes > HC_SHORTCUT_SMALL) {
        keep_own(call, &offer);
        offer.has_core = (uint8_t)hc__has_a_core(loop);
    }
    int state = hc_shortcut_join(shortcut, &offer);
    for (int i = 0; state == HC_SHORTCUT_OPEN && i < HC__LOOKS; i++)
        state = hc_shortcut_look(shortcut);
    return decide(shortcut, call, state);
}

/* All ranks count the same misses, so they wait for each other in the same calls. */
static int waits_in_vain(const hc_shortcut *shortcut) {
    int misses = hc_shortcut_misses(shortcut);
    return misses >= MISSES && misses % TRIES != 0;
}

int hc__shortcut_wait(hc_loop *loop, hc_shortcut *shortcut, const hc_shortcut_call *call, uint64_t ns) {
    int busy = atomic_load_explicit(&loop->handles.pending, memory_order_relaxed) !=
               0; /* pending requests need a flush (R1) */
    int state = HC_SHORTCUT_OPEN;
    uint64_t limit = busy ? 0 : hc__loop_now() + hc__looks_for_all(loop, ns);
    while (limit && state == HC_SHORTCUT_OPEN && hc__loop_now() < limit) {
        hc__wait_a_moment(loop);
        state = hc_shortcut_look(shortcut);
    }
    return decide(shortcut, call, state == HC_SHORTCUT_OPEN ? hc_shortcut_give_up(shortcut) : state);
}

int hc_loop_shortcut_wait(hc_loop *loop, hc_shortcut *shortcut, const hc_shortcut_call *call) {
    return hc__shortcut_wait(loop, shortcut, call, waits_in_vain(shortcut) ? 0 : HC__SHORTCUT_NS);
}

/* ---- the result of a taken shortcut ------------------------------------------------------------------ */

static void reduce_parts(const hc_shortcut_call *call, const void *const *parts, int32_t n, int64_t count) {
    const hc_shortcut_agreed *agreed = &call->agreed;
    double scale = agreed->prescale * agreed->postscale; /* 1.0 for integers */
    double divisor = agreed->reduction == HC_AVERAGE ? call->size : 1.0;
    if (n == 1 && call->out == parts[0] && scale == 1.0 && !hc_reduction_is_logical(agreed->reduction))
        return;
    hc_host_reduce(call->out, agreed->dtype, parts, n, agreed->dtype, agreed->reduction, count, scale, divisor);
}

/* Reduces the same operands in the same order as the data planes do, so that the bits are the same. */
static void reduce(const hc_shortcut *shortcut, const hc_shortcut_call *call) {
    const void *parts[HC_SHORTCUT_MOST];
    int32_t n = has(call, HC_OP_PREFIX) ? call->rank + !has(call, HC_OP_EXCLUSIVE) : call->size;
    for (int32_t q = 0; q < n; q++)
        parts[q] = part_of(shortcut, call, q);
    if (n == 0)
        hc_host_neutral(call->out, call->agreed.dtype, call->agreed.reduction, call->count);
    else
        reduce_parts(call, parts, n, call->count);
}

/* The same for this rank's share of the rows. The result may replace the beginning of the input: that is this share, on
 * the first rank, or lies before it, because no share is larger than an earlier one. */
static void reduce_share(const hc_shortcut *shortcut, const hc_shortcut_call *call) {
    const void *parts[HC_SHORTCUT_RANKS];
    size_t from, bytes;
    find_share(call, &from, &bytes);
    for (int32_t q = 0; q < call->size; q++)
        parts[q] = part_of(shortcut, call, q) + from;
    reduce_parts(call, parts, call->size, (int64_t)(bytes / hc_dtype_size(call->agreed.dtype)));
}

static void take_whole(const hc_shortcut *shortcut, const hc_shortcut_call *call) {
    const void *from = part_of(shortcut, call, call->agreed.root);
    if (call->out != from)
        hc_host_copy(call->out, from, call->bytes);
}

/* Copies the rows that each rank gives to this one. */
static void take_rows(const hc_shortcut *shortcut, const hc_shortcut_call *call) {
    size_t row = (size_t)call->row * hc_dtype_size(call->agreed.dtype);
    char *to = call->out;
    for (int32_t q = 0; q < call->size; q++) {
        const char *from = part_of(shortcut, call, q);
        size_t bytes = (size_t)rows_between(shortcut, call, q, call->rank) * row;
        for (int32_t r = 0; bytes && r < call->rank && has(call, HC_OP_COUNTS); r++)
            from += (size_t)rows_between(shortcut, call, q, r) * row;
        if (bytes && q == call->rank)
            memcpy(to, from, bytes);
        else if (bytes)
            hc_host_copy(to, from, bytes);
        to += bytes;
    }
}

void hc_loop_shortcut_end(hc_loop *loop, const hc_shortcut *shortcut, const hc_shortcut_call *call) {
    if (!call->is_request)
        atomic_fetch_add_explicit(&loop->calls.shortcuts, 1, memory_order_relaxed);
    if (!call->out)
        return;
    if (call->votes && !hc__gathers(call->agreed.operation)) {
        memcpy(call->out, call->votes->result, call->bytes);
        return;
    }
    if (has(call, HC_OP_REDUCES) && has(call, HC_OP_ELEMENTWISE))
        reduce(shortcut, call);
    else if (has(call, HC_OP_REDUCES))
        reduce_share(shortcut, call);
    else if (has(call, HC_OP_ROWS_DIFFER))
        take_rows(shortcut, call);
    else if (!has(call, HC_OP_NO_TENSORS))
        take_whole(shortcut, call);
}
