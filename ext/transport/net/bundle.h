/* SPDX-License-Identifier: Apache-2.0
 *
 * bundle.h - the messages of one round of an algorithm, posted and tested together.
 */
#pragma once

#include "transport/net/net.h"

#define HC__WINDOW 8

/* One message, sent in pieces of net->message_bytes, a window of them at a time. */
typedef struct hc__flight {
    int32_t peer, tag;
    uint8_t receives;
    char *data;
    int64_t bytes, posted, arrived;
    int64_t *length; /* of a message that may be shorter than `bytes`: where its length goes; else NULL */
    hc_net_request *pieces[HC__WINDOW]; /* posted and not arrived: number i at i % HC__WINDOW */
} hc__flight;

typedef struct hc__bundle {
    hc_net *net;
    hc__flight *flights; /* in the order in which they were added */
    int32_t n, room;
    uint8_t stuck; /* a request could not be cancelled: the buffers may still be read or written */
    uint8_t held;  /* nothing is posted before hc__bundle_release() */
    uint8_t whole; /* messages are not cut: small pieces would make the library move device memory through the host */
} hc__bundle;

/* Messages of 0 bytes are not sent at all (both sides know the lengths). */
int hc__bundle_send(hc__bundle *, int32_t peer, int32_t tag, const void *, int64_t bytes);
int hc__bundle_receive(hc__bundle *, int32_t peer, int32_t tag, void *, int64_t bytes);
/* Receives a message of at most `most` bytes, and sets *length when it has come. Such a message is never cut, so `most`
 * must not exceed net->message_bytes, and the sender sends at least one byte. */
int hc__bundle_receive_most(hc__bundle *, int32_t peer, int32_t tag, void *, int64_t most, int64_t *length);
int hc__bundle_release(hc__bundle *);
int hc__bundle_test(hc__bundle *); /* HC_DONE: nothing is in flight */
void hc__bundle_cancel(hc__bundle *);
void hc__bundle_free(hc__bundle *);
