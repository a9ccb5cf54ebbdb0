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
#include "loop/counted.h"
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

static void send(hc_loop *loop, const hc_votes *votes, int32_t partner, uint8_t kind, uint64_t number) {
    const hc_ballot *ballot = &votes->vote.ballot;
    uint8_t message[sizeof(header) + sizeof ballot->agreed + HC_VOTE_GATHERED];
    header head = {MARK, kind, (uint16_t)votes->vote.me, votes->wire, number};
    size_t n = sizeof head;
    memcpy(message, &head, sizeof head);
    if (kind == HC_VOTE_YES) {
        memcpy(message + n, ballot->agreed, sizeof ballot->agreed);
        n += sizeof ballot->agreed;
        memcpy(message + n, ballot->value, ballot->bytes);
        n += ballot->bytes;
    }
    int32_t peer = votes->of.leaders[partner];
    int status = loop->parts.control->ops->send(loop->parts.control, peer, message, n);
    if (status < 0)
        hc__loop_fail_to_move(loop, status, peer, "a vote on a small call could not be sent");
}

/* Sends this node's vote to the partners that await it in a stage from `first` to `last`. Each node begins with another
 * partner. */
static void send_in(hc_loop *loop, const hc_votes *votes, uint8_t kind, int32_t first, int32_t last) {
    const hc_vote *vote = &votes->vote;
    for (int32_t i = 0; i < vote->npartners; i++) {
        int32_t partner = (vote->me + i) % vote->npartners, stage = vote->partners[partner].sends_in;
        if (stage >= first && stage <= last)
            send(loop, votes, partner, kind, vote->ballot.number);
    }
}

static void ask(hc_loop *loop, hc_votes *votes) {
    for (int32_t i = 0; i < votes->vote.npartners; i++)
        if (hc_vote_lacks(&votes->vote, i))
            send(loop, votes, i, HC_VOTE_ASK, votes->own.number);
    votes->has_asked = 1;
}

/* ---- the call that waits ----------------------------------------------------------------------------------- */

/* The leader tells the other ranks of its node, which know already if this node has voted NO. */
static void tell(hc_loop *loop, const hc_votes *votes, enum hc_shortcut_state state) {
    if (!votes->of.is_leader || votes->own.kind != HC_VOTE_YES || votes->of.size == votes->of.nodes)
        return; /* or no node has other ranks */
    hc_shortcut_tell(votes->count, votes->own.number, state, votes->result,
                     state == HC_SHORTCUT_TAKEN ? votes->result_bytes : 0);
    hc_doorbell_ring_all(loop->parts.node_control);
}

/* Writes the result into the request's array, or a new one. OK or NO_MEMORY. */
static int put_result(hc_loop *loop, const hc_votes *votes, hc_handle *request) {
    hc_shortcut_call call = votes->call;
    call.out = NULL;
    if (request->request.ntensors && hc_operation_gets(call.agreed.operation, call.agreed.root, call.rank)) {
        hc_piece *piece = &request->pieces[0];
        if (call.traits & HC_OP_RESULT_ALLOCATED)
            piece->out_rows = hc_loop_shortcut_rows(NULL, &call, piece->recv_rows);
        if (!piece->out) {
            piece->out = hc_result_new((size_t)(piece->out_rows * call.row) * hc_dtype_size(call.agreed.dtype));
            piece->out_owned = piece->out != NULL;
        }
        if (!piece->out)
            return HC_NO_MEMORY;
        call.out = piece->out;
    }
    hc_loop_shortcut_end(loop, NULL, &call);
    return HC_OK;
}

/* Ends the request of a call whose caller waits no longer as the votes have ended, or lets the engine have it. */
static void end_request(hc_loop *loop, const hc_votes *votes, hc_handle *request) {
    const hc_handle *voted = votes->handle;
    int status = voted->status, is_taken = status == HC_OK && voted->value == HC_SHORTCUT_TAKEN;
    if (votes->call.is_request)
        hc__equal_settle(request, votes->call.rank, is_taken ? hc__votes_extremes(votes) : NULL);
    if (votes->call.is_request && is_taken) {
        request->kind = HC_HANDLE_COUNTED;
        hc__inbox_push(loop, request);
        return;
    }
    if (votes->call.is_request)
        hc__counted_off(loop, request->set);
    if (!is_taken && (status == HC_OK || status == HC_SHUT_DOWN || status == HC_BROKEN)) {
        request->kind = HC_EV_ENQUEUE;
        hc__inbox_push(loop, request);
        return;
    }
    if (is_taken)
        status = put_result(loop, votes, request);
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

static void begin_stage(hc_loop *loop, hc_votes *votes, uint64_t now) {
    votes->has_asked = 0;
    votes->waits = now;
    send_in(loop, votes, HC_VOTE_YES, votes->vote.at, votes->vote.at);
}

/* Takes over the result of votes that are all YES. OFF, on all ranks: a rank's `out` has not the rows of its result. */
static enum hc_shortcut_state take_result(hc_votes *votes, const unsigned char *value) {
    if (!hc__gathers(votes->call.agreed.operation)) {
        votes->result_bytes = votes->call.bytes;
        memcpy(votes->result, value, votes->result_bytes);
        return HC_SHORTCUT_TAKEN;
    }
    if (!hc__given_take(votes, value))
        return HC_SHORTCUT_OFF;
    int is_known = !(votes->call.traits & HC_OP_RESULT_ALLOCATED);
    return is_known || hc__shortcut_fits(NULL, &votes->call) ? HC_SHORTCUT_TAKEN : HC_SHORTCUT_OFF;
}

enum hc_shortcut_state hc__votes_result(hc_votes *votes) {
    return take_result(votes, hc_shortcut_result(votes->count, votes->own.number));
}

/* The leader's part: as many stages as have their votes. */
static enum hc_shortcut_state look_at_stages(hc_loop *loop, hc_votes *votes) {
    enum hc_shortcut_state state;
    while ((state = hc_vote_look(&votes->vote)) == HC_SHORTCUT_TAKEN) {
        hc__tally(votes);
        if (!hc_vote_advance(&votes->vote))
            break;
        begin_stage(loop, votes, hc__loop_now());
    }
    if (state == HC_SHORTCUT_OFF)
        send_in(loop, votes, HC_VOTE_NO, votes->vote.at + 1, votes->vote.stages);
    return state == HC_SHORTCUT_TAKEN ? take_result(votes, votes->vote.ballot.value) : state;
}

/* 1: it is done. */
static int look(hc_loop *loop, hc_votes *votes) {
    enum hc_shortcut_state state = votes->of.is_leader ? look_at_stages(loop, votes)
                                                       : hc_shortcut_told(votes->count, votes->own.number);
    if (state == HC_SHORTCUT_OPEN)
        return 0;
    if (state == HC_SHORTCUT_TAKEN && !votes->of.is_leader)
        state = hc__votes_result(votes);
    votes->handle->value = state;
    tell(loop, votes, state);
    end(loop, votes, HC_OK, NULL);
    return 1;
}

static void cast(hc_loop *loop, hc_votes *votes) {
    hc_ballot *ballot = hc_vote_cast(&votes->vote, votes->own.number, votes->own.kind);
    if (votes->own.kind == HC_VOTE_NO) {
        send_in(loop, votes, HC_VOTE_NO, 0, votes->vote.stages);
        return;
    }
    ballot->bytes = votes->own.bytes;
    memcpy(ballot->agreed, votes->own.agreed, sizeof ballot->agreed);
    memcpy(ballot->value, votes->own.value, votes->own.bytes);
    begin_stage(loop, votes, votes->began);
}

void hc__votes_take(hc_loop *loop, hc_handle *handle, uint64_t now) {
    const hc__set_queue *queue = hc__set_queue_find(loop, handle->set);
    hc_votes *votes = handle->context;
    hc__handle_link(&loop->handles.votes, handle);
    votes->is_open = 1;
    votes->stopped = 0;
    votes->began = now;
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
        if (votes->of.is_leader && !votes->has_asked && now - votes->waits > HC__VOTE_NS)
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

static void note(hc_votes *votes, int32_t partner, const header *head, const uint8_t *content, size_t nbytes) {
    hc_ballot *ballot = hc_vote_note(&votes->vote, partner, head->number, head->kind);
    if (!ballot || head->kind != HC_VOTE_YES)
        return;
    ballot->bytes = (uint32_t)(nbytes - sizeof ballot->agreed);
    memcpy(ballot->agreed, content, sizeof ballot->agreed);
    memcpy(ballot->value, content + sizeof ballot->agreed, ballot->bytes);
    atomic_store_explicit(&votes->newest_yes, head->number, memory_order_relaxed);
}

/* The content of a vote: the signature and the value. */
static int is_sound_content(const hc_votes *votes, enum hc_vote_kind kind, const uint8_t *content, size_t nbytes) {
    hc_shortcut_agreed agreed;
    if (kind != HC_VOTE_YES || nbytes < sizeof agreed)
        return kind != HC_VOTE_YES && nbytes == 0;
    memcpy(&agreed, content, sizeof agreed);
    nbytes -= sizeof agreed;
    if (agreed.operation >= HC_OPERATION_COUNT || !hc__gathers(agreed.operation))
        return nbytes <= HC_VOTE_BYTES;
    return nbytes <= HC_VOTE_GATHERED && hc__given_is_sound(content + sizeof agreed, nbytes, votes->of.size);
}

static int is_sound(const hc_votes *votes, int32_t peer, int32_t partner, const header *head) {
    return head->kind > HC_VOTE_NONE && head->kind < HC_VOTE_KINDS && partner >= 0 &&
           votes->of.leaders[partner] == peer && votes->of.is_leader;
}

static void hear(hc_loop *loop, hc_votes *votes, int32_t partner, const header *head, const uint8_t *content,
                 size_t nbytes) {
    enum hc_shortcut_state count = head->kind == HC_VOTE_ASK ? hc_shortcut_close(votes->count, head->number)
                                                             : hc_shortcut_at(votes->count, head->number);
    if (head->kind != HC_VOTE_ASK)
        note(votes, partner, head, content, nbytes);
    if (hc_vote_answer(head->kind, count) == HC_VOTE_NO)
        send(loop, votes, partner, HC_VOTE_NO, head->number);
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
    int32_t partner = hc_vote_partner_at(&queue->votes->vote, head.node);
    if (!is_sound(queue->votes, peer, partner, &head) ||
        !is_sound_content(queue->votes, head.kind, bytes + sizeof head, nbytes - sizeof head))
        return HC_BAD_MESSAGE;
    hear(loop, queue->votes, partner, &head, bytes + sizeof head, nbytes - sizeof head);
    return 1;
}

uint64_t hc__votes_next(hc_loop *loop, uint32_t set) {
    const hc__set_queue *queue = hc__set_queue_find(loop, set);
    return queue && queue->votes && queue->votes->of.is_leader ? hc_shortcut_number(queue->votes->count) : 0;
}

/* As if all partners had asked. */
void hc__votes_decline(hc_loop *loop, uint32_t set, uint64_t number) {
    const hc__set_queue *queue = hc__set_queue_find(loop, set);
    hc_votes *votes = queue && !queue->stopped ? queue->votes : NULL;
    if (!votes || hc_shortcut_close(votes->count, number) != HC_SHORTCUT_OFF)
        return;
    for (int32_t i = 0; i < votes->vote.npartners; i++)
        if (votes->vote.partners[i].sends_in >= 0)
            send(loop, votes, i, HC_VOTE_NO, number);
}

/* ---- long waits -------------------------------------------------------------------------------------------- */

#define NAMED 4 /* ranks named in a text */

/* Adds the name of a rank for which a call waits. Returns the new length. */
static int name(const hc_loop *loop, char *text, size_t room, int len, int32_t rank, int is_first) {
    char who[HC_WHO];
    if (len < 0 || (size_t)len >= room)
        return len;
    return len + snprintf(text + len, room - (size_t)len, "%s %s", is_first ? "" : ",",
                          hc_who(&loop->ranks.processes, rank, who));
}

/* The ranks beside the leader do not know which votes it lacks. */
static void describe(hc_loop *loop, const hc_handle *handle, char *text, size_t room) {
    const hc_votes *votes = handle->context;
    int32_t named = 0;
    int len = snprintf(text, room, "%s without a name awaits%s", hc_operation_name(handle->request.operation),
                       votes->of.is_leader ? "" : " other nodes through");
    if (!votes->of.is_leader)
        len = name(loop, text, room, len, votes->of.leader, 1);
    for (int32_t i = 0; i < votes->vote.npartners && votes->of.is_leader && named < NAMED; i++)
        if (hc_vote_lacks(&votes->vote, i))
            len = name(loop, text, room, len, votes->of.leaders[i], !named++);
    if (len > 0 && (size_t)len < room)
        snprintf(text + len, room - (size_t)len, ", and");
}

void hc__votes_watch(hc_loop *loop, uint64_t now, void (*watch)(hc_loop *, int32_t peer, uint64_t now)) {
    for (hc_handle *handle = loop->handles.votes; handle && !loop->failure.is_next; handle = handle->next) {
        const hc_votes *votes = handle->context;
        if (votes->began <= now)
            hc__watch_wait(loop, handle, now - votes->began, describe);
        for (int32_t i = 0; i < votes->vote.npartners && votes->of.is_leader; i++)
            if (hc_vote_lacks(&votes->vote, i))
                watch(loop, votes->of.leaders[i], now);
    }
}
