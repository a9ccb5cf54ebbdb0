/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.c - who meets whom: letters and their receives, in order.
 *
 *     small    WHOLE ------------------> copied to its receive, or kept until that is posted
 *     large    OFFER ------------------> waits for its receive
 *              <------------------ GRANT
 *              CELL, CELL, ... or FLIGHT and the net's messages
 *
 * All of this goes over the control edges, whose order is the order of the letters. A rank lends each other one a
 * bounded number of bytes of small messages; what goes beyond is offered like a large one, so that neither side's
 * memory grows without limit under a receiver that does not receive.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/p2p/internal.h"

#define WHOLE_MAX ((size_t)8 << 10)
#define LENT_MAX ((uint64_t)512 << 10)

/* ---- piles ----------------------------------------------------------------------------------------- */

void hc__pile_add(hc__pile *pile, hc_letter *letter) {
    letter->pile = pile;
    letter->next = NULL;
    if (pile->first)
        pile->last->next = letter;
    else
        pile->first = letter;
    pile->last = letter;
}

void hc__pile_take(hc_letter *letter) {
    hc__pile *pile = letter->pile;
    hc_letter *before = NULL, *at = pile->first;
    while (at != letter) {
        before = at;
        at = at->next;
    }
    if (before)
        before->next = letter->next;
    else
        pile->first = letter->next;
    if (pile->last == letter)
        pile->last = before;
    letter->pile = NULL;
}

static hc_letter *numbered(const hc__pile *pile, int32_t peer, uint32_t number) {
    for (hc_letter *letter = pile->first; letter; letter = letter->next)
        if (letter->number == number && letter->peer == peer)
            return letter;
    return NULL;
}

void hc__letter_finish(hc_mail *mail, hc_letter *letter, int status) {
    if (letter->pile)
        hc__pile_take(letter);
    hc__way_close(letter);
    letter->status = status;
    hc__pile_add(&mail->done, letter);
}

/* ---- who meets whom -------------------------------------------------------------------------------- */

static uint64_t cost(uint64_t bytes) {
    return sizeof(hc__slip) + bytes;
}

/* A whole message was received: its sender may send as much again. Said seldom. */
static int pay_back(hc_mail *mail, int32_t peer, uint64_t bytes) {
    hc__account *account = &mail->accounts[peer];
    account->owed += cost(bytes);
    if (account->owed < LENT_MAX / 4)
        return HC_OK;
    hc__slip slip = {.kind = HC__CREDIT, .bytes = account->owed};
    account->owed = 0;
    return hc__mail_tell(mail, peer, &slip, NULL);
}

static int meet(hc_mail *mail, hc_letter *receive, int32_t peer, const hc__slip *slip, const void *content) {
    int fits = slip->bytes == receive->bytes;
    receive->peer = peer;
    receive->came = slip->bytes;
    if (slip->kind == HC__WHOLE) {
        if (fits && slip->bytes > 0)
            memcpy(receive->data, content, (size_t)slip->bytes);
        hc__letter_finish(mail, receive, fits ? HC_OK : HC_RESULT_SIZE);
        return pay_back(mail, peer, slip->bytes);
    }
    if (!fits || slip->bytes == 0) {
        hc__letter_finish(mail, receive, fits ? HC_OK : HC_RESULT_SIZE);
        return hc__mail_tell(mail, peer, &(hc__slip){.kind = HC__TAKEN, .to = slip->from}, NULL);
    }
    receive->number = ++mail->numbers;
    hc__pile_add(&mail->granted, receive);
    return hc__mail_tell(mail, peer,
                         &(hc__slip){.kind = HC__GRANT, .to = slip->from, .from = receive->number}, NULL);
}

static int matches(const hc_letter *receive, int32_t peer, const hc__slip *slip) {
    return receive->set == slip->set && receive->tag == slip->tag &&
           (receive->peer == peer || receive->peer == HC_ANY_PEER);
}

static int keep(hc_mail *mail, int32_t peer, const hc__slip *slip, const void *content) {
    size_t bytes = slip->kind == HC__WHOLE ? (size_t)slip->bytes : 0;
    hc__arrival *arrival = malloc(sizeof *arrival + bytes);
    if (!arrival)
        return HC_NO_MEMORY;
    arrival->next = NULL;
    arrival->slip = *slip;
    arrival->peer = peer;
    if (bytes > 0)
        memcpy(arrival->content, content, bytes);
    *mail->last_arrived = arrival;
    mail->last_arrived = &arrival->next;
    return HC_OK;
}

static int arrive(hc_mail *mail, int32_t peer, const hc__slip *slip, const void *content) {
    for (hc_letter *receive = mail->open.first; receive; receive = receive->next) {
        if (!matches(receive, peer, slip))
            continue;
        hc__pile_take(receive);
        return meet(mail, receive, peer, slip, content);
    }
    return keep(mail, peer, slip, content);
}

/* Takes the arrival at *link out of the list; the caller frees it. */
static hc__arrival *take_arrival(hc_mail *mail, hc__arrival **link) {
    hc__arrival *arrival = *link;
    *link = arrival->next;
    if (mail->last_arrived == &arrival->next)
        mail->last_arrived = link;
    return arrival;
}

static int post_receive(hc_mail *mail, hc_letter *receive) {
    for (hc__arrival **link = &mail->arrived; *link; link = &(*link)->next) {
        if (!matches(receive, (*link)->peer, &(*link)->slip))
            continue;
        hc__arrival *arrival = take_arrival(mail, link);
        int status = meet(mail, receive, arrival->peer, &arrival->slip, arrival->content);
        free(arrival);
        return status;
    }
    hc__pile_add(&mail->open, receive);
    return HC_OK;
}

static int post_send(hc_mail *mail, hc_letter *send) {
    hc__slip slip = {.kind = HC__WHOLE, .set = send->set, .tag = send->tag, .bytes = send->bytes};
    hc__account *account = &mail->accounts[send->peer];
    if (send->bytes <= WHOLE_MAX && account->lent + cost(send->bytes) <= LENT_MAX) {
        account->lent += cost(send->bytes);
        int status = hc__mail_tell(mail, send->peer, &slip, send->data);
        if (status == HC_OK)
            hc__letter_finish(mail, send, HC_OK);
        return status;
    }
    slip.kind = HC__OFFER;
    slip.from = send->number = ++mail->numbers;
    hc__pile_add(&mail->offered, send);
    return hc__mail_tell(mail, send->peer, &slip, NULL);
}

int hc_mail_post(hc_mail *mail, hc_letter *letter) {
    if (letter->peer < (letter->receives ? HC_ANY_PEER : 0) || letter->peer >= mail->size)
        return HC_INVALID;
    letter->pile = NULL;
    letter->way = NULL;
    letter->status = HC_OK;
    letter->came = letter->moved = 0;
    int status = letter->receives ? post_receive(mail, letter) : post_send(mail, letter);
    if (status < 0 && letter->pile)
        hc__pile_take(letter);
    return status;
}

/* ---- messages -------------------------------------------------------------------------------------- */

static int granted(hc_mail *mail, int32_t peer, const hc__slip *slip) {
    hc_letter *send = numbered(&mail->offered, peer, slip->to);
    if (!send)
        return hc__mail_tell(mail, peer, &(hc__slip){.kind = HC__GONE, .to = slip->from}, NULL);
    hc__pile_take(send);
    send->theirs = slip->from;
    hc__pile_add(&mail->sending, send);
    return HC_OK;
}

static int end(hc_mail *mail, hc_letter *letter, int status) {
    if (letter)
        hc__letter_finish(mail, letter, status);
    return HC_OK;
}

static int land(hc_mail *mail, int32_t peer, const hc__slip *slip) {
    hc_letter *receive = numbered(&mail->granted, peer, slip->to);
    if (!receive || !mail->net)
        return HC_BAD_MESSAGE;
    hc__pile_take(receive);
    hc__pile_add(&mail->landing, receive);
    return HC_OK;
}

static int read_slip(hc_mail *mail, int32_t peer, const hc__slip *slip, const void *content) {
    switch (slip->kind) {
    case HC__WHOLE:
    case HC__OFFER:
        return arrive(mail, peer, slip, content);
    case HC__GRANT:
        return granted(mail, peer, slip);
    case HC__TAKEN:
        return end(mail, numbered(&mail->offered, peer, slip->to), HC_OK);
    case HC__CELL:
        return hc__cell_arrived(mail, peer, slip, numbered(&mail->granted, peer, slip->to));
    case HC__FLIGHT:
        return land(mail, peer, slip);
    case HC__GONE:
        return end(mail, numbered(&mail->granted, peer, slip->to), HC_SHUT_DOWN);
    case HC__CREDIT:
        mail->accounts[peer].lent -= slip->bytes;
        return HC_OK;
    default:
        return HC_BAD_MESSAGE;
    }
}

int hc_mail_message(hc_mail *mail, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    hc__slip slip;
    if (nbytes == 0 || bytes[0] != HC__SLIP_MARK)
        return 0;
    if (mail->abandoned)
        return 1;
    if (nbytes < sizeof slip)
        return HC_BAD_MESSAGE;
    memcpy(&slip, bytes, sizeof slip);
    if (nbytes - sizeof slip != (slip.kind == HC__WHOLE ? slip.bytes : 0))
        return HC_BAD_MESSAGE;
    int status = read_slip(mail, peer, &slip, bytes + sizeof slip);
    return status < 0 ? status : 1;
}

int hc__mail_tell(hc_mail *mail, int32_t peer, const hc__slip *slip, const void *content) {
    size_t bytes = slip->kind == HC__WHOLE ? (size_t)slip->bytes : 0;
    if (peer == mail->rank)
        return read_slip(mail, peer, slip, content);
    hc__slip marked = *slip;
    marked.mark = HC__SLIP_MARK;
    memcpy(mail->message, &marked, sizeof marked);
    if (bytes > 0)
        memcpy(mail->message + sizeof marked, content, bytes);
    return mail->control->ops->send(mail->control, peer, mail->message, sizeof marked + bytes);
}

/* ---- the driver's ---------------------------------------------------------------------------------- */

static int move_pile(hc_mail *mail, hc__pile *pile, int (*move)(hc_mail *, hc_letter *)) {
    int moved = HC_IDLE;
    for (hc_letter *letter = pile->first, *next; letter; letter = next) {
        next = letter->next; /* it may be finished now */
        int progress = move(mail, letter);
        if (progress < 0)
            return progress;
        moved |= progress;
    }
    return moved;
}

int hc_mail_progress(hc_mail *mail) {
    int sent = move_pile(mail, &mail->sending, hc__send_bytes);
    int landed = sent < 0 ? sent : move_pile(mail, &mail->landing, hc__land_bytes);
    return landed < 0 ? landed : sent | landed;
}

hc_letter *hc_mail_done(hc_mail *mail) {
    hc_letter *letter = mail->done.first;
    if (letter)
        hc__pile_take(letter);
    return letter;
}

int hc_mail_is_moving(const hc_mail *mail) {
    return mail->sending.first || mail->landing.first || mail->granted.first || mail->done.first;
}

int hc_mail_withdraw(hc_mail *mail, hc_letter *letter) {
    if (letter->pile != &mail->open && letter->pile != &mail->offered)
        return 0;
    hc__pile_take(letter);
    return 1;
}

/* Set or an earlier set of its number: letters of that one may have come after it was forgotten. */
static int is_over(uint32_t set, uint32_t forgotten) {
    return set % HC_MAX_SETS == forgotten % HC_MAX_SETS && set <= forgotten;
}

void hc_mail_forget(hc_mail *mail, uint32_t set) {
    for (hc__arrival **link = &mail->arrived; *link;) {
        if (!is_over((*link)->slip.set, set)) {
            link = &(*link)->next;
            continue;
        }
        hc__arrival *arrival = take_arrival(mail, link);
        if (arrival->slip.kind == HC__WHOLE)
            pay_back(mail, arrival->peer, arrival->slip.bytes);
        free(arrival);
    }
}

/* ---- coming and going ------------------------------------------------------------------------------ */

static void drop_pile(hc__pile *pile) {
    while (pile->first) {
        hc_letter *letter = pile->first;
        hc__pile_take(letter);
        hc__way_close(letter);
    }
}

void hc_mail_abandon(hc_mail *mail) {
    mail->abandoned = 1;
    hc__pile *piles[] = {&mail->open,    &mail->offered, &mail->granted,
                         &mail->landing, &mail->sending, &mail->done};
    for (size_t i = 0; i < sizeof piles / sizeof *piles; i++)
        drop_pile(piles[i]);
    while (mail->arrived)
        free(take_arrival(mail, &mail->arrived));
}

void hc_mail_free(hc_mail *mail) {
    if (!mail)
        return;
    hc_mail_abandon(mail);
    free(mail->local_of);
    free(mail->accounts);
    free(mail->message);
    free(mail);
}

int hc_mail_new(hc_home *home, hc_net *net, hc_control *control, const int32_t *local_of, int32_t rank,
                int32_t size, hc_mail **out) {
    hc_mail *mail = calloc(1, sizeof *mail);
    if (!mail)
        return HC_NO_MEMORY;
    *mail = (hc_mail){.home = home,
                      .net = net,
                      .control = control,
                      .rank = rank,
                      .size = size,
                      .local_size = hc__home_size(home)};
    mail->last_arrived = &mail->arrived;
    mail->local_of = malloc((size_t)size * sizeof *local_of);
    mail->accounts = calloc((size_t)size, sizeof *mail->accounts);
    mail->message = malloc(sizeof(hc__slip) + WHOLE_MAX);
    if (!mail->local_of || !mail->accounts || !mail->message) {
        hc_mail_free(mail);
        return HC_NO_MEMORY;
    }
    memcpy(mail->local_of, local_of, (size_t)size * sizeof *local_of);
    *out = mail;
    return HC_OK;
}
