/* SPDX-License-Identifier: Apache-2.0
 *
 * net_contract.h - what every hc_net must do; run by each rank, over the local net's threads and over MPI.
 */
#ifndef HC_NET_CONTRACT_H
#define HC_NET_CONTRACT_H

#include "transport/net_threads.h"

#define NEVER 40 /* seconds, less than who started the program waits for it */

static inline void finish(hc_net *net, hc_net_request **req, size_t *bytes, int32_t *peer) {
    int status;
    int64_t begun = own_seconds();
    while ((status = net->ops->test(net, req, bytes, peer)) == HC_IDLE || status == HC_MOVED) {
        CHECK(own_seconds() - begun < NEVER, "a message never arrives");
        sched_yield();
    }
    CHECK(status == HC_DONE && *req == NULL, "test: %s", hc_status_name(status));
}

static inline hc_net_request *give(hc_net *net, int32_t peer, int32_t tag, const void *data, size_t bytes) {
    hc_net_request *req = NULL;
    int status = net->ops->isend(net, peer, tag, data, bytes, &req);
    CHECK(status == HC_OK, "isend: %s", hc_status_name(status));
    return req;
}

static inline hc_net_request *ask(hc_net *net, int32_t peer, int32_t tag, void *data, size_t room) {
    hc_net_request *req = NULL;
    int status = net->ops->irecv(net, peer, tag, data, room, &req);
    CHECK(status == HC_OK, "irecv: %s", hc_status_name(status));
    return req;
}

/* Messages of all lengths around a ring, to myself too when I am alone; shorter ones than the room are fine. */
static inline void check_lengths(hc_net *net) {
    static const size_t lengths[] = {0, 1, 7, 4096, 65537, 3 << 20};
    int32_t right = (net->rank + 1) % net->size, left = (net->rank + net->size - 1) % net->size;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i], bytes = 99;
        int32_t peer = -5;
        char *out = malloc(n + 1), *in = calloc(n + 9, 1);
        memset(out, (int)('a' + net->rank % 26), n);
        hc_net_request *receive = ask(net, left, 5, in, n + 8), *send = give(net, right, 5, out, n);
        finish(net, &receive, &bytes, &peer);
        finish(net, &send, NULL, NULL);
        CHECK(bytes == n && peer == left, "%zu bytes from %d", bytes, peer);
        for (size_t j = 0; j < n; j++)
            CHECK(in[j] == 'a' + left % 26, "byte %zu", j);
        free(out);
        free(in);
    }
}

/* Many messages at once on few tags: order is kept between two ranks on one tag, whatever the tags between. */
static inline void check_order(hc_net *net) {
    enum { MANY = 60 };
    int32_t right = (net->rank + 1) % net->size, left = (net->rank + net->size - 1) % net->size;
    int64_t out[MANY], in[MANY];
    hc_net_request *sends[MANY], *receives[MANY];
    for (int i = 0; i < MANY; i++) {
        out[i] = i * 1000 + net->rank;
        sends[i] = give(net, right, 10 + i % 3, &out[i], 8);
    }
    for (int i = MANY - 1; i >= 0; i--) /* tag by tag in order, the tags themselves backwards */
        receives[i] = NULL;
    for (int tag = 2; tag >= 0; tag--)
        for (int i = tag; i < MANY; i += 3)
            receives[i] = ask(net, left, 10 + tag, &in[i], 8);
    for (int i = MANY - 1; i >= 0; i--) {
        finish(net, &receives[i], NULL, NULL);
        finish(net, &sends[i], NULL, NULL);
        CHECK(in[i] == i * 1000 + left, "message %d overtook another", i);
    }
}

/* Rank 0 hears everybody through one receive after the other from any peer. */
static inline void check_any_peer(hc_net *net) {
    int32_t value = net->rank * 7, got = 0, peer = -1, heard = 0;
    size_t bytes = 0;
    if (net->rank > 0) {
        hc_net_request *send = give(net, 0, HC_TAG_CONTROL, &value, 4);
        finish(net, &send, NULL, NULL);
        return;
    }
    for (int32_t i = 1; i < net->size; i++) {
        hc_net_request *receive = ask(net, HC_ANY_PEER, HC_TAG_CONTROL, &got, 4);
        finish(net, &receive, &bytes, &peer);
        CHECK(bytes == 4 && got == peer * 7, "%d from %d", got, peer);
        heard += peer;
    }
    CHECK(heard == net->size * (net->size - 1) / 2, "somebody was heard twice");
}

/* A receive that nothing came for can be withdrawn, and its buffer is left alone. */
static inline void check_cancel(hc_net *net) {
    int64_t never = 42, value = net->rank, got = -1;
    hc_net_request *receive = ask(net, net->rank, 20, &never, 8);
    CHECK(net->ops->test(net, &receive, NULL, NULL) == HC_IDLE, "nothing was sent");
    CHECK(net->ops->cancel(net, &receive) == HC_OK && receive == NULL, "cancel");
    hc_net_request *again = ask(net, net->rank, 20, &got, 8), *send = give(net, net->rank, 20, &value, 8);
    finish(net, &again, NULL, NULL);
    finish(net, &send, NULL, NULL);
    CHECK(never == 42 && got == net->rank, "a cancelled receive took a message");
}

static inline void check_arguments(hc_net *net) {
    hc_net_request *req = NULL;
    char byte = 0;
    CHECK(net->max_tag >= 127 * HC_TAGS_PER_SET - 1, "max_tag %d", net->max_tag);
    CHECK(net->ops->isend(net, net->size, 1, &byte, 1, &req) == HC_INVALID, "no such rank");
    CHECK(net->ops->isend(net, HC_ANY_PEER, 1, &byte, 1, &req) == HC_INVALID, "no such rank");
    CHECK(net->ops->irecv(net, -2, 1, &byte, 1, &req) == HC_INVALID, "no such rank");
    CHECK(net->ops->irecv(net, 0, -1, &byte, 1, &req) == HC_INVALID, "no such tag");
}

/* A message longer than its room is an error of the receive; the rest of the net goes on. */
static inline void check_too_long(hc_net *net) {
    char out[64] = {0}, in[8];
    int32_t right = (net->rank + 1) % net->size, left = (net->rank + net->size - 1) % net->size;
    hc_net_request *receive = ask(net, left, 30, in, sizeof in), *send = give(net, right, 30, out, sizeof out);
    int status = HC_IDLE;
    while (status >= 0 && status != HC_DONE) {
        status = net->ops->test(net, &receive, NULL, NULL);
        sched_yield();
    }
    CHECK(status == HC_TRANSPORT && receive == NULL, "too long: %s", hc_status_name(status));
    finish(net, &send, NULL, NULL);
}

static inline void check_net(hc_net *net) {
    uint64_t before = net->sent_bytes, messages = net->sent_messages;
    check_arguments(net);
    check_lengths(net);
    check_order(net);
    check_any_peer(net);
    check_cancel(net);
    CHECK(net->sent_messages - messages == 6 + 60 + (net->rank > 0) + 1, "messages are counted");
    CHECK(net->sent_bytes - before == 1 + 7 + 4096 + 65537 + (3 << 20) + 480 + 8 + 4 * (uint64_t)(net->rank > 0),
          "bytes are counted");
}

#endif
