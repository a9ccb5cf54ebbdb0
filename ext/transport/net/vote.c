/* SPDX-License-Identifier: Apache-2.0
 *
 * vote.c - one round of messages for a small call between nodes, in place of an agreement and an exchange.
 *
 * A node votes YES when all its ranks have come with the same call, and sends its signature and its value along to all
 * other nodes. A node whose ranks have not all come, or have different calls, votes NO. All votes YES with equal
 * signatures are the result; one NO or a difference turns the call off.
 *
 * All nodes that vote YES find the same outcome. No node changes its vote, and a node that has voted YES waits for the
 * votes of all other nodes. If all vote YES, each node compares the others' signatures with its own: either all are
 * equal, or each node sees a difference. If one votes NO, no node ever has all votes.
 *
 * No node waits for ever. A vote NO is sent only to nodes that need it: as the answer to their YES, or, if this node's
 * ranks may still come at that moment, to their question (ASK), which closes its count of ranks. A node does not answer
 * a question if its count is full: then its vote is on its way, as nothing stands between a full count and the vote.
 */
#include "transport/net/vote.h"

#include <string.h>

void hc_vote_init(hc_vote *vote, int32_t nodes, int32_t me) {
    memset(vote, 0, sizeof *vote);
    vote->nodes = nodes;
    vote->me = me;
}

hc_ballot *hc_vote_note(hc_vote *vote, int32_t node, uint64_t number, enum hc_vote_kind kind) {
    hc_ballots *from = &vote->from[node];
    if (number <= from->of[from->newest].number)
        return NULL;
    from->newest = !from->newest;
    hc_ballot *ballot = &from->of[from->newest];
    ballot->number = number;
    ballot->kind = (uint8_t)kind;
    ballot->bytes = 0;
    return ballot;
}

enum hc_vote_kind hc_vote_answer(enum hc_vote_kind heard, enum hc_shortcut_state count) {
    return heard != HC_VOTE_NO && count == HC_SHORTCUT_OFF ? HC_VOTE_NO : HC_VOTE_NONE;
}

const hc_ballot *hc_vote_of(const hc_vote *vote, int32_t node, uint64_t number) {
    const hc_ballots *from = &vote->from[node];
    for (int i = 0; i < 2; i++)
        if (from->of[i].number == number && from->of[i].kind != HC_VOTE_NONE)
            return &from->of[i];
    return NULL;
}

enum hc_shortcut_state hc_vote_outcome(const hc_vote *vote, uint64_t number) {
    const hc_ballot *own = hc_vote_of(vote, vote->me, number);
    enum hc_shortcut_state outcome = HC_SHORTCUT_TAKEN;
    for (int32_t node = 0; node < vote->nodes; node++) {
        const hc_ballot *theirs = hc_vote_of(vote, node, number);
        if (!theirs)
            outcome = HC_SHORTCUT_OPEN;
        else if (theirs->kind == HC_VOTE_NO || memcmp(theirs->agreed, own->agreed, sizeof own->agreed) != 0)
            return HC_SHORTCUT_OFF;
    }
    return outcome;
}
