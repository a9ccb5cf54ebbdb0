/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h - the contract of a network: point-to-point bytes between ranks. mpi.c, ucx.c and local.c implement it.
 */
#ifndef HC_NET_H
#define HC_NET_H

#include "core/hc.h"
#include "transport/progress.h"

/* What a calling thread must be within, as a device's context. */
typedef struct hc_scope {
    void *(*enter)(void *of); /* returns what leave() is given */
    void (*leave)(void *of, void *before);
    void *of;
} hc_scope;

/* Ranks are the World's. Messages between two ranks with one tag are matched in order. Any size up to
 * 2^63-1 (cut inside where the library counts in int). Buffers belong to the net until test says so. */
#define HC_NET_VERSION 7 /* of struct hc_net: extensions that are built apart compare it */
typedef struct hc_net hc_net;
typedef struct hc_net_request hc_net_request;
struct hc_net {
    const struct hc_net_ops *ops;
    int32_t rank, size;
    int32_t max_tag;
    int64_t message_bytes; /* longer messages are best cut to this (by the caller, on both sides); 0: never */
    hc_counter sent_messages, sent_bytes, received_bytes; /* counted by the implementation, payload only */
    uint8_t abandoned; /* set by the loop: the World is broken, free() must not wait for the others */
    uint32_t dead;    /* likewise: one more than the rank that was found to be silent, which free() does not wait for */
    const char *text; /* the library's own words about the last failure, or NULL */
    uint32_t lost;    /* one more than the rank that the last failure PEER_LOST is about; 0: it is not known */
    const uint8_t *lost_peers; /* per rank: its connection was lost; NULL: this net cannot tell (MPI) */
};
#define HC_ANY_PEER (-1)
struct hc_net_ops {
    const char *name;
    int (*isend)(hc_net *, int32_t peer, int32_t tag, const void *, size_t bytes, hc_net_request **);
    int (*irecv)(hc_net *, int32_t peer, int32_t tag, void *, size_t room, hc_net_request **);
    /* HC_DONE frees the request, sets *req to NULL and, for a receive, *bytes and *peer (both may be NULL).
     * A message longer than `room` is TRANSPORT. */
    int (*test)(hc_net *, hc_net_request **req, size_t *bytes, int32_t *peer);
    /* Best effort: the buffer may not be touched after this returns OK. */
    int (*cancel)(hc_net *, hc_net_request **req);
    /* NULL where nothing has to be done for memory that the net's library copies only within a scope of the calling
     * thread (a device's context). Else from now on every call of the library is made within `scope`, which is copied;
     * NULL ends that. Several users give the same scope: it holds until each of them has ended it. */
    void (*surround)(hc_net *, const hc_scope *scope);
    void (*free)(hc_net *);
};
/* What a capsule "hpccoll.net" of Python points to. The capsule owns both. */
typedef struct hc_net_box {
    int version; /* HC_NET_VERSION, as the maker's compiler saw it */
    hc_net *net;
} hc_net_box;
/* Tags: 256 per set. The last ones are fixed, the others are for the algorithms. */
#define HC_TAGS_PER_SET 256
#define HC_TAG_CONTROL 255
#define HC_TAG_P2P 254

#endif
