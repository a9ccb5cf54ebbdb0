/* SPDX-License-Identifier: Apache-2.0
 *
 * vote.h - the nodes of a process set vote on its small calls: all nodes take a call, or none does.
 *
 * A state machine without input and output: one per node, which its leader keeps. No function here waits, sends or
 * allocates.
 */
#ifndef HC_VOTE_H
#define HC_VOTE_H

#include "transport/shm/shortcut.h"

#define HC_VOTE_NODES 8 /* each node tells every other one; among more nodes stages would be faster */
#define HC_VOTE_BYTES HC_SHORTCUT_SMALL

/* YES: all ranks of the node have come with the same call. NO: they have not, and ask the engine. ASK is no vote: the
 * sender has voted YES and waits for the receiver's vote. */
enum hc_vote_kind { HC_VOTE_NONE, HC_VOTE_YES, HC_VOTE_NO, HC_VOTE_ASK, HC_VOTE_KINDS };

/* The vote of a node on a call. */
typedef struct hc_ballot {
    uint64_t number; /* of the call */
    uint8_t kind;
    uint32_t bytes;                                  /* YES: of its value */
    uint64_t agreed[HC_SHORTCUT_WORDS];              /* YES: must be equal on all nodes */
    _Alignas(16) unsigned char value[HC_VOTE_BYTES]; /* YES: what its ranks give */
} hc_ballot;

/* The votes of one node on the newest two calls. A node votes on the calls in order, and cannot end a call without the
 * votes of all nodes on it, or an agreement with all their ranks. So no third call has votes that are awaited. */
typedef struct hc_ballots {
    hc_ballot of[2];
    int newest;
} hc_ballots;

typedef struct hc_vote {
    int32_t nodes, me;
    hc_ballots from[HC_VOTE_NODES];
} hc_vote;

void hc_vote_init(hc_vote *, int32_t nodes, int32_t me);
/* Room for a node's vote on a call, with `number` and `kind` set; NULL: the vote is known, or nobody needs it any more.
 * The votes of a node come in the order of its calls. The caller writes the rest of a YES. */
hc_ballot *hc_vote_note(hc_vote *, int32_t node, uint64_t number, enum hc_vote_kind);
/* What this node answers to a vote or a question on a call: NO, or NONE. `count`: the state of its own count of ranks
 * (hc_shortcut_at); for a question after the count was closed (hc_shortcut_close). */
enum hc_vote_kind hc_vote_answer(enum hc_vote_kind heard, enum hc_shortcut_state count);
/* The outcome of a call on which this node has voted YES; the same on all nodes that have. */
enum hc_shortcut_state hc_vote_outcome(const hc_vote *, uint64_t number);
/* A node's vote on a call, or NULL. It stays where it is until this node votes on the next call but one. */
const hc_ballot *hc_vote_of(const hc_vote *, int32_t node, uint64_t number);

#endif
