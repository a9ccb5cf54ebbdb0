/* SPDX-License-Identifier: Apache-2.0
 *
 * votes.c - sends, receives and answers the votes of nodes on small calls.
 *
 * The driver of a leader does all this, so a rank that is in no call votes, too: it answers when its driver reads its
 * messages, which a rank that waits for anything does at once, and an idle one a few times per second.
 *
 * A call that waits for votes is a handle in flight: waiting callers drive for it, and it ends with the World. Ranks
 * beside their leader have such a handle, too. It is done when the leader has told them the outcome.
 */
#include "loop/clock.h"
#include "loop/failure.h"
#include "loop/handle.h"
#include "loop/inbox.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "loop/votes.h"
#include "loop/waiting.h"
#include "loop/watch.h"

#include <stdio.h>
#include <string.h>

#define MARK 0xA8 /* differs from the first byte of the engine's messages and of those between two ranks */
/* So long votes may still arrive after the set's log has ended: they take other ways than the end. */
#define GRACE_NS (1000 * HC__MS)

typedef struct header {
    uint8_t mark, kind;
    uint16_t node; /* of the sender, in the set */
    uint32_t set;
    uint64_t number;
} header;

/* ---- out --------------------------------------------------------------------------------------------------- */

static void send(hc_loop *loop, const hc_votes *votes, int32_t node, uint8_t kind, uint64_t number) {
    uint8_t message[sizeof(header) + sizeof votes->own.agreed + HC_VOTE_BYTES];
    header head = {MARK, kind, (uint16_t)votes->of.me, votes->wire, number};
    size_t n = sizeof head;
    memcpy(message, &head, sizeof head);
    if (kind == HC_VOTE_YES) {
        memcpy(message + n, votes->own.agreed, sizeof votes->own.agreed);
        n += sizeof votes->own.agreed;
        memcpy(message + n, votes->own.value, votes->own.bytes);
        n += votes->own.bytes;
    }
    int32_t peer = votes->of.leaders[node];
    int status = loop->parts.control->ops->send(loop->parts.control, peer, message, n);
    if (status < 0)
        hc__loop_fail_to_move(loop, status, peer, "a vote on a small call could not be sent");
}

static void send_to_all(hc_loop *loop, const hc_votes *votes) {
    for (int32_t i = 1; i < votes->of.nodes; i++) /* each node begins with another one */
        send(loop, votes, (votes->of.me + i) % votes->of.nodes, votes->own.kind, votes->own.number);
}

static void ask(hc_loop *loop, hc_votes *votes) {
    for (int32_t node = 0; node < votes->of.nodes; node++)
        if (!hc_vote_of(&votes->vote, node, votes->own.number))
            send(loop, votes, node, HC_VOTE_ASK, votes->own.number);
    votes->has_asked = 1;
}

/* ---- the call that waits ----------------------------------------------------------------------------------- */

/* The leader tells the other ranks of its node, which know already if this node has voted NO. */
static void tell(hc_loop *loop, const hc_votes *votes, enum hc_shortcut_state state) {
    if (!votes->of.is_leader || votes->own.kind != HC_VOTE_YES || votes->of.size == votes->of.nodes)
        return; /* or no node has other ranks */
    hc_shortcut_tell(votes->count, votes->own.number, state, votes->result,
                     state == HC_SHORTCUT_TAKEN ? votes->motion.bytes : 0);
    hc_doorbell_ring_all(loop->parts.node_control);
}

/* Ends the request of a call whose caller waits no longer as the votes have ended, or lets the engine have it. */
static void end_request(hc_loop *loop, const hc_votes *votes, hc_handle *request) {
    const hc_handle *voted = votes->handle;
    int status = voted->status, is_taken = status == HC_OK && voted->value == HC_SHORTCUT_TAKEN;
    if (!is_taken && (status == HC_OK || status == HC_SHUT_DOWN || status == HC_BROKEN)) {
        request->kind = HC_EV_ENQUEUE;
        hc__inbox_push(loop, request);
        return;
    }
    if (is_taken && request->request.ntensors && request->pieces[0].out && votes->motion.bytes)
        memcpy(request->pieces[0].out, votes->result, votes->motion.bytes);
    atomic_fetch_add_explicit(&loop->calls.shortcuts, is_taken, memory_order_relaxed);
    hc__handle_finish(loop, request, status, voted->text);
}

static void end(hc_loop *loop, hc_votes *votes, int status, const char *text) {
    hc_handle *request = votes->request;
    if (status != HC_OK)
        tell(loop, votes, HC_SHORTCUT_OFF);
    votes->is_open = 0;
    votes->request = NULL;
    hc__handle_unlink(votes->handle);
    hc__handle_finish(loop, votes->handle, status, text);
    if (request)
        end_request(loop, votes, request);
}

/* 1: it is done. */
static int look(hc_loop *loop, hc_votes *votes) {
    enum hc_shortcut_state state = votes->of.is_leader ? hc_vote_outcome(&votes->vote, votes->own.number)
                                                       : hc_shortcut_told(votes->count, votes->own.number);
    if (state == HC_SHORTCUT_OPEN)
        return 0;
    votes->handle->value = state;
    if (state == HC_SHORTCUT_TAKEN && votes->of.is_leader)
        hc__tally(votes);
    else if (state == HC_SHORTCUT_TAKEN)
        memcpy(votes->result, hc_shortcut_result(votes->count, votes->own.number), votes->motion.bytes);
    tell(loop, votes, state);
    end(loop, votes, HC_OK, NULL);
    return 1;
}

static void cast(hc_loop *loop, hc_votes *votes) {
    hc_ballot *ballot = hc_vote_note(&votes->vote, votes->of.me, votes->own.number, votes->own.kind);
    if (ballot && votes->own.kind == HC_VOTE_YES) {
        ballot->bytes = votes->own.bytes;
        memcpy(ballot->agreed, votes->own.agreed, sizeof ballot->agreed);
        memcpy(ballot->value, votes->own.value, votes->own.bytes);
    }
    send_to_all(loop, votes);
}

void hc__votes_take(hc_loop *loop, hc_handle *handle) {
    const hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    hc_votes *votes = handle->context;
    hc__handle_link(&loop->handles.votes, handle);
    votes->is_open = 1;
    votes->has_asked = 0;
    votes->stopped = 0;
    votes->began = hc__loop_now();
    if (atomic_load(&loop->failure.broken) != HC_OK)
        end(loop, votes, HC_BROKEN, loop->failure.broken_text);
    else if (!queue || queue->stopped)
        end(loop, votes, HC_SHUT_DOWN, NULL);
    else {
        if (votes->of.is_leader)
            cast(loop, votes);
        if (votes->own.kind == HC_VOTE_NO && votes->of.is_leader)
            end(loop, votes, HC_OK, NULL);
        else
            look(loop, votes);
    }
}

void hc__votes_take_request(hc_loop *loop, hc_handle *handle) {
    const hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    if (queue && queue->votes && queue->votes->is_open)
        queue->votes->request = handle;
    else if (queue && queue->votes)
        end_request(loop, queue->votes, handle);
    else
        hc__handle_finish(loop, handle, HC_SHUT_DOWN, hc_status_text(HC_SHUT_DOWN));
}

int hc__votes_are_open(hc_loop *loop, uint32_t set) {
    const hc__set_queue *queue = hc__set_queue_find(loop, set);
    return queue && queue->votes && queue->votes->is_open;
}

/* Votes that were sent before the end of the set's log may arrive after it. What was not sent by then never is. */
static int is_too_late(hc_loop *loop, hc_votes *votes, uint64_t now) {
    const hc__set_queue *queue = hc__set_queue_find(loop, votes->handle->set);
    if (!queue->stopped)
        return 0;
    if (!votes->stopped)
        votes->stopped = now;
    return now - votes->stopped > GRACE_NS;
}

int hc__votes_progress(hc_loop *loop) {
    int moved = 0;
    for (hc_handle *handle = loop->handles.votes, *next; handle && !loop->failure.is_next; handle = next) {
        hc_votes *votes = handle->context;
        next = handle->next;
        if (look(loop, votes)) {
            moved = 1;
            continue;
        }
        uint64_t now = hc__loop_now();
        if (votes->of.is_leader && !votes->has_asked && now - votes->began > HC__VOTE_NS)
            ask(loop, votes);
        if (is_too_late(loop, votes, now))
            end(loop, votes, HC_SHUT_DOWN, NULL);
    }
    return moved;
}

void hc__votes_break(hc_loop *loop, int status, const char *text) {
    while (loop->handles.votes)
        end(loop, loop->handles.votes->context, status, text);
}

/* ---- in ---------------------------------------------------------------------------------------------------- */

static void note(hc_votes *votes, const header *head, const uint8_t *content, size_t nbytes) {
    hc_ballot *ballot = hc_vote_note(&votes->vote, head->node, head->number, head->kind);
    if (!ballot || head->kind != HC_VOTE_YES)
        return;
    ballot->bytes = (uint32_t)(nbytes - sizeof ballot->agreed);
    memcpy(ballot->agreed, content, sizeof ballot->agreed);
    memcpy(ballot->value, content + sizeof ballot->agreed, ballot->bytes);
    atomic_store_explicit(&votes->newest_yes, head->number, memory_order_relaxed);
}

static int is_sound(const hc_votes *votes, int32_t peer, const header *head, size_t content) {
    size_t least = head->kind == HC_VOTE_YES ? sizeof votes->own.agreed : 0;
    size_t most = head->kind == HC_VOTE_YES ? least + HC_VOTE_BYTES : 0;
    return head->kind > HC_VOTE_NONE && head->kind < HC_VOTE_KINDS && head->node < votes->of.nodes &&
           votes->of.leaders[head->node] == peer && votes->of.is_leader && content >= least && content <= most;
}

static void hear(hc_loop *loop, hc_votes *votes, const header *head, const uint8_t *content, size_t nbytes) {
    enum hc_shortcut_state count = head->kind == HC_VOTE_ASK ? hc_shortcut_close(votes->count, head->number)
                                                             : hc_shortcut_at(votes->count, head->number);
    if (head->kind != HC_VOTE_ASK)
        note(votes, head, content, nbytes);
    if (hc_vote_answer(head->kind, count) == HC_VOTE_NO)
        send(loop, votes, head->node, HC_VOTE_NO, head->number);
    if (votes->is_open)
        look(loop, votes);
}

int hc__votes_message(hc_loop *loop, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    header head;
    if (nbytes < sizeof head || bytes[0] != MARK)
        return 0;
    memcpy(&head, bytes, sizeof head);
    hc__set_queue *queue = hc__set_queue_find(loop, head.set % HC_MAX_SETS);
    if (!queue || queue->wire != head.set || !queue->votes)
        return 1; /* of an earlier set */
    if (!is_sound(queue->votes, peer, &head, nbytes - sizeof head))
        return HC_BAD_MESSAGE;
    hear(loop, queue->votes, &head, bytes + sizeof head, nbytes - sizeof head);
    return 1;
}

/* ---- long waits -------------------------------------------------------------------------------------------- */

#define NAMED 4 /* ranks named in a text */

/* 1: the call waits for this node's vote. The ranks beside the leader wait for their own node's. */
static int lacks(const hc_votes *votes, int32_t node) {
    return votes->of.is_leader ? !hc_vote_of(&votes->vote, node, votes->own.number) : node == votes->of.me;
}

static void describe(hc_loop *loop, const hc_handle *handle, char *text, size_t room) {
    const hc_votes *votes = handle->context;
    char who[HC_WHO];
    int32_t named = 0;
    int len = snprintf(text, room, "%s without a name awaits", hc_operation_name(handle->request.operation));
    for (int32_t node = 0; node < votes->of.nodes && len > 0 && (size_t)len < room && named < NAMED; node++)
        if (lacks(votes, node))
            len += snprintf(text + len, room - (size_t)len, "%s %s", named++ ? "," : "",
                            hc_who(&loop->ranks.processes, votes->of.leaders[node], who));
    if (len > 0 && (size_t)len < room)
        snprintf(text + len, room - (size_t)len, ", and");
}

void hc__votes_watch(hc_loop *loop, uint64_t now, void (*watch)(hc_loop *, int32_t peer, uint64_t now)) {
    for (hc_handle *handle = loop->handles.votes; handle && !loop->failure.is_next; handle = handle->next) {
        const hc_votes *votes = handle->context;
        if (votes->began <= now)
            hc__watch_wait(loop, handle, now - votes->began, describe);
        for (int32_t node = 0; node < votes->of.nodes && votes->of.is_leader; node++)
            if (node != votes->of.me && lacks(votes, node))
                watch(loop, votes->of.leaders[node], now);
    }
}
