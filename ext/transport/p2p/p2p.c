/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.c - who meets whom: messages and their receives, in order.
 *
 *     small    WHOLE ------------------> copied to its receive, or kept until that is posted
 *     large    OFFER ------------------> waits for its receive
 *              <------------------ GRANT
 *              CELL, CELL, ... or FLIGHT and the net's messages
 *
 * All of this goes over the control edges, whose order is the order of the messages. A rank lends each other one a
 * bounded number of bytes of small messages; what goes beyond is offered like a large one, so that neither side's
 * memory grows without limit under a receiver that does not receive.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/p2p/internal.h"

#define WHOLE_MAX ((size_t)8 << 10)
#define LENT_MAX ((uint64_t)512 << 10)

/* ---- piles ----------------------------------------------------------------------------------------- */

void hc__pile_add(hc__pile *pile, hc_p2p_op *op) {
    op->pile = pile;
    op->next = NULL;
    if (pile->first)
        pile->last->next = op;
    else
        pile->first = op;
    pile->last = op;
}

void hc__pile_take(hc_p2p_op *op) {
    hc__pile *pile = op->pile;
    hc_p2p_op *before = NULL, *at = pile->first;
    while (at != op) {
        before = at;
        at = at->next;
    }
    if (before)
        before->next = op->next;
    else
        pile->first = op->next;
    if (pile->last == op)
        pile->last = before;
    op->pile = NULL;
}

static hc_p2p_op *numbered(const hc__pile *pile, int32_t peer, uint32_t number) {
    for (hc_p2p_op *op = pile->first; op; op = op->next)
        if (op->number == number && op->peer == peer)
            return op;
    return NULL;
}

void hc__p2p_finish(hc_p2p *p2p, hc_p2p_op *op, int status) {
    if (op->pile)
        hc__pile_take(op);
    hc__way_close(op);
    op->status = status;
    hc__pile_add(&p2p->done, op);
}

/* ---- who meets whom -------------------------------------------------------------------------------- */

static uint64_t cost(uint64_t bytes) {
    return sizeof(hc__slip) + bytes;
}

/* A whole message was received: its sender may send as much again. Said seldom. */
static int pay_back(hc_p2p *p2p, int32_t peer, uint64_t bytes) {
    hc__account *account = &p2p->accounts[peer];
    account->owed += cost(bytes);
    if (account->owed < LENT_MAX / 4)
        return HC_OK;
    hc__slip slip = {.kind = HC__CREDIT, .bytes = account->owed};
    account->owed = 0;
    return hc__p2p_tell(p2p, peer, &slip, NULL);
}

static int meet(hc_p2p *p2p, hc_p2p_op *receive, int32_t peer, const hc__slip *slip, const void *content) {
    int fits = slip->bytes == receive->bytes;
    receive->peer = peer;
    receive->came = slip->bytes;
    if (slip->kind == HC__WHOLE) {
        if (fits && slip->bytes > 0)
            memcpy(receive->data, content, (size_t)slip->bytes);
        hc__p2p_finish(p2p, receive, fits ? HC_OK : HC_RESULT_SIZE);
        return pay_back(p2p, peer, slip->bytes);
    }
    if (!fits || slip->bytes == 0) {
        hc__p2p_finish(p2p, receive, fits ? HC_OK : HC_RESULT_SIZE);
        return hc__p2p_tell(p2p, peer, &(hc__slip){.kind = HC__TAKEN, .to = slip->from}, NULL);
    }
    receive->number = ++p2p->numbers;
    hc__pile_add(&p2p->granted, receive);
    return hc__p2p_tell(p2p, peer, &(hc__slip){.kind = HC__GRANT, .to = slip->from, .from = receive->number}, NULL);
}

static int matches(const hc_p2p_op *receive, int32_t peer, const hc__slip *slip) {
    return receive->set == slip->set && receive->tag == slip->tag &&
           (receive->peer == peer || receive->peer == HC_ANY_PEER);
}

static int keep(hc_p2p *p2p, int32_t peer, const hc__slip *slip, const void *content) {
    size_t bytes = slip->kind == HC__WHOLE ? (size_t)slip->bytes : 0;
    hc__arrival *arrival = malloc(sizeof *arrival + bytes);
    if (!arrival)
        return HC_NO_MEMORY;
    arrival->next = NULL;
    arrival->slip = *slip;
    arrival->peer = peer;
    if (bytes > 0)
        memcpy(arrival->content, content, bytes);
    *p2p->last_arrived = arrival;
    p2p->last_arrived = &arrival->next;
    return HC_OK;
}

static int arrive(hc_p2p *p2p, int32_t peer, const hc__slip *slip, const void *content) {
    for (hc_p2p_op *receive = p2p->open.first; receive; receive = receive->next) {
        if (!matches(receive, peer, slip))
            continue;
        hc__pile_take(receive);
        return meet(p2p, receive, peer, slip, content);
    }
    return keep(p2p, peer, slip, content);
}

/* Takes the arrival at *link out of the list; the caller frees it. */
static hc__arrival *take_arrival(hc_p2p *p2p, hc__arrival **link) {
    hc__arrival *arrival = *link;
    *link = arrival->next;
    if (p2p->last_arrived == &arrival->next)
        p2p->last_arrived = link;
    return arrival;
}

static int post_receive(hc_p2p *p2p, hc_p2p_op *receive) {
    for (hc__arrival **link = &p2p->arrived; *link; link = &(*link)->next) {
        if (!matches(receive, (*link)->peer, &(*link)->slip))
            continue;
        hc__arrival *arrival = take_arrival(p2p, link);
        int status = meet(p2p, receive, arrival->peer, &arrival->slip, arrival->content);
        free(arrival);
        return status;
    }
    hc__pile_add(&p2p->open, receive);
    return HC_OK;
}

static int post_send(hc_p2p *p2p, hc_p2p_op *send) {
    hc__slip slip = {.kind = HC__WHOLE, .set = send->set, .tag = send->tag, .bytes = send->bytes};
    hc__account *account = &p2p->accounts[send->peer];
    if (send->bytes <= WHOLE_MAX && account->lent + cost(send->bytes) <= LENT_MAX) {
        account->lent += cost(send->bytes);
        int status = hc__p2p_tell(p2p, send->peer, &slip, send->data);
        if (status == HC_OK)
            hc__p2p_finish(p2p, send, HC_OK);
        return status;
    }
    slip.kind = HC__OFFER;
    slip.from = send->number = ++p2p->numbers;
    hc__pile_add(&p2p->offered, send);
    return hc__p2p_tell(p2p, send->peer, &slip, NULL);
}

int hc_p2p_post(hc_p2p *p2p, hc_p2p_op *op) {
    if (op->peer < (op->receives ? HC_ANY_PEER : 0) || op->peer >= p2p->size)
        return HC_INVALID;
    op->pile = NULL;
    op->way = NULL;
    op->status = HC_OK;
    op->came = op->moved = 0;
    int status = op->receives ? post_receive(p2p, op) : post_send(p2p, op);
    if (status < 0 && op->pile)
        hc__pile_take(op);
    return status;
}

/* ---- messages -------------------------------------------------------------------------------------- */

static int granted(hc_p2p *p2p, int32_t peer, const hc__slip *slip) {
    hc_p2p_op *send = numbered(&p2p->offered, peer, slip->to);
    if (!send)
        return hc__p2p_tell(p2p, peer, &(hc__slip){.kind = HC__GONE, .to = slip->from}, NULL);
    hc__pile_take(send);
    send->theirs = slip->from;
    hc__pile_add(&p2p->sending, send);
    return HC_OK;
}

static int end(hc_p2p *p2p, hc_p2p_op *op, int status) {
    if (op)
        hc__p2p_finish(p2p, op, status);
    return HC_OK;
}

static int land(hc_p2p *p2p, int32_t peer, const hc__slip *slip) {
    hc_p2p_op *receive = numbered(&p2p->granted, peer, slip->to);
    if (!receive || !p2p->net)
        return HC_BAD_MESSAGE;
    hc__pile_take(receive);
    hc__pile_add(&p2p->landing, receive);
    return HC_OK;
}

static int read_slip(hc_p2p *p2p, int32_t peer, const hc__slip *slip, const void *content) {
    switch (slip->kind) {
    case HC__WHOLE:
    case HC__OFFER:
        return arrive(p2p, peer, slip, content);
    case HC__GRANT:
        return granted(p2p, peer, slip);
    case HC__TAKEN:
        return end(p2p, numbered(&p2p->offered, peer, slip->to), HC_OK);
    case HC__CELL:
        return hc__cell_arrived(p2p, peer, slip, numbered(&p2p->granted, peer, slip->to));
    case HC__FLIGHT:
        return land(p2p, peer, slip);
    case HC__GONE:
        return end(p2p, numbered(&p2p->granted, peer, slip->to), HC_SHUT_DOWN);
    case HC__CREDIT:
        p2p->accounts[peer].lent -= slip->bytes;
        return HC_OK;
    default:
        return HC_BAD_MESSAGE;
    }
}

int hc_p2p_message(hc_p2p *p2p, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    hc__slip slip;
    if (nbytes == 0 || bytes[0] != HC__SLIP_MARK)
        return 0;
    if (p2p->abandoned)
        return 1;
    if (nbytes < sizeof slip)
        return HC_BAD_MESSAGE;
    memcpy(&slip, bytes, sizeof slip);
    if (nbytes - sizeof slip != (slip.kind == HC__WHOLE ? slip.bytes : 0))
        return HC_BAD_MESSAGE;
    int status = read_slip(p2p, peer, &slip, bytes + sizeof slip);
    return status < 0 ? status : 1;
}

int hc__p2p_tell(hc_p2p *p2p, int32_t peer, const hc__slip *slip, const void *content) {
    size_t bytes = slip->kind == HC__WHOLE ? (size_t)slip->bytes : 0;
    if (peer == p2p->rank)
        return read_slip(p2p, peer, slip, content);
    hc__slip marked = *slip;
    marked.mark = HC__SLIP_MARK;
    memcpy(p2p->message, &marked, sizeof marked);
    if (bytes > 0)
        memcpy(p2p->message + sizeof marked, content, bytes);
    return p2p->control->ops->send(p2p->control, peer, p2p->message, sizeof marked + bytes);
}

/* ---- the driver's ---------------------------------------------------------------------------------- */

static int move_pile(hc_p2p *p2p, hc__pile *pile, int (*move)(hc_p2p *, hc_p2p_op *)) {
    int moved = HC_IDLE;
    for (hc_p2p_op *op = pile->first, *next; op; op = next) {
        next = op->next; /* it may be finished now */
        int progress = move(p2p, op);
        if (progress < 0)
            return progress;
        moved |= progress;
    }
    return moved;
}

int hc_p2p_progress(hc_p2p *p2p) {
    int sent = move_pile(p2p, &p2p->sending, hc__send_bytes);
    int landed = sent < 0 ? sent : move_pile(p2p, &p2p->landing, hc__land_bytes);
    return landed < 0 ? landed : sent | landed;
}

hc_p2p_op *hc_p2p_done(hc_p2p *p2p) {
    hc_p2p_op *op = p2p->done.first;
    if (op)
        hc__pile_take(op);
    return op;
}

int hc_p2p_is_moving(const hc_p2p *p2p) {
    return p2p->sending.first || p2p->landing.first || p2p->granted.first || p2p->done.first;
}

int hc_p2p_withdraw(hc_p2p *p2p, hc_p2p_op *op) {
    if (op->pile != &p2p->open && op->pile != &p2p->offered)
        return 0;
    hc__pile_take(op);
    return 1;
}

/* Set or an earlier set of its number: messages of that one may have come after it was forgotten. */
static int is_over(uint32_t set, uint32_t forgotten) {
    return set % HC_MAX_SETS == forgotten % HC_MAX_SETS && set <= forgotten;
}

void hc_p2p_forget(hc_p2p *p2p, uint32_t set) {
    for (hc__arrival **link = &p2p->arrived; *link;) {
        if (!is_over((*link)->slip.set, set)) {
            link = &(*link)->next;
            continue;
        }
        hc__arrival *arrival = take_arrival(p2p, link);
        if (arrival->slip.kind == HC__WHOLE)
            pay_back(p2p, arrival->peer, arrival->slip.bytes);
        free(arrival);
    }
}

/* ---- coming and going ------------------------------------------------------------------------------ */

static void drop_pile(hc__pile *pile) {
    while (pile->first) {
        hc_p2p_op *op = pile->first;
        hc__pile_take(op);
        hc__way_close(op);
    }
}

void hc_p2p_abandon(hc_p2p *p2p) {
    p2p->abandoned = 1;
    hc__pile *piles[] = {&p2p->open, &p2p->offered, &p2p->granted, &p2p->landing, &p2p->sending, &p2p->done};
    for (size_t i = 0; i < sizeof piles / sizeof *piles; i++)
        drop_pile(piles[i]);
    while (p2p->arrived)
        free(take_arrival(p2p, &p2p->arrived));
}

void hc_p2p_free(hc_p2p *p2p) {
    if (!p2p)
        return;
    hc_p2p_abandon(p2p);
    free(p2p->local_of);
    free(p2p->accounts);
    free(p2p->message);
    free(p2p);
}

int hc_p2p_new(hc_node_control *node_control, hc_net *net, hc_control *control, const int32_t *local_of, int32_t rank,
               int32_t size, hc_p2p **out) {
    hc_p2p *p2p = calloc(1, sizeof *p2p);
    if (!p2p)
        return HC_NO_MEMORY;
    *p2p = (hc_p2p){.node_control = node_control,
                    .net = net,
                    .control = control,
                    .rank = rank,
                    .size = size,
                    .local_size = hc__node_control_size(node_control)};
    p2p->last_arrived = &p2p->arrived;
    p2p->local_of = malloc((size_t)size * sizeof *local_of);
    p2p->accounts = calloc((size_t)size, sizeof *p2p->accounts);
    p2p->message = malloc(sizeof(hc__slip) + WHOLE_MAX);
    if (!p2p->local_of || !p2p->accounts || !p2p->message) {
        hc_p2p_free(p2p);
        return HC_NO_MEMORY;
    }
    memcpy(p2p->local_of, local_of, (size_t)size * sizeof *local_of);
    *out = p2p;
    return HC_OK;
}
