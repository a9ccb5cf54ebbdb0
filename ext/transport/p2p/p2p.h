/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.h - point-to-point messages: bytes from one rank to another, outside of any agreement.
 *
 * Messages of one sender, receiver, set and tag are received in the order in which they were posted. A small one is
 * copied and finished at once, whether a receive is posted or not; a large one waits for its receive and then moves
 * through memory of fixed size. Only the driver calls these functions, and none of them waits.
 */
#pragma once

#include "transport/control/control.h"

typedef struct hc_p2p hc_p2p; /* per rank, for all its sets */
typedef struct hc_p2p_op hc_p2p_op;

enum hc_p2p_flag {                        /* of a receive */
                   HC_P2P_PROBE = 1,      /* waits for an unmatched message, describes it, and leaves it in the queue */
                   HC_P2P_PROBE_NOW = 2,  /* of a probe: ends at once; its peer is HC_ANY_PEER if there is no message */
                   HC_P2P_ANY_TAG = 4,    /* matches any tag; `tag` gets the message's */
                   HC_P2P_EXACT = 8,      /* a shorter message is an error, too */
                   HC_P2P_ALLOCATES = 16, /* takes any size: `data` becomes new memory from malloc() */
};
/* Messages of one context match no receive of another. FOLLOWS + n: a message that follows from an earlier one, as a
 * derivative does. n is twice the serial number of the earlier one where its receiver sends now, and one more where its
 * sender does. */
enum hc_p2p_context { HC_P2P_USER, HC_P2P_LIBRARY, HC_P2P_FOLLOWS };
#define HC_P2P_SERIAL_MAX ((UINT32_MAX - HC_P2P_FOLLOWS - 1) / 2)
#define HC_P2P_EAGER_MAX ((size_t)8 << 10) /* bytes of the largest eager message */
#define HC_NO_PEER (-2)                    /* MPI_PROC_NULL; the caller handles it: never pass it to hc_p2p_post() */

/* A send or a receive, in the caller's memory. The point-to-point layer owns it from hc_p2p_post() until hc_p2p_done()
 * or hc_p2p_withdraw() returns it. */
struct hc_p2p_op {
    uint8_t receives;
    uint8_t flags;     /* enum hc_p2p_flag */
    uint32_t context;  /* enum hc_p2p_context */
    uint32_t set, tag; /* set: hc_set_wire() */
    int32_t peer;      /* World rank; HC_ANY_PEER in a receive becomes the sender */
    void *data;        /* a send reads it, a receive writes it */
    uint64_t bytes;
    uint64_t type;         /* of hc_p2p_name_type(); must equal the partner's; 0: unknown, matches all */
    const char *type_name; /* its name; NULL: its dtype's */
    void *owner;           /* for the caller */

    /* MISMATCH: the message has another type; RESULT_SIZE: it does not fit; NO_MEMORY. In all three nothing was
     * written. */
    int status;
    uint64_t received; /* receive: bytes of the message */
    uint64_t came;     /* receive: type of the message */
    uint32_t serial;   /* number of the message, from 1: at its sender, among all that it has sent */

    /* for the point-to-point layer */
    hc_p2p_op *next;
    struct hc__p2p_queue *queue; /* its queue */
    struct hc__bundle *path;     /* over the net */
    uint64_t moved;
    uint64_t source, withdrawn;   /* receive: of hc__p2p_source; 0: the bytes are not read in the sender's memory */
    uint32_t number, peer_number; /* the operation's number on this rank, on the peer */
};

/* Sets the type of a message's elements: this dtype, or the type called `name`, as "<M8[s]"; "": unknown. The name is
 * borrowed as long as the operation lives. */
void hc_p2p_name_type(hc_p2p_op *, int dtype, const char *name);
#define HC_P2P_TYPE_TEXT 48
const char *hc_p2p_type_text(uint64_t type, char text[HC_P2P_TYPE_TEXT]); /* for an error */

/* `local_of` as for hc_control_new(); node control segment, net (NULL: one node) and control are borrowed. */
int hc_p2p_new(hc_node_control *, hc_net *, hc_control *, const int32_t *local_of, int32_t rank, int32_t size,
               hc_p2p **);
/* For a World in which no thread moves messages after a call returns; call it before the first operation. A small send
 * then ends when it has left the process, and a send without room is not started. Otherwise both wait in process
 * memory. */
void hc_p2p_hold(hc_p2p *);
/* After a status below 0 the caller still owns the operation. */
int hc_p2p_post(hc_p2p *, hc_p2p_op *);
/* The reader of the control edges passes each message here. 1: it was for this layer. */
int hc_p2p_message(hc_p2p *, int32_t peer, const uint8_t *bytes, size_t nbytes);
int hc_p2p_progress(hc_p2p *);        /* enum hc_progress (never DONE), or a status: the World is then broken */
hc_p2p_op *hc_p2p_done(hc_p2p *);     /* the next finished operation, or NULL */
int hc_p2p_is_moving(const hc_p2p *); /* 1: data is in flight: call progress soon; 0: only a message brings progress */
/* 1: the caller owns the operation again; 0: it is finished, or its data moves and it will finish. */
int hc_p2p_withdraw(hc_p2p *, hc_p2p_op *);
void hc_p2p_forget(hc_p2p *, uint32_t set); /* drops the set's unmatched messages */
void hc_p2p_abandon(hc_p2p *);              /* after a failure: the callers own all operations again */
void hc_p2p_free(hc_p2p *);
