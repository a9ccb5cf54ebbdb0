/* SPDX-License-Identifier: Apache-2.0
 *
 * net_bundle.c - the messages of one round: posted one by one, awaited together, cancelled together.
 */
#include "net.h"

#include <stdlib.h>

static int make_room(hc__bundle *b) {
    if (b->n < b->room)
        return HC_OK;
    int32_t room = b->room ? 2 * b->room : 8;
    hc__flight *flights = realloc(b->flights, (size_t)room * sizeof *flights);
    if (!flights)
        return HC_NO_MEMORY;
    b->flights = flights;
    b->room = room;
    return HC_OK;
}

int hc__bundle_send(hc__bundle *b, int32_t peer, int32_t tag, const void *data, int64_t bytes) {
    if (bytes == 0)
        return HC_OK;
    int status = make_room(b);
    if (status < 0)
        return status;
    hc__flight *f = &b->flights[b->n];
    *f = (hc__flight){.request = NULL, .expected = (size_t)bytes, .receives = 0};
    status = b->net->ops->isend(b->net, peer, tag, data, (size_t)bytes, &f->request);
    if (status == HC_OK)
        b->n++;
    return status;
}

int hc__bundle_receive(hc__bundle *b, int32_t peer, int32_t tag, void *data, int64_t bytes) {
    if (bytes == 0)
        return HC_OK;
    int status = make_room(b);
    if (status < 0)
        return status;
    hc__flight *f = &b->flights[b->n];
    *f = (hc__flight){.request = NULL, .expected = (size_t)bytes, .receives = 1};
    status = b->net->ops->irecv(b->net, peer, tag, data, (size_t)bytes, &f->request);
    if (status == HC_OK)
        b->n++;
    return status;
}

int hc__bundle_test(hc__bundle *b) {
    int moved = 0;
    for (int32_t i = 0; i < b->n;) {
        hc__flight *f = &b->flights[i];
        size_t bytes = 0;
        int status = b->net->ops->test(b->net, &f->request, &bytes, NULL);
        if (status < 0)
            return status;
        if (status != HC_DONE) {
            moved |= status == HC_MOVED;
            i++;
            continue;
        }
        if (f->receives && bytes != f->expected)
            return HC_TRANSPORT; /* the members disagree about the lengths: a bug, or a foreign message */
        moved = 1;
        *f = b->flights[--b->n];
    }
    if (b->n == 0)
        return HC_DONE;
    return moved ? HC_MOVED : HC_IDLE;
}

void hc__bundle_cancel(hc__bundle *b) {
    for (int32_t i = 0; i < b->n; i++)
        if (b->flights[i].request && b->net->ops->cancel(b->net, &b->flights[i].request) != HC_OK)
            b->stuck = 1;
    b->n = 0;
}

void hc__bundle_free(hc__bundle *b) {
    hc__bundle_cancel(b);
    free(b->flights);
    b->flights = NULL;
    b->room = 0;
}
