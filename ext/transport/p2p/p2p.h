/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.h - point-to-point messages: bytes from one rank to another, outside of any agreement.
 *
 * Messages of one sender, receiver, set and tag are received in the order in which they were posted. A small one is
 * copied and finished at once, whether a receive is posted or not; a large one waits for its receive and then moves
 * through memory of fixed size. As everywhere in ext/transport the driver calls, and nothing here waits.
 */
#ifndef HC_P2P_H
#define HC_P2P_H

#include "transport/control/control.h"

typedef struct hc_p2p hc_p2p; /* one rank's, for all its sets */
typedef struct hc_p2p_op hc_p2p_op;

enum hc_p2p_flag { /* of a receive */
                   HC_P2P_PROBE =
                       1, /* waits for a message that no receive has taken, describes it, and leaves it there */
                   HC_P2P_PROBE_NOW = 2,  /* of a probe: ends at once; its peer is HC_ANY_PEER if there is no message */
                   HC_P2P_ANY_TAG = 4,    /* takes a message of any tag, and gets the message's */
                   HC_P2P_EXACT = 8,      /* a message that is shorter is an error, too */
                   HC_P2P_ALLOCATES = 16, /* a message of any size: `data` becomes new memory for it, of malloc() */
};
enum hc_p2p_context { HC_P2P_USER, HC_P2P_LIBRARY }; /* messages of one never meet receives of the other */
#define HC_P2P_EAGER_MAX ((size_t)8 << 10)           /* bytes of a message that may travel whole at once */
#define HC_NO_PEER (-2)                              /* MPI_PROC_NULL; for posters: it is no peer of hc_p2p_post() */

/* A send or a receive, in its poster's memory. It belongs to the point-to-point layer from hc_p2p_post() until
 * hc_p2p_done() or hc_p2p_withdraw() gives it back. */
struct hc_p2p_op {
    uint8_t receives;
    uint8_t flags;     /* enum hc_p2p_flag */
    uint8_t context;   /* enum hc_p2p_context */
    uint32_t set, tag; /* set: hc_set_wire() */
    int32_t peer;      /* World rank; a receive may have HC_ANY_PEER, and gets the sender's */
    void *data;        /* a send reads it, a receive writes it */
    uint64_t bytes;
    uint64_t type;         /* what the bytes are, hc_p2p_name_type(), as of the partner; 0: not known, fits all */
    const char *type_name; /* its text; NULL: its dtype's */
    void *owner;           /* for the poster */

    /* MISMATCH: the message is of another type; RESULT_SIZE: it does not fit the receive; NO_MEMORY: there is none for
     * it. Nothing was written. */
    int status;
    uint64_t received; /* receive: bytes of the message */
    uint64_t came;     /* receive: type of the message */

    /* for the point-to-point layer */
    hc_p2p_op *next;
    struct hc__p2p_queue *queue; /* that it is in */
    struct hc__bundle *path;     /* over the net */
    uint64_t moved;
    uint64_t source, withdrawn;   /* receive: of hc__p2p_source, 0: its bytes are not read there */
    uint32_t number, peer_number; /* of this operation: at this rank, at the peer */
};

/* Says what the bytes of a message are: elements of this dtype, or, with a name, what it says, as "<M8[s]"; "" says
 * nothing. The name stays the caller's and has to live as long as the operation. */
void hc_p2p_name_type(hc_p2p_op *, int dtype, const char *name);
#define HC_P2P_TYPE_TEXT 48
const char *hc_p2p_type_text(uint64_t type, char text[HC_P2P_TYPE_TEXT]); /* for an error */

/* `local_of` as for hc_control_new(); node control segment, net (NULL: one node) and control are borrowed. */
int hc_p2p_new(hc_node_control *, hc_net *, hc_control *, const int32_t *local_of, int32_t rank, int32_t size,
               hc_p2p **);
/* Before the first operation: nobody moves on what a call leaves in this process. A small send is then over when it has
 * left, and a send that finds no room says nothing before there is some. Without it, both wait in process memory. */
void hc_p2p_hold(hc_p2p *);
/* After a status below 0 the operation is still the poster's. */
int hc_p2p_post(hc_p2p *, hc_p2p_op *);
/* Messages travel on the control edges: the reader of those shows each message here. 1: it was for this layer. */
int hc_p2p_message(hc_p2p *, int32_t peer, const uint8_t *bytes, size_t nbytes);
int hc_p2p_progress(hc_p2p *);        /* enum hc_progress (never DONE), or a status: the World is then broken */
hc_p2p_op *hc_p2p_done(hc_p2p *);     /* the next operation that is finished, or NULL */
int hc_p2p_is_moving(const hc_p2p *); /* data is in flight: ask again soon. Else only messages bring news */
/* 1: the operation is its poster's again; 0: it is finished, or its data moves and it will be finished. */
int hc_p2p_withdraw(hc_p2p *, hc_p2p_op *);
void hc_p2p_forget(hc_p2p *, uint32_t set); /* drops messages of the set without a receive */
void hc_p2p_abandon(hc_p2p *);              /* after a failure: all operations are their posters' again */
void hc_p2p_free(hc_p2p *);

#endif
