/* SPDX-License-Identifier: Apache-2.0
 *
 * vote.h - the nodes of a process set vote on its small calls: all nodes take a call, or none does.
 *
 * A state machine without input and output: one per node, which its leader keeps. No function here waits or sends, and
 * only hc_vote_new() allocates.
 */
#pragma once

#include "transport/net/radices.h"
#include "transport/shm/shortcut.h"

#define HC_VOTE_NODES 65536                 /* at most */
#define HC_VOTE_BYTES HC_SHORTCUT_SMALL     /* of a sum, or of what one rank gives to all */
#define HC_VOTE_GATHERED HC_SHORTCUT_RESULT /* of what all ranks give */
#define HC_VOTE_OPERANDS (HC__FEW_MEMBERS + 1)
_Static_assert(HC_VOTE_BYTES == HC__FEW_BYTES, "sums of votes and of requests have the same stages");

/* YES: all ranks of the node have come with the same call, and all earlier stages were YES. NO: one of these is not so,
 * and the ranks ask the engine. ASK is no vote: the sender has voted YES and waits for the receiver's vote. */
enum hc_vote_kind { HC_VOTE_NONE, HC_VOTE_YES, HC_VOTE_NO, HC_VOTE_ASK, HC_VOTE_KINDS };

/* The vote of a node on a call. */
typedef struct hc_ballot {
    uint64_t number; /* of the call */
    uint8_t kind;
    uint32_t bytes;                                     /* YES: of its value */
    uint64_t agreed[HC_SHORTCUT_WORDS];                 /* YES: must be equal on all nodes */
    _Alignas(16) unsigned char value[HC_VOTE_GATHERED]; /* YES: what its ranks give, or a partial result */
} hc_ballot;

/* The votes of one node on the newest two calls. A node votes on the calls in order, and cannot end a call without the
 * votes of all nodes on it, or an agreement with all their ranks. So no third call has votes that are awaited. */
typedef struct hc_ballots {
    hc_ballot of[2];
    int newest;
} hc_ballots;

/* Another node with which this one exchanges votes, and the stages in which it sends and awaits one; -1: in none. */
typedef struct hc_vote_partner {
    int32_t node, sends_in, awaits_in;
} hc_vote_partner;

typedef struct hc_vote {
    int32_t me, npartners;
    int32_t stages;            /* of this node */
    uint8_t takes_result;      /* it has no position: after its vote it awaits the result */
    hc_vote_partner *partners; /* in the order in which a stage adds up what they give */
    hc_ballots *heard;         /* of each partner */
    hc_ballot ballot;          /* this node's: what it sends in the stage `at` */
    int32_t at;                /* == stages: the ballot has the result */
} hc_vote;

/* 1: requests with this algorithm (hc_hierarchy_config) add few bytes in the stages of votes. */
int hc_vote_adds_as(const char *algorithm);
/* `split`: the stages of the nodes; NULL: one of all. OK or NO_MEMORY; hc_vote_free() in both cases. */
int hc_vote_new(hc_vote *, const hc__stages *split, int32_t nodes, int32_t me);
void hc_vote_free(hc_vote *);
int32_t hc_vote_partner_at(const hc_vote *, int32_t node); /* -1: the node is no partner */
/* This node votes: `kind` YES or NO. The caller writes the rest of a YES. */
hc_ballot *hc_vote_cast(hc_vote *, uint64_t number, enum hc_vote_kind kind);
/* Room for a partner's vote on a call, with `number` and `kind` set; NULL: the vote is known, or nobody needs it any
 * more. The votes of a partner come in the order of its calls. The caller writes the rest of a YES. */
hc_ballot *hc_vote_note(hc_vote *, int32_t partner, uint64_t number, enum hc_vote_kind);
/* What this node answers to a vote or a question on a call: NO, or NONE. `count`: the state of its own count of ranks
 * (hc_shortcut_at); for a question after the count was closed (hc_shortcut_close). */
enum hc_vote_kind hc_vote_answer(enum hc_vote_kind heard, enum hc_shortcut_state count);
/* The present stage of the call on which this node has voted YES. OPEN: some votes are not here. TAKEN: all are here
 * and equal: make one value of the operands, then call hc_vote_advance(). OFF, as on all nodes that have voted YES:
 * send NO to the partners that await this node's vote in a later stage. */
enum hc_shortcut_state hc_vote_look(const hc_vote *);
/* The operands of the present stage, in order; the node's own is among them, unless a result replaces it. */
int32_t hc_vote_operands(const hc_vote *, const hc_ballot *operands[HC_VOTE_OPERANDS]);
/* 1: another stage follows, and this node sends its ballot in it; 0: the ballot has the result. */
int hc_vote_advance(hc_vote *);
/* A partner's vote on a call, or NULL. It stays where it is until this node votes on the next call but one. */
const hc_ballot *hc_vote_of(const hc_vote *, int32_t partner, uint64_t number);
/* 1: the present stage awaits this partner's vote. */
int hc_vote_lacks(const hc_vote *, int32_t partner);
