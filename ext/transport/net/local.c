/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c - a net between the threads of one process.
 *
 * Each rank has a mailbox with two lists in order: sends to it without a receive, and its receives without a send.
 * The sender or the receiver that completes a pair takes it out of the mailbox under the mailbox's lock, and copies
 * the bytes from buffer to buffer after it has released the lock.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/reserve.h"
#include "transport/net/local.h"

/* DONE and TOO_LONG are stored with release after the copy and all other fields were written; a thread that loads them
 * with acquire may read those fields and free the request. */
enum state { UNMATCHED, PAIRED, DONE, TOO_LONG };

struct hc_net_request {
    struct hc_net_request *next;
    struct mailbox *box;
    void *data;
    size_t bytes; /* to send; of a receive: room, then received bytes */
    int32_t peer, tag;
    int is_receive;
    _Atomic int state;
};

typedef struct mailbox {
    pthread_mutex_t lock;
    hc_net_request *sent, *posted; /* unmatched, oldest first; never a matching pair */
} mailbox;

typedef struct mailboxes {
    _Atomic int32_t users;
    int32_t size;
    mailbox boxes[];
} mailboxes;

typedef struct local_net {
    hc_net base;
    mailboxes *mailboxes;
} local_net;

static int matches(const hc_net_request *receive, int32_t peer, int32_t tag) {
    return receive->tag == tag && (receive->peer == peer || receive->peer == HC_ANY_PEER);
}

/* Removes and returns the oldest entry of the list that matches `request`. */
static hc_net_request *take_match(hc_net_request **list, const hc_net_request *request) {
    for (hc_net_request **link = list; *link != NULL; link = &(*link)->next) {
        hc_net_request *other = *link;
        int fits = request->is_receive ? matches(request, other->peer, other->tag)
                                       : matches(other, request->peer, request->tag);
        if (!fits)
            continue;
        *link = other->next;
        return other;
    }
    return NULL;
}

static void append(hc_net_request **list, hc_net_request *request) {
    while (*list != NULL)
        list = &(*list)->next;
    *list = request;
}

static void deliver(hc_net_request *send, hc_net_request *receive) {
    int state = send->bytes > receive->bytes ? TOO_LONG : DONE;
    if (state == DONE && send->bytes > 0)
        memcpy(receive->data, send->data, send->bytes);
    receive->bytes = send->bytes;
    receive->peer = send->peer;
    atomic_store_explicit(&receive->state, state, memory_order_release);
    atomic_store_explicit(&send->state, DONE, memory_order_release);
}

static void post(mailbox *box, hc_net_request *request) {
    pthread_mutex_lock(&box->lock);
    hc_net_request *other = take_match(request->is_receive ? &box->sent : &box->posted, request);
    if (other == NULL) {
        append(request->is_receive ? &box->posted : &box->sent, request);
    } else {
        atomic_store_explicit(&other->state, PAIRED, memory_order_relaxed);
        atomic_store_explicit(&request->state, PAIRED, memory_order_relaxed);
    }
    pthread_mutex_unlock(&box->lock);
    if (other != NULL)
        deliver(request->is_receive ? other : request, request->is_receive ? request : other);
}

static int start(hc_net *net, mailbox *box, hc_net_request fields, hc_net_request **out) {
    if (fields.tag < 0 || fields.tag > net->max_tag)
        return HC_INVALID;
    hc_net_request *request = hc_malloc(sizeof *request);
    if (request == NULL)
        return HC_NO_MEMORY;
    *request = fields;
    request->box = box;
    post(box, request);
    *out = request;
    return HC_OK;
}

static int local_isend(hc_net *net, int32_t peer, int32_t tag, const void *data, size_t bytes, hc_net_request **out) {
    if (peer < 0 || peer >= net->size)
        return HC_INVALID;
    hc_net_request fields = {.data = (void *)(uintptr_t)data, .bytes = bytes, .peer = net->rank, .tag = tag};
    int status = start(net, &((local_net *)net)->mailboxes->boxes[peer], fields, out);
    if (status != HC_OK)
        return status;
    hc_count(&net->sent_messages, 1);
    hc_count(&net->sent_bytes, bytes);
    return HC_OK;
}

static int local_irecv(hc_net *net, int32_t peer, int32_t tag, void *data, size_t room, hc_net_request **out) {
    if (peer < HC_ANY_PEER || peer >= net->size)
        return HC_INVALID;
    hc_net_request fields = {.data = data, .bytes = room, .peer = peer, .tag = tag, .is_receive = 1};
    return start(net, &((local_net *)net)->mailboxes->boxes[net->rank], fields, out);
}

static int local_test(hc_net *net, hc_net_request **req, size_t *bytes, int32_t *peer) {
    hc_net_request *request = *req;
    int state = atomic_load_explicit(&request->state, memory_order_acquire);
    if (state < DONE)
        return HC_IDLE;
    if (request->is_receive) {
        hc_count(&net->received_bytes, request->bytes);
        if (bytes != NULL)
            *bytes = request->bytes;
        if (peer != NULL)
            *peer = request->peer;
    }
    hc_free(request);
    *req = NULL;
    return state == TOO_LONG ? HC_TRANSPORT : HC_DONE;
}

static int local_cancel(hc_net *net, hc_net_request **req) {
    (void)net;
    hc_net_request *request = *req;
    mailbox *box = request->box;
    pthread_mutex_lock(&box->lock);
    for (hc_net_request **link = request->is_receive ? &box->posted : &box->sent; *link != NULL; link = &(*link)->next)
        if (*link == request) {
            *link = request->next;
            break;
        }
    pthread_mutex_unlock(&box->lock);
    /* PAIRED: another thread is copying now; wait until it has ended. */
    while (atomic_load_explicit(&request->state, memory_order_acquire) == PAIRED)
        sched_yield();
    hc_free(request);
    *req = NULL;
    return HC_OK;
}

static void leave_mailboxes(mailboxes *mailboxes) {
    if (atomic_fetch_sub_explicit(&mailboxes->users, 1, memory_order_acq_rel) > 1)
        return;
    for (int32_t i = 0; i < mailboxes->size; i++)
        pthread_mutex_destroy(&mailboxes->boxes[i].lock);
    free(mailboxes);
}

static void local_free(hc_net *net) {
    leave_mailboxes(((local_net *)net)->mailboxes);
    free(net);
}

static const struct hc_net_ops local_ops = {
    .name = "local",
    .isend = local_isend,
    .irecv = local_irecv,
    .test = local_test,
    .cancel = local_cancel,
    .free = local_free,
};

int hc_local_net_new(int32_t n, hc_net **nets) {
    if (n < 1)
        return HC_INVALID;
    mailboxes *shared = calloc(1, sizeof *shared + (size_t)n * sizeof shared->boxes[0]);
    if (shared == NULL)
        return HC_NO_MEMORY;
    shared->size = n;
    for (int32_t i = 0; i < n; i++)
        pthread_mutex_init(&shared->boxes[i].lock, NULL);
    atomic_store(&shared->users, 1); /* this function holds one until all nets are made */
    int status = HC_OK;
    int32_t made = 0;
    for (; made < n; made++) {
        local_net *net = calloc(1, sizeof *net);
        if (net == NULL) {
            status = HC_NO_MEMORY;
            break;
        }
        atomic_fetch_add(&shared->users, 1);
        net->base = (hc_net){.ops = &local_ops, .rank = made, .size = n, .max_tag = INT32_MAX};
        net->mailboxes = shared;
        nets[made] = &net->base;
    }
    if (status != HC_OK)
        while (made > 0)
            local_free(nets[--made]);
    leave_mailboxes(shared);
    return status;
}
