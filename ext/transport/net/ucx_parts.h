/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_parts.h - the net over UCX, as its files share it.
 */
#ifndef HC_UCX_PARTS_H
#define HC_UCX_PARTS_H

#include "transport/net/ucx_api.h"
#include "transport/net/ucx_calls.h"
#include "transport/net/ucx_net.h"

#include <sys/types.h>

/* The functions of the library that is open. */
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
enum { /* the tags that the net keeps to itself; those below are its users' */
       HC__UCX_GOODBYE = 0xFFFF00,
       HC__UCX_ENTERED = 0xFFFF40, /* and a round of the barrier: all ranks have begun to close the net */
       HC__UCX_LEFT = 0xFFFF80     /* likewise: nobody needs a message any more */
};

/* A message under way; the first of a list of all, in no order, hangs in its net. */
struct hc_net_request {
    struct hc__ucx_net *net;
    void *handle; /* UCX's request; NULL: UCX has ended it */
    int status;   /* HC_IDLE until it is complete */
    int32_t peer; /* HC_ANY_PEER: not yet known */
    int32_t lost; /* of one that a loss ended: the rank that is lost */
    uint32_t asked;
    size_t bytes;
    uint8_t receives, is_any;
    uint8_t abandoned; /* nobody asks about it any more: it is freed when UCX ends it */
    hc_net_request *before, *next;
};

typedef struct hc__ucx_peer {
    struct hc__ucx_net *net;
    ucp_ep_h endpoint; /* NULL: not connected yet, or closed */
    const ucp_address_t *address;
    ucs_status_t error; /* what UCX said of the connection */
    uint8_t failed;     /* the connection has ended, and this is not dealt with yet */
    uint8_t said_goodbye, told_goodbye;
    uint8_t closed; /* by this rank */
} hc__ucx_peer;

typedef struct hc__ucx_net {
    hc_net base;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    char *addresses; /* of all ranks, one behind the other */
    hc__ucx_peer *peers;
    uint8_t *lost; /* a byte per rank */
    int32_t first_lost;
    ucp_tag_t generation; /* in its place in a tag */
    uint32_t sweep;
    uint8_t news; /* some peer has `failed` */
    uint8_t ending;
    hc_net_request *alive;   /* the first of all that UCX works on or that nobody has asked about yet */
    hc_net_request *unused;  /* free list */
    hc_net_request *goodbye; /* the receive of goodbyes */
    char text[200];
    pid_t owner; /* a forked child has a copy of this, but no part in it */
} hc__ucx_net;

/* ---- ucx_messages.c -------------------------------------------------------------------------------------- */

double hc__ucx_seconds(void);
/* As isend and irecv of a net, for any tag and without the count. */
int hc__ucx_send(hc__ucx_net *, int32_t peer, int32_t tag, const void *, size_t bytes, hc_net_request **);
int hc__ucx_receive(hc__ucx_net *, int32_t peer, int32_t tag, void *, size_t room, hc_net_request **);
/* One call of UCX, and what follows from what it said of connections. */
void hc__ucx_look(hc__ucx_net *);
void hc__ucx_give_back(hc__ucx_net *, hc_net_request *);
/* The net's text and failed rank say what became of a peer; HC_PEER_LOST. */
int hc__ucx_fail_of_loss(hc__ucx_net *, int32_t peer);
/* Waits for goodbyes from now on, and reads those that have come. */
int hc__ucx_expect_goodbyes(hc__ucx_net *);
/* UCX's request, NULL when it is done already. `flags`: UCP_EP_CLOSE_FLAG_FORCE, or 0: when all has been sent. */
void *hc__ucx_begin_to_close(hc__ucx_peer *, uint32_t flags);
/* Waits for it, until `limit`. */
void hc__ucx_finish_closing(hc__ucx_net *, void *handle, double limit);
/* Ends a connection at once, and all sends on it. */
void hc__ucx_close_by_force(hc__ucx_net *, int32_t peer);

/* ---- ucx_end.c ------------------------------------------------------------------------------------------- */

/* Withdraws a request: a receive that nothing has matched ends by itself, what is under way by closing its connection.
 * HC_OK, or HC_TRANSPORT where UCX still works on it. The caller's part of it has ended in any case. */
int hc__ucx_withdraw(hc__ucx_net *, hc_net_request *);
void hc__ucx_free(hc_net *);

#endif
