/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what point-to-point.c (who meets whom) and mail_ways.c (how the bytes go) tell each other.
 * (Private to ext/transport.)
 */
#ifndef HC_P2P_INTERNAL_H
#define HC_P2P_INTERNAL_H

#include "transport/shm/cells.h"
#include "transport/shm/control_segment.h"
#include "transport/p2p/p2p.h"
#include "transport/net/algorithms.h"

#define HC__SLIP_MARK 0xA7 /* the engine's messages begin with another byte, its version */

enum hc__slip_kind {
    HC__WHOLE = 1, /* sender: a message, its bytes follow */
    HC__OFFER,     /* sender: a message is here, its bytes wait for a receive */
    HC__GRANT,     /* receiver: send them */
    HC__TAKEN,     /* receiver: they need not be sent any more */
    HC__CELL,      /* sender: the next bytes are in a cell */
    HC__FLIGHT,    /* sender: the bytes come over the net, after those of earlier flights to you */
    HC__GONE,      /* sender: what you granted was withdrawn */
    HC__CREDIT     /* receiver: so many bytes of whole messages were received */
};

/* The head of each message of the point-to-point layer. */
typedef struct hc__slip {
    uint8_t mark, kind;
    uint16_t cell;
    uint32_t set, tag;
    uint32_t to, from; /* numbers of the message: at the reader of this slip, at its writer */
    uint32_t unused;
    uint64_t bytes;
} hc__slip;

typedef struct hc__pile {
    hc_p2p_op *first, *last;
} hc__pile;

/* A message that came before its receive was posted. */
typedef struct hc__arrival {
    struct hc__arrival *next;
    hc__slip slip;
    int32_t peer;
    uint8_t content[];
} hc__arrival;

/* Bytes of whole messages that a peer has not yet received. */
typedef struct hc__account {
    uint64_t lent, owed; /* by me to it; by it to me, and not yet said */
} hc__account;

struct hc_p2p {
    hc_node_control *node_control;
    hc_net *net;
    hc_control *control;
    int32_t *local_of, rank, size, local_size;
    uint32_t numbers;
    uint8_t abandoned;
    hc__account *accounts;
    hc__arrival *arrived, **last_arrived;
    hc__pile open;    /* receives that nothing has come for */
    hc__pile offered; /* sends that wait for their receives */
    hc__pile granted; /* receives whose bytes will come */
    hc__pile landing; /* receives whose bytes come over the net */
    hc__pile sending; /* sends whose bytes move */
    hc__pile done;
    uint8_t *message; /* room for a slip and a whole message */
};

void hc__pile_add(hc__pile *, hc_p2p_op *);
void hc__pile_take(hc_p2p_op *); /* out of the pile where it is */
void hc__p2p_finish(hc_p2p *, hc_p2p_op *, int status);
/* Sends a slip and `content`; to this rank itself by a call. */
int hc__p2p_tell(hc_p2p *, int32_t peer, const hc__slip *, const void *content);

int hc__send_bytes(hc_p2p *, hc_p2p_op *); /* of the pile `sending` */
int hc__land_bytes(hc_p2p *, hc_p2p_op *); /* of the pile `landing` */
int hc__cell_arrived(hc_p2p *, int32_t peer, const hc__slip *, hc_p2p_op *receive);
void hc__way_close(hc_p2p_op *);

#endif
