/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what mail.c (who meets whom) and mail_ways.c (how the bytes go) tell each other.
 * (Private to ext/transport.)
 */
#ifndef HC_MAIL_ROOM_H
#define HC_MAIL_ROOM_H

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

/* The head of each message of the mail. */
typedef struct hc__slip {
    uint8_t mark, kind;
    uint16_t cell;
    uint32_t set, tag;
    uint32_t to, from; /* numbers of the letter: at the reader of this slip, at its writer */
    uint32_t unused;
    uint64_t bytes;
} hc__slip;

typedef struct hc__pile {
    hc_letter *first, *last;
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

struct hc_mail {
    hc_home *home;
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

void hc__pile_add(hc__pile *, hc_letter *);
void hc__pile_take(hc_letter *); /* out of the pile where it is */
void hc__letter_finish(hc_mail *, hc_letter *, int status);
/* Sends a slip and `content`; to this rank itself by a call. */
int hc__mail_tell(hc_mail *, int32_t peer, const hc__slip *, const void *content);

int hc__send_bytes(hc_mail *, hc_letter *); /* of the pile `sending` */
int hc__land_bytes(hc_mail *, hc_letter *); /* of the pile `landing` */
int hc__cell_arrived(hc_mail *, int32_t peer, const hc__slip *, hc_letter *receive);
void hc__way_close(hc_letter *);

#endif
