/* SPDX-License-Identifier: Apache-2.0
 *
 * vote.c - messages for a small call between nodes, in place of an agreement and an exchange.
 *
 * A node votes YES when all its ranks have come with the same call, and sends its signature and its value along. Among
 * few nodes all exchange their votes at once. Among more there are stages (radices.h): the nodes of a group exchange
 * their votes, and then vote in the next stage with one value for the whole group. A node whose ranks have not all
 * come, or have different calls, votes NO. All votes YES with equal signatures are the result; one NO or a difference
 * turns the call off.
 *
 * All nodes that vote YES find the same outcome. No node changes its vote, and a result depends on the votes of all
 * nodes: if one votes NO, or two signatures differ, no node ever has YES in all stages. A node that hears NO, or a
 * signature other than its own, votes NO in all later stages. In a group with a difference each node sees one.
 *
 * No node waits for ever. Each waits for votes of its present stage. A partner that has voted YES itself waits for an
 * earlier stage, and will vote there, YES or NO. A vote NO of a node whose ranks have not come is sent only to nodes
 * that need it: as the answer to their YES, or, if this node's ranks may still come at that moment, to their question
 * (ASK), which closes its count of ranks. A node does not answer a question if its count is full: then its vote is on
 * its way, as nothing stands between a full count and the vote.
 *
 * A node without a position (radices.h) gives its vote to each node of its group, and the last of these returns the
 * result to it.
 */
#include "transport/net/vote.h"

#include "transport/net/choose.h"

#include <stdlib.h>
#include <string.h>

/* ---- partners ------------------------------------------------------------------------------------------------ */

static void add(hc_vote *vote, int32_t node, int32_t sends_in, int32_t awaits_in) {
    vote->partners[vote->npartners++] = (hc_vote_partner){node, sends_in, awaits_in};
}

/* A node without a position: it votes in one stage and awaits the result in the next. */
static void find_group(hc_vote *vote, const hc__stages *split, const hc__stage_place *place) {
    int32_t radix = split->radix[0];
    for (int32_t digit = 0; digit < radix; digit++)
        add(vote, hc__stage_member(split, place->first + digit), 0, digit == radix - 1 ? 1 : -1);
    vote->stages = 2;
    vote->takes_result = 1;
}

static void find_partners(hc_vote *vote, const hc__stages *split, const hc__stage_place *place) {
    vote->stages = split->depth;
    for (int32_t stage = 0; stage < split->depth; stage++)
        for (int32_t digit = 0; digit < split->radix[stage]; digit++) {
            int32_t position = hc__stage_neighbour(split, stage, place->position, digit);
            if (position != place->position)
                add(vote, hc__stage_member(split, position), stage, stage);
        }
    if (place->extra >= 0 && place->position == place->first + split->radix[0] - 1)
        add(vote, place->extra, vote->stages++, 0);
    else if (place->extra >= 0)
        add(vote, place->extra, -1, 0);
}

/* The most partners of a node: the others of each stage, and a node without a position. */
static int32_t count_partners(const hc__stages *split) {
    int32_t most = 1;
    for (int32_t stage = 0; stage < split->depth; stage++)
        most += split->radix[stage];
    return most;
}

int hc_vote_adds_as(const char *algorithm) {
    int chosen = hc__algorithm_named(algorithm);
    return chosen == HC__AUTO || chosen == HC__STAGES;
}

/* Leaves out the values, which are long. */
static void clear(hc_ballots *heard) {
    heard->newest = 0;
    for (int i = 0; i < 2; i++)
        memset(&heard->of[i], 0, offsetof(hc_ballot, value));
}

int hc_vote_new(hc_vote *vote, const hc__stages *split, int32_t nodes, int32_t me) {
    const hc__stages one = {.depth = 1, .radix = {nodes}};
    const hc__stages *stages = split ? split : &one;
    size_t most = (size_t)count_partners(stages);
    *vote = (hc_vote){.me = me};
    vote->partners = malloc(most * sizeof *vote->partners);
    vote->heard = aligned_alloc(_Alignof(hc_ballots), most * sizeof *vote->heard);
    if (!vote->partners || !vote->heard)
        return HC_NO_MEMORY;
    for (size_t i = 0; i < most; i++)
        clear(&vote->heard[i]);
    hc__stage_place place = hc__stage_place_of(stages, me);
    if (place.position < 0)
        find_group(vote, stages, &place);
    else
        find_partners(vote, stages, &place);
    return HC_OK;
}

void hc_vote_free(hc_vote *vote) {
    free(vote->partners);
    free(vote->heard);
    *vote = (hc_vote){0};
}

int32_t hc_vote_partner_at(const hc_vote *vote, int32_t node) {
    for (int32_t i = 0; i < vote->npartners; i++)
        if (vote->partners[i].node == node)
            return i;
    return -1;
}

/* ---- votes --------------------------------------------------------------------------------------------------- */

static hc_ballot *begin(hc_ballot *ballot, uint64_t number, enum hc_vote_kind kind) {
    ballot->number = number;
    ballot->kind = (uint8_t)kind;
    ballot->bytes = 0;
    return ballot;
}

hc_ballot *hc_vote_cast(hc_vote *vote, uint64_t number, enum hc_vote_kind kind) {
    vote->at = 0;
    return begin(&vote->ballot, number, kind);
}

hc_ballot *hc_vote_note(hc_vote *vote, int32_t partner, uint64_t number, enum hc_vote_kind kind) {
    hc_ballots *heard = &vote->heard[partner];
    if (number <= heard->of[heard->newest].number)
        return NULL;
    heard->newest = !heard->newest;
    return begin(&heard->of[heard->newest], number, kind);
}

enum hc_vote_kind hc_vote_answer(enum hc_vote_kind heard, enum hc_shortcut_state count) {
    return heard != HC_VOTE_NO && count == HC_SHORTCUT_OFF ? HC_VOTE_NO : HC_VOTE_NONE;
}

const hc_ballot *hc_vote_of(const hc_vote *vote, int32_t partner, uint64_t number) {
    const hc_ballots *heard = &vote->heard[partner];
    for (int i = 0; i < 2; i++)
        if (heard->of[i].number == number && heard->of[i].kind != HC_VOTE_NONE)
            return &heard->of[i];
    return NULL;
}

int hc_vote_lacks(const hc_vote *vote, int32_t partner) {
    return vote->partners[partner].awaits_in == vote->at && !hc_vote_of(vote, partner, vote->ballot.number);
}

/* ---- stages -------------------------------------------------------------------------------------------------- */

/* 1: the partner has voted on a later call, so it never votes on this one. Behind a call that one rank has refused the
 * ranks may count differently, until they agree on the next call. */
static int has_gone_on(const hc_vote *vote, int32_t partner) {
    const hc_ballots *heard = &vote->heard[partner];
    return heard->of[heard->newest].number > vote->ballot.number;
}

enum hc_shortcut_state hc_vote_look(const hc_vote *vote) {
    const hc_ballot *own = &vote->ballot;
    enum hc_shortcut_state state = HC_SHORTCUT_TAKEN;
    for (int32_t i = 0; i < vote->npartners; i++) {
        const hc_ballot *theirs = hc_vote_of(vote, i, own->number);
        if (theirs && (theirs->kind == HC_VOTE_NO || memcmp(theirs->agreed, own->agreed, sizeof own->agreed) != 0))
            return HC_SHORTCUT_OFF;
        if (!theirs && vote->partners[i].awaits_in == vote->at) {
            if (has_gone_on(vote, i))
                return HC_SHORTCUT_OFF;
            state = HC_SHORTCUT_OPEN;
        }
    }
    return state;
}

/* Nodes have the order of their positions. */
int32_t hc_vote_operands(const hc_vote *vote, const hc_ballot *operands[HC_VOTE_OPERANDS]) {
    int32_t n = 0, has_own = vote->takes_result && vote->at > 0;
    for (int32_t i = 0; i < vote->npartners; i++) {
        if (vote->partners[i].awaits_in != vote->at)
            continue;
        if (!has_own && vote->partners[i].node > vote->me) {
            operands[n++] = &vote->ballot;
            has_own = 1;
        }
        operands[n++] = hc_vote_of(vote, i, vote->ballot.number);
    }
    if (!has_own)
        operands[n++] = &vote->ballot;
    return n;
}

int hc_vote_advance(hc_vote *vote) {
    return ++vote->at < vote->stages;
}
