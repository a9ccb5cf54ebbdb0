/* SPDX-License-Identifier: Apache-2.0
 *
 * votes.h - the votes of a set's nodes on its small calls (transport/net/vote.h), as the driver moves them.
 */
#pragma once

#include "loop/loop.h"
#include "transport/net/vote.h"

typedef struct hc__given hc__given;

/* The nodes of a set, as this rank sees them. */
typedef struct hc__electorate {
    int32_t nodes, size, largest; /* largest: ranks of the largest node */
    int32_t nlocals;
    int32_t *locals;       /* set ranks of this node, in their order */
    int32_t *leaders;      /* World rank of each partner's leader (hc_vote_partner); only the leader has them */
    hc__stages split;      /* in_stages: of the nodes */
    int32_t leader;        /* World rank of this node's leader */
    uint8_t is_leader;     /* this rank */
    uint8_t in_stages;     /* more nodes than exchange their votes at once */
    uint8_t adds_in_order; /* sums of floats have the order of the nodes, which stages do not keep */
    uint8_t adds_wide;     /* partial sums of 16-bit floats are float32, which votes do not send */
} hc__electorate;

/* The caller fills `own` and `call` before it submits the handle, and reads the result when it is done; else the driver
 * has them. The memory of the call's arrays is the caller's alone, which may have left. */
struct hc_votes {
    hc__electorate of;
    hc_vote vote;
    hc_ballot own; /* what this node's ranks give */
    hc_shortcut_call call;
    hc_shortcut *count; /* of this node's ranks; the data plane owns it */
    hc_handle *handle;  /* of the call that waits for the votes; its context is this struct */
    hc_handle *request; /* of that call, if its caller waits no longer; else NULL */
    uint32_t wire;      /* the set's number in messages */
    uint8_t is_open, has_asked;
    uint64_t began, waits;    /* when this node voted, and since when it waits in its present stage */
    uint64_t stopped;         /* when the set was first seen to have ended; 0: it has not */
    atomic_ullong newest_yes; /* [any] the newest call on which another node has voted YES */
    int misses;               /* calls in a row that were off; the thread in the call writes it */
    size_t result_bytes;
    const hc__given *given[HC_SHORTCUT_RANKS];           /* by set rank, in `result`: of a call that gathers */
    _Alignas(16) unsigned char result[HC_VOTE_GATHERED]; /* of a call that was taken */
};

void hc__votes_take(hc_loop *, hc_handle *, uint64_t now);
/* Takes the request of a call whose caller waits for the votes no longer. */
void hc__votes_take_request(hc_loop *, hc_handle *);
/* What the leader has told this rank of a call that was taken, into `result`. TAKEN; OFF: it is not complete. */
enum hc_shortcut_state hc__votes_result(hc_votes *);
int hc__votes_are_open(hc_loop *, uint32_t set); /* 1: a call of the set waits for votes */
/* The number of the set's next call, which the caller makes or refuses; 0: this rank leads no node, or none votes. */
uint64_t hc__votes_next(hc_loop *, uint32_t set);
/* Answers NO before it is asked: this rank has refused the call. It may be long until it can answer. */
void hc__votes_decline(hc_loop *, uint32_t set, uint64_t number);
/* 1: it was a vote or a question; 0: it was not; or a status. */
int hc__votes_message(hc_loop *, int32_t peer, const uint8_t *bytes, size_t nbytes);
int hc__votes_progress(hc_loop *); /* 1: something moved */
void hc__votes_break(hc_loop *, int status, const char *text);
void hc__votes_watch(hc_loop *, uint64_t now, void (*watch)(hc_loop *, int32_t peer, uint64_t now));

/* The result of the votes on a request, if it has rows (equal_rows.c). */
static inline const int64_t *hc__votes_extremes(const hc_votes *votes) {
    return (const int64_t *)(const void *)votes->result;
}

/* ---- what all ranks give: gathered.c ---- */

/* What a rank gives to a call that gathers: this head, its part, and then its counts. */
struct hc__given {
    uint16_t rank;    /* of the set */
    uint16_t ncounts; /* 0: it gives every rank its share (hc_share), or has no counts */
    uint32_t bytes;   /* of the part */
    uint64_t own;     /* hc_shortcut_rows */
};
/* 1: the result needs what each rank gives, so the votes gather it. */
static inline int hc__gathers(int operation) {
    return (hc_operation_traits[operation] & (HC_OP_ROWS_DIFFER | HC_OP_PREFIX)) != 0;
}
int hc__given_fits(const hc_shortcut_call *); /* 1: what this rank gives fits into the votes, whatever others give */
/* Appends what a rank gives. The head has all but `ncounts`; `counts`: NULL, or one per rank. */
void hc__given_add(hc_ballot *, const hc_shortcut_call *, const hc__given *, const void *part, const int32_t *counts);
/* 1: the value of a vote from another node, in a set of so many ranks, can be read. */
int hc__given_is_sound(const unsigned char *value, size_t bytes, int32_t size);
/* Appends the operands of a stage to this node's own vote. */
void hc__given_merge(hc_ballot *own, const hc_ballot *const *operands, int32_t n);
/* Copies the result of the votes, and finds what each rank has given. 1; 0: something is missing. */
int hc__given_take(hc_votes *, const unsigned char *value);
const void *hc__given_part(const hc__given *);
const int32_t *hc__given_counts(const hc__given *); /* NULL: ncounts is 0 */

/* shortcut.c */
/* 1: the call's `out` has the rows of the result on each rank. All ranks have the same answer. */
int hc__shortcut_fits(const hc_shortcut *, const hc_shortcut_call *);

/* tally.c */
/* Writes the sum of what this node's ranks give, or what the root gives, into `own`. */
void hc__tally_give(hc_votes *, const void *const *parts, int32_t n);
/* Makes one value of the votes of a stage, which are YES. */
void hc__tally(hc_votes *);

/* drive.c */
/* Submits the handle of a vote, and waits until it is done, or `ns` have passed. [any thread] */
void hc__drive_vote(hc_loop *, hc_handle *, uint64_t ns);
