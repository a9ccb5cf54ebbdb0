/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcut_nodes.c - runs a small unnamed blocking call of a set on several nodes in the waiting thread: the nodes
 * exchange their votes in place of an agreement and an exchange.
 *
 * The ranks of a node meet as in a set on one node (shortcut.c). When all have come with the same call, their leader
 * adds up or gathers what they give (tally.c, gathered.c), votes YES with it, and waits for the votes of other nodes
 * (votes.c). Its driver makes the result and tells it to the other ranks of the node, whatever the caller does
 * meanwhile: a signal may have ended its wait.
 */
#include "loop/state.h"
#include "loop/votes.h"
#include "loop/waiting.h"

#include <string.h>

#define MISSES 16 /* in succession; after these the ranks try one call of 16 */

static int has(const hc_shortcut_call *call, int trait) {
    return (call->traits & trait) != 0;
}

/* 1: the votes' result has the bits of a request's. A request that reduces to a root does it by a tree or in stages, by
 * the bytes of its batch, which the votes do not know. */
static int adds_as_a_request(const hc__electorate *of, const hc_shortcut_call *call) {
    const hc_shortcut_agreed *agreed = &call->agreed;
    int is_wide = of->adds_wide || agreed->reduction == HC_PRODUCT;
    if (!of->in_stages || agreed->dtype < HC_FLOAT16)
        return 1;
    return !has(call, HC_OP_ROOTED) && !of->adds_in_order && !(is_wide && hc_dtype_size(agreed->dtype) == 2);
}

/* 1: a vote can hold the call. All ranks that make the same call know it, but for what one of them gives to a call that
 * gathers. */
static int is_for_votes(const hc_votes *votes, const hc_shortcut_call *call) {
    if (hc__gathers(call->agreed.operation))
        return call->size <= HC_SHORTCUT_RANKS;
    int sums = has(call, HC_OP_ELEMENTWISE) && adds_as_a_request(&votes->of, call);
    return call->bytes <= HC_VOTE_BYTES && (!has(call, HC_OP_REDUCES) || sums);
}

/* The ranks may have counted different misses, so the number of the call, which is the same on all ranks, picks it. */
static int is_tried(uint64_t number) {
    return number * UINT64_C(0x9E3779B97F4A7C15) >> 60 == 0;
}

/* Pending requests need a flush (R1), and ranks that have come apart for a while do not wait for each other. */
static int would_wait_in_vain(hc_loop *loop, const hc_votes *votes, uint64_t number) {
    return atomic_load_explicit(&loop->handles.pending, memory_order_relaxed) != 0 ||
           (votes->misses >= MISSES && !is_tried(number));
}

/* ---- the vote ---------------------------------------------------------------------------------------------- */

static void rearm(hc_votes *votes, const hc_shortcut_call *call) {
    hc_handle *handle = votes->handle;
    handle->status = HC_OK;
    hc_free(handle->text);
    handle->text = NULL;
    handle->value = HC_SHORTCUT_OFF;
    handle->warnings = handle->named_silent = 0;
    handle->traced_wait = 1; /* these calls are not traced */
    handle->request.operation = call->shown;
    atomic_store_explicit(&handle->done, 0, memory_order_relaxed);
}

/* Waits for the other nodes for at most `ns`, or tells them NO. */
static void submit(hc_loop *loop, hc_votes *votes, const hc_shortcut_call *call, enum hc_vote_kind kind, uint64_t ns) {
    rearm(votes, call);
    votes->own.kind = (uint8_t)kind;
    hc__drive_vote(loop, votes->handle, ns);
}

/* Writes what each of this node's ranks gives into its vote. */
static void give_each(hc_votes *votes, const hc_shortcut_call *call) {
    size_t row = (size_t)call->row * hc_dtype_size(call->agreed.dtype);
    votes->own.bytes = 0;
    for (int32_t local = 0; local < votes->of.nlocals; local++) {
        int32_t rank = votes->of.locals[local];
        int gives = hc_operation_gives(call->agreed.operation, call->agreed.root, rank);
        int32_t ncounts = gives && has(call, HC_OP_COUNTS) ? call->size : 0;
        hc__given given = {.rank = (uint16_t)rank, .own = hc_shortcut_own(votes->count, local)};
        hc_shortcut_rows own;
        memcpy(&own, &given.own, sizeof own);
        given.bytes = gives ? (uint32_t)((size_t)own.rows * row) : 0;
        hc__given_add(&votes->own, call, &given, hc_shortcut_part(votes->count, local, ncounts, given.bytes),
                      ncounts ? hc_shortcut_counts(votes->count, local) : NULL);
    }
}

/* Writes the sum of what this node's ranks give, or what the root gives. */
static void give_one(hc_votes *votes, const hc_shortcut_call *call) {
    const void *parts[HC_SHORTCUT_MOST];
    int32_t n = 0;
    for (int32_t local = 0; local < votes->of.nlocals; local++)
        if (has(call, HC_OP_REDUCES) || votes->of.locals[local] == call->agreed.root)
            parts[n++] = hc_shortcut_part(votes->count, local, 0, call->bytes);
    hc__tally_give(votes, parts, n);
}

/* The outcome for the caller, after the handle was submitted. */
static int outcome(hc_votes *votes) {
    if (!hc_handle_done(votes->handle))
        return HC_SHORTCUT_OPEN;
    int status = votes->handle->status;
    if (status == HC_SHUT_DOWN || status == HC_BROKEN)
        return HC_SHORTCUT_OFF; /* a request says why */
    return status == HC_OK ? (int)votes->handle->value : status;
}

/* The leader's part of a call to which all ranks of the node have come. */
static int lead(hc_loop *loop, hc_votes *votes, const hc_shortcut_call *call, uint64_t ns) {
    memcpy(votes->own.agreed, &call->agreed, sizeof votes->own.agreed);
    if (hc__gathers(call->agreed.operation))
        give_each(votes, call);
    else
        give_one(votes, call);
    submit(loop, votes, call, HC_VOTE_YES, ns);
    return outcome(votes);
}

/* The part of the other ranks: the leader's driver tells them the outcome. */
static int follow(hc_loop *loop, hc_votes *votes, const hc_shortcut_call *call, uint64_t ns) {
    int state = hc_shortcut_told(votes->count, votes->own.number);
    for (int i = 0; state == HC_SHORTCUT_OPEN && i < HC__LOOKS; i++)
        state = hc_shortcut_told(votes->count, votes->own.number);
    if (state == HC_SHORTCUT_OPEN) {
        submit(loop, votes, call, HC_VOTE_NONE, ns);
        return outcome(votes);
    }
    return state == HC_SHORTCUT_TAKEN ? (int)hc__votes_result(votes) : state;
}

/* Votes NO: the node's ranks have not all come, or have different calls. The first the driver sees by itself, and tells
 * nodes that vote later; of a difference it cannot know. */
static void say_no(hc_loop *loop, hc_votes *votes, const hc_shortcut_call *call) {
    uint64_t number = votes->own.number;
    int differ = hc_shortcut_at(votes->count, number) == HC_SHORTCUT_TAKEN;
    if (votes->of.is_leader && (differ || atomic_load_explicit(&votes->newest_yes, memory_order_relaxed) >= number))
        submit(loop, votes, call, HC_VOTE_NO, UINT64_MAX); /* waits for no other rank */
}

static int meet(hc_loop *loop, uint32_t set, hc_votes *votes, const hc_shortcut_call *call) {
    if (would_wait_in_vain(loop, votes, hc_shortcut_number(votes->count))) {
        hc_shortcut_decline(votes->count);
        return HC_SHORTCUT_OFF;
    }
    int state = hc_loop_shortcut(loop, set, votes->count, call);
    return state == HC_SHORTCUT_OPEN ? hc__shortcut_wait(loop, votes->count, call, HC__VOTE_NS) : state;
}

/* Counts a call that is off, when the outcome is known. */
static int conclude(hc_votes *votes, int state) {
    if (state != HC_SHORTCUT_OPEN)
        votes->misses = state == HC_SHORTCUT_TAKEN ? 0 : votes->misses + 1;
    return state;
}

int hc_loop_vote(hc_loop *loop, uint32_t set, hc_votes *votes, hc_shortcut_call *call, uint64_t ns) {
    uint64_t number = hc_shortcut_number(votes->count);
    if (!is_for_votes(votes, call) || (hc__gathers(call->agreed.operation) && !hc__given_fits(call)))
        return HC_SHORTCUT_LARGE;
    if (!number || atomic_load_explicit(&loop->forked, memory_order_relaxed) ||
        atomic_load_explicit(&loop->failure.broken, memory_order_relaxed))
        return HC_SHORTCUT_OFF;
    votes->own.number = number;
    call->votes = votes;
    votes->call = *call;
    int state = meet(loop, set, votes, call);
    if (state != HC_SHORTCUT_TAKEN)
        say_no(loop, votes, call);
    else
        state = votes->of.is_leader ? lead(loop, votes, call, ns) : follow(loop, votes, call, ns);
    return conclude(votes, state);
}

int hc_loop_vote_wait(hc_loop *loop, hc_votes *votes, uint64_t ns) {
    hc_loop_wait(loop, &votes->handle, 1, ns);
    return conclude(votes, outcome(votes));
}

const char *hc_loop_vote_text(const hc_votes *votes) {
    return votes->handle->text ? votes->handle->text : "";
}
