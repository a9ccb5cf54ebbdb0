/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_parts.h - the state of the net over UCX, private to ucx*.c.
 */
#pragma once

#include "transport/net/ucx_api.h"
#include "transport/net/ucx_calls.h"
#include "transport/net/ucx_net.h"

#include <sys/types.h>

/* The functions of the open library. */
typedef struct hc__ucx_functions {
#define POINTER(result, name, arguments) result(*name) arguments;
    HC_UCX_CALLS(POINTER)
#undef POINTER
} hc__ucx_functions;
extern hc__ucx_functions hc__ucx;

/* The 64 bits of a tag: the generation of the net, the rank that sends, the tag of the message. */
#define HC__UCX_SOURCE 24
#define HC__UCX_GENERATION 48
#define HC__UCX_RANKS (1 << (HC__UCX_GENERATION - HC__UCX_SOURCE))
#define HC__UCX_TAG_MASK (((ucp_tag_t)1 << HC__UCX_SOURCE) - 1)
#define HC__UCX_SOURCE_MASK ((ucp_tag_t)(HC__UCX_RANKS - 1) << HC__UCX_SOURCE)
enum { /* the net's private tags; its users have the tags below */
       HC__UCX_GOODBYE = 0xFFFF00,
       HC__UCX_ENTERED = 0xFFFF40, /* + round of the barrier: all ranks are closing the net */
       HC__UCX_LEFT = 0xFFFF80     /* + round of the barrier: no rank needs another message */
};

/* A message in flight, in the net's unordered list of all. */
struct hc_net_request {
    struct hc__ucx_net *net;
    void *handle; /* UCX's request; NULL: UCX has ended it */
    int status;   /* HC_IDLE until it is complete */
    int32_t peer; /* HC_ANY_PEER: not yet known */
    int32_t lost; /* if a loss ended it: the lost rank */
    uint32_t asked;
    size_t bytes;
    uint8_t receives, is_any;
    uint8_t abandoned; /* no caller has it; it is freed when UCX ends it */
    hc_net_request *before, *next;
};

typedef struct hc__ucx_peer {
    struct hc__ucx_net *net;
    ucp_ep_h endpoint; /* NULL: not connected yet, or closed */
    const ucp_address_t *address;
    ucs_status_t error; /* UCX's status of the connection */
    uint8_t failed;     /* the connection has ended; not handled yet */
    uint8_t received_goodbye, sent_goodbye;
    uint8_t closed; /* by this rank */
} hc__ucx_peer;

typedef struct hc__ucx_net {
    hc_net base;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    char *addresses; /* of all ranks, concatenated */
    hc__ucx_peer *peers;
    uint8_t *lost; /* a byte per rank */
    int32_t first_lost;
    ucp_tag_t generation; /* shifted to its place in a tag */
    uint32_t sweep;
    uint8_t news; /* some peer has `failed` */
    uint8_t ending;
    hc_net_request *alive;   /* the list of requests that UCX works on or whose callers have not seen their end */
    hc_net_request *unused;  /* free list */
    hc_net_request *goodbye; /* the receive of goodbyes */
    char text[200];
    pid_t owner; /* a forked child has a copy of the net, but must not use it */
} hc__ucx_net;

/* ---- ucx_messages.c -------------------------------------------------------------------------------------- */

double hc__ucx_seconds(void);
/* As isend and irecv of a net, but for any tag, and not counted. */
int hc__ucx_send(hc__ucx_net *, int32_t peer, int32_t tag, const void *, size_t bytes, hc_net_request **);
int hc__ucx_receive(hc__ucx_net *, int32_t peer, int32_t tag, void *, size_t room, hc_net_request **);
/* Calls UCX's progress once, then handles connections that have ended. */
void hc__ucx_look(hc__ucx_net *);
void hc__ucx_give_back(hc__ucx_net *, hc_net_request *);
/* Sets the net's text and lost rank to the peer; returns HC_PEER_LOST. */
int hc__ucx_fail_of_loss(hc__ucx_net *, int32_t peer);
/* Posts a receive for goodbyes, and reads those that have arrived. */
int hc__ucx_expect_goodbyes(hc__ucx_net *);
/* Starts to close; returns UCX's request, or NULL if it is done. `flags`: UCP_EP_CLOSE_FLAG_FORCE, or 0: after all
 * sends. */
void *hc__ucx_begin_to_close(hc__ucx_peer *, uint32_t flags);
/* Waits for that request, until `limit`. */
void hc__ucx_finish_closing(hc__ucx_net *, void *handle, double limit);
/* Ends a connection at once, and all sends on it. */
void hc__ucx_close_by_force(hc__ucx_net *, int32_t peer);

/* ---- ucx_end.c ------------------------------------------------------------------------------------------- */

/* Withdraws a request: cancels an unmatched receive, or closes the connection of a message in flight. HC_OK;
 * HC_TRANSPORT: UCX still works on it. The caller must not use the request again in either case. */
int hc__ucx_withdraw(hc__ucx_net *, hc_net_request *);
void hc__ucx_free(hc_net *);
