/* SPDX-License-Identifier: Apache-2.0
 *
 * bundle.c - the messages of one round: posts them one by one, tests and cancels them together.
 *
 * Both sides cut a long message into pieces of the net's message_bytes, with a window of pieces in flight. Messages to
 * one peer are matched in order, so a message starts only when all pieces of the message before it (same peer, same
 * direction) are posted.
 */
#include "core/reserve.h"
#include "transport/net/bundle.h"

#include <stdlib.h>

static int64_t piece_bytes(const hc__bundle *b, const hc__flight *f) {
    return b->net->message_bytes > 0 && !b->whole ? b->net->message_bytes : f->bytes;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int is_posted(const hc__flight *f) {
    return f->posted == f->bytes;
}

/* 1: an earlier message of the same peer and direction still has unposted pieces. */
static int must_wait(const hc__bundle *b, int32_t i) {
    const hc__flight *f = &b->flights[i];
    for (int32_t j = 0; j < i; j++)
        if (!is_posted(&b->flights[j]) && b->flights[j].peer == f->peer && b->flights[j].receives == f->receives)
            return 1;
    return 0;
}

/* Posts pieces until the window is full. */
static int post(hc__bundle *b, int32_t i) {
    hc__flight *f = &b->flights[i];
    hc_net *net = b->net;
    int64_t piece = piece_bytes(b, f);
    if (b->held || is_posted(f) || must_wait(b, i))
        return HC_OK;
    while (f->posted < f->bytes && f->posted < f->arrived + HC__WINDOW * piece) {
        size_t bytes = (size_t)least(piece, f->bytes - f->posted);
        hc_net_request **request = &f->pieces[f->posted / piece % HC__WINDOW];
        int status = f->receives ? net->ops->irecv(net, f->peer, f->tag, f->data + f->posted, bytes, request)
                                 : net->ops->isend(net, f->peer, f->tag, f->data + f->posted, bytes, request);
        if (status < 0)
            return status;
        f->posted += (int64_t)bytes;
    }
    return HC_OK;
}

static int add(hc__bundle *b, hc__flight flight) {
    if (flight.bytes == 0)
        return HC_OK;
    if (b->n == b->room) {
        int32_t room = b->room ? 2 * b->room : 8;
        hc__flight *flights = hc_realloc(b->flights, (size_t)b->room * sizeof *flights, (size_t)room * sizeof *flights);
        if (!flights)
            return HC_NO_MEMORY;
        b->flights = flights;
        b->room = room;
    }
    b->flights[b->n] = flight;
    return post(b, b->n++);
}

int hc__bundle_send(hc__bundle *b, int32_t peer, int32_t tag, const void *data, int64_t bytes) {
    return add(b, (hc__flight){.peer = peer, .tag = tag, .data = (void *)(uintptr_t)data, .bytes = bytes});
}

int hc__bundle_receive(hc__bundle *b, int32_t peer, int32_t tag, void *data, int64_t bytes) {
    return add(b, (hc__flight){.peer = peer, .tag = tag, .receives = 1, .data = data, .bytes = bytes});
}

int hc__bundle_receive_most(hc__bundle *b, int32_t peer, int32_t tag, void *data, int64_t most, int64_t *length) {
    return add(b, (hc__flight){.peer = peer, .tag = tag, .receives = 1, .data = data, .bytes = most, .length = length});
}

int hc__bundle_release(hc__bundle *b) {
    int status = HC_OK;
    b->held = 0;
    for (int32_t i = 0; i < b->n && status >= 0; i++)
        status = post(b, i);
    return status;
}

/* Counts the pieces of a message that have arrived, in order. */
static int advance(hc__bundle *b, hc__flight *f) {
    int64_t piece = piece_bytes(b, f);
    int moved = 0;
    while (f->arrived < f->posted) {
        size_t bytes = 0, expected = (size_t)least(piece, f->bytes - f->arrived);
        int status = b->net->ops->test(b->net, &f->pieces[f->arrived / piece % HC__WINDOW], &bytes, NULL);
        if (status != HC_DONE)
            return status < 0 || !moved ? status : HC_MOVED;
        if (f->length)
            *f->length = (int64_t)bytes;
        else if (f->receives && bytes != expected)
            return HC_TRANSPORT; /* the members disagree on the length: a bug, or a foreign message */
        f->arrived += (int64_t)expected;
        moved = 1;
    }
    return moved ? HC_MOVED : HC_IDLE;
}

int hc__bundle_test(hc__bundle *b) {
    int moved = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < b->n; i++) {
        int status = advance(b, &b->flights[i]);
        if (status < 0)
            return status;
        moved |= status == HC_MOVED;
    }
    for (int32_t i = 0; moved && i < b->n; i++) { /* a window has moved, or an earlier message is fully posted */
        int status = post(b, i);
        if (status < 0)
            return status;
    }
    for (int32_t i = 0; i < b->n; i++)
        if (b->flights[i].arrived < b->flights[i].bytes)
            b->flights[kept++] = b->flights[i];
    b->n = kept;
    if (kept == 0)
        return HC_DONE;
    return moved ? HC_MOVED : HC_IDLE;
}

void hc__bundle_cancel(hc__bundle *b) {
    for (int32_t i = 0; i < b->n; i++)
        for (int k = 0; k < HC__WINDOW; k++) {
            hc_net_request **request = &b->flights[i].pieces[k];
            if (*request && b->net->ops->cancel(b->net, request) != HC_OK)
                b->stuck = 1;
        }
    b->n = 0;
    b->held = 0;
}

void hc__bundle_free(hc__bundle *b) {
    hc__bundle_cancel(b);
    hc_free(b->flights);
    b->flights = NULL;
    b->room = 0;
}
