/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h - the contract of a network: point-to-point bytes between ranks. mpi.c, ucx.c and local.c implement it.
 */
#pragma once

#include "core/hc.h"
#include "transport/progress.h"

/* A scope that a calling thread must enter, such as a device's context. */
typedef struct hc_scope {
    void *(*enter)(void *of); /* returns `before` for leave() */
    void (*leave)(void *of, void *before);
    void *of;
} hc_scope;

/* Ranks are World ranks. Messages between two ranks with one tag are matched in order. A message may have up to 2^63-1
 * bytes. Buffers belong to the net until test gives HC_DONE or an error. */
#define HC_NET_VERSION 7 /* of struct hc_net: separately built extensions compare it */
typedef struct hc_net hc_net;
typedef struct hc_net_request hc_net_request;
struct hc_net {
    const struct hc_net_ops *ops;
    int32_t rank, size;
    int32_t max_tag;
    int64_t message_bytes; /* the caller should cut longer messages to this, on both sides; 0: no limit */
    hc_counter sent_messages, sent_bytes, received_bytes; /* counted by the implementation, payload only */
    uint8_t abandoned;         /* set by the loop: the World is broken, so free() must not wait for other ranks */
    uint32_t dead;             /* set by the loop: 1 + the silent rank, for which free() must not wait; 0: none */
    const char *text;          /* the library's text of the last failure, or NULL */
    uint32_t lost;             /* 1 + the rank of the last failure PEER_LOST; 0: unknown */
    const uint8_t *lost_peers; /* per rank: its connection was lost; NULL: this net cannot tell (MPI) */
};
#define HC_ANY_PEER (-1)
struct hc_net_ops {
    const char *name;
    int (*isend)(hc_net *, int32_t peer, int32_t tag, const void *, size_t bytes, hc_net_request **);
    int (*irecv)(hc_net *, int32_t peer, int32_t tag, void *, size_t room, hc_net_request **);
    /* HC_DONE frees the request, sets *req to NULL and, for a receive, *bytes and *peer (both may be NULL). A message
     * longer than `room` gives TRANSPORT. The first test of a request may be IDLE without a poll of the network. */
    int (*test)(hc_net *, hc_net_request **req, size_t *bytes, int32_t *peer);
    /* Best effort: after OK the net does not touch the buffer any more. */
    int (*cancel)(hc_net *, hc_net_request **req);
    /* Sets the scope (a device's context) in which every call of the net's library is made from now on; it is copied.
     * NULL ends it. Several users may set the same scope; it holds until each of them has ended it. The function is
     * NULL if the library needs no scope. */
    void (*surround)(hc_net *, const hc_scope *scope);
    void (*free)(hc_net *);
};
/* The content of a Python capsule "hpccoll.net", which owns the struct and the net. */
typedef struct hc_net_box {
    int version; /* HC_NET_VERSION in the maker's build */
    hc_net *net;
} hc_net_box;
/* A set has 256 tags. The last ones are fixed, the others are for the algorithms. */
#define HC_TAGS_PER_SET 256
#define HC_TAG_CONTROL 255
#define HC_TAG_P2P 254
