/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.h - letters: bytes from one rank to another, outside of any agreement.
 *
 * Letters of one sender, receiver, set and tag are received in the order in which they were posted. A small one is
 * copied and finished at once, whether a receive is posted or not; a large one waits for its receive and then
 * moves through memory of fixed size. As everywhere in ext/transport the driver calls, and nothing here waits.
 */
#ifndef HC_MAIL_H
#define HC_MAIL_H

#include "transport/shm/shm.h"

typedef struct hc_mail hc_mail; /* one rank's, for all its sets */
typedef struct hc_letter hc_letter;

/* A send or a receive, in its poster's memory; the mail's until hc_mail_done() or hc_mail_withdraw() gives it back. */
struct hc_letter {
    uint8_t receives;
    uint32_t set, tag; /* set: hc_set_wire() */
    int32_t peer;      /* World rank; of a receive also HC_ANY_PEER, and then the sender's */
    void *data;        /* a send reads it, a receive writes it */
    uint64_t bytes;
    void *owner; /* the poster's own */

    int status;    /* RESULT_SIZE: the message has not the size of the receive, nothing was written */
    uint64_t came; /* receive: bytes of the message */

    /* the mail's own */
    hc_letter *next;
    struct hc__pile *pile;  /* where it is */
    struct hc__bundle *way; /* over the net */
    uint64_t moved;
    uint32_t number, theirs; /* at this rank, at the peer's */
};

/* `local_of` as for hc_control_new(); home, net (NULL: one node) and control are borrowed. */
int hc_mail_new(hc_home *, hc_net *, hc_control *, const int32_t *local_of, int32_t rank, int32_t size,
                hc_mail **);
/* After a status below 0 the letter is not the mail's. */
int hc_mail_post(hc_mail *, hc_letter *);
/* Letters travel on the control edges: whoever reads those shows each message here. 1: it was the mail's. */
int hc_mail_message(hc_mail *, int32_t peer, const uint8_t *bytes, size_t nbytes);
int hc_mail_progress(hc_mail *);    /* enum hc_progress (never DONE), or a status: the World is then broken */
hc_letter *hc_mail_done(hc_mail *); /* the next letter that is finished, or NULL */
int hc_mail_is_moving(
    const hc_mail *); /* data is on its way: ask again soon. Else only messages bring news */
/* 1: the letter is its poster's again; 0: it is finished, or its data moves and it will be finished. */
int hc_mail_withdraw(hc_mail *, hc_letter *);
void hc_mail_forget(hc_mail *, uint32_t set); /* what came and nobody received */
void hc_mail_abandon(hc_mail *);              /* after a failure: no letter is the mail's any more */
void hc_mail_free(hc_mail *);

#endif
