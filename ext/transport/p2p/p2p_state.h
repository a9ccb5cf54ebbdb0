/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_state.h - the header on the wire, the queues and the state of the point-to-point layer. (Private to
 * ext/transport/p2p.)
 */
#pragma once

#include "transport/control/control.h"
#include "transport/arithmetic.h"
#include "transport/net/bundle.h"
#include "transport/p2p/p2p.h"

#define HC__P2P_MARK 0xA7 /* differs from the first byte of the engine's messages, their version */
#define HC__P2P_CREDIT_MAX ((uint64_t)512 << 10)

/* The kinds of headers. */
enum hc__p2p_kind {
    HC__P2P_EAGER = 1, /* sender: a message, its bytes follow */
    HC__P2P_RTS,       /* sender: request to send; the bytes wait for the CTS */
    HC__P2P_CTS,       /* receiver: clear to send */
    HC__P2P_FIN,       /* receiver: the receive has ended, send nothing */
    HC__P2P_CELL,      /* sender: the next bytes are in a cell of the control segment */
    HC__P2P_RNDV,      /* sender: the bytes follow over the net, after those of earlier messages */
    HC__P2P_GONE,      /* sender: the cleared message was withdrawn */
    HC__P2P_CREDIT,    /* receiver: the number of bytes of eager messages that were received */
    HC__P2P_IN_CELL    /* sender: an eager message, whose bytes are in a cell */
};

/* The head of each message that the layer sends on the control edges. */
typedef struct hc__p2p_header {
    uint8_t mark, kind;
    uint16_t cell;
    uint32_t set, tag;
    /* Numbers of the operation: on the reader of this header, on its writer. In the first header of a message (EAGER,
     * IN_CELL, RTS) `to` is its serial number. */
    uint32_t to, from;
    uint32_t context; /* enum hc_p2p_context */
    uint64_t bytes;
    uint64_t type; /* hc_p2p_name_type() */
} hc__p2p_header;

/* Follows the header of an RTS: the address of the bytes in the sender's memory. It is valid while the sender's count
 * of withdrawn sends is unchanged. */
typedef struct hc__p2p_source {
    uint64_t address, withdrawn;
} hc__p2p_source;

typedef struct hc__p2p_queue {
    hc_p2p_op *first, *last;
} hc__p2p_queue;

/* A message that arrived before its receive was posted, with the content after its header. */
typedef struct hc__p2p_unexpected {
    struct hc__p2p_unexpected *next;
    hc__p2p_header header;
    int32_t peer;
    uint8_t content[];
} hc__p2p_unexpected;

/* Bytes of eager messages between this rank and a peer. */
typedef struct hc__p2p_credit {
    uint64_t used; /* sent to it and not yet reported as received */
    uint64_t owed; /* received from it and not yet reported */
} hc__p2p_credit;

typedef struct hc__p2p_queues {
    hc__p2p_queue open;      /* receives without a message */
    hc__p2p_queue held;      /* sends that wait for room; their peers do not know them */
    hc__p2p_queue leaving;   /* sends that end when all bytes to their peers have left this process */
    hc__p2p_queue announced; /* sends whose RTS is sent */
    hc__p2p_queue cleared;   /* receives whose CTS is sent */
    hc__p2p_queue receiving; /* receives that read the sender's memory, or receive over the net */
    hc__p2p_queue sending;   /* sends whose bytes move */
    hc__p2p_queue done;
} hc__p2p_queues;

struct hc_p2p {
    hc_node_control *node_control;
    hc_net *net;
    hc_control *control;
    int32_t *local_of, rank, size, local, local_size;
    uint32_t numbers, serials;
    uint8_t abandoned, holds;
    hc__p2p_credit *credits; /* by World rank */
    hc__p2p_unexpected *unexpected, **last_unexpected;
    hc__p2p_queues queues;
    uint8_t *message; /* room for a header and an eager message */
    /* Reads a header that this rank sends to itself. */
    int (*read)(hc_p2p *, int32_t peer, const hc__p2p_header *, const void *content);
};

/* ---- queues.c: operations from queue to queue, and headers out -------------------------------------- */

void hc__p2p_queue_add(hc__p2p_queue *, hc_p2p_op *);
void hc__p2p_queue_remove(hc_p2p_op *);                                              /* from its queue */
hc_p2p_op *hc__p2p_queue_find(const hc__p2p_queue *, int32_t peer, uint32_t number); /* or NULL */
void hc__p2p_finish(hc_p2p *, hc_p2p_op *, int status);
void hc__p2p_close_path(hc_p2p_op *); /* cancels its messages in flight over the net */
/* The bytes that follow the header: an eager message, or hc__p2p_source. */
size_t hc__p2p_content_bytes(const hc__p2p_header *);
/* Sends a header and its content to a peer or to this rank itself. */
int hc__p2p_send_header(hc_p2p *, int32_t peer, const hc__p2p_header *, const void *content);
int hc__p2p_clear(hc_p2p *, hc_p2p_op *receive); /* sends the CTS; the receive is in no queue */

/* ---- match.c: receives and messages, in order -------------------------------------------------------- */

int hc__p2p_post_receive(hc_p2p *, hc_p2p_op *);
/* Passes an EAGER or RTS header to its receive, or keeps it until that is posted. */
int hc__p2p_match(hc_p2p *, int32_t peer, const hc__p2p_header *, const void *content);
/* Drops the message at *link, and returns the credit to its sender. */
void hc__p2p_drop_unexpected(hc_p2p *, hc__p2p_unexpected **link);

/* ---- paths.c: moves the bytes of a large message ----------------------------------------------------- */

int hc__p2p_send_bytes(hc_p2p *, hc_p2p_op *);    /* an operation of `sending` */
int hc__p2p_receive_bytes(hc_p2p *, hc_p2p_op *); /* an operation of `receiving` */
/* The bytes of a header's cell; NULL: no such cell. hc__p2p_cell_read() returns the cell to its owner. */
const uint8_t *hc__p2p_cell(hc_p2p *, int32_t peer, const hc__p2p_header *);
void hc__p2p_cell_read(hc_p2p *, int32_t peer, const hc__p2p_header *);
int hc__p2p_read_cell(hc_p2p *, int32_t peer, const hc__p2p_header *, hc_p2p_op *receive);
