/* SPDX-License-Identifier: Apache-2.0
 *
 * gathered.c - what the ranks of a set give to a small call that gathers, in the votes of its nodes.
 *
 * The value of a vote is what the ranks of its nodes give, one after the other in any order: a head (hc__given), the
 * part of the array, and the counts unless they are equal shares. Each stage appends the values that it hears, so all
 * nodes end with what all ranks have given, and each rank makes its own result of it (shortcut.c).
 */
#include "loop/votes.h"

#include <string.h>

#define UNIT sizeof(hc__given) /* a multiple of each dtype's alignment */

/* Where the counts begin, behind the part. */
static size_t before_counts(size_t bytes) {
    return (bytes + sizeof(int32_t) - 1) / sizeof(int32_t) * sizeof(int32_t);
}

static size_t length_of(size_t bytes, size_t ncounts) {
    size_t content = before_counts(bytes) + ncounts * sizeof(int32_t);
    return sizeof(hc__given) + (content + UNIT - 1) / UNIT * UNIT;
}

static int are_shares(const hc_shortcut_call *call, int64_t rows, const int32_t *counts) {
    for (int32_t rank = 0; rank < call->size; rank++)
        if (counts[rank] != hc_share(rows, call->size, rank))
            return 0;
    return 1;
}

int hc__given_fits(const hc_shortcut_call *call) {
    if (call->is_large || call->bytes > HC_SHORTCUT_SMALL) /* the most that a rank publishes in its node */
        return 0;
    int has_counts = (call->traits & HC_OP_COUNTS) && !are_shares(call, call->own.rows, call->counts);
    return length_of(call->bytes, has_counts ? (size_t)call->size : 0) <= HC_VOTE_GATHERED / (size_t)call->size;
}

/* `given`: its rank, bytes and own rows. */
void hc__given_add(hc_ballot *ballot, const hc_shortcut_call *call, const hc__given *given, const void *part,
                   const int32_t *counts) {
    hc__given head = *given;
    hc_shortcut_rows own;
    memcpy(&own, &head.own, sizeof own);
    head.ncounts = counts && !are_shares(call, own.rows, counts) ? (uint16_t)call->size : 0;
    unsigned char *at = ballot->value + ballot->bytes;
    size_t length = length_of(head.bytes, head.ncounts);
    memset(at, 0, length);
    memcpy(at, &head, sizeof head);
    if (head.bytes)
        memcpy(at + sizeof head, part, head.bytes);
    if (head.ncounts)
        memcpy(at + sizeof head + before_counts(head.bytes), counts, head.ncounts * sizeof *counts);
    ballot->bytes += (uint32_t)length;
}

/* The length of what begins here; 0: it is not sound. */
static size_t length_at(const unsigned char *at, size_t rest, int32_t size) {
    hc__given head;
    if (rest < sizeof head)
        return 0;
    memcpy(&head, at, sizeof head);
    size_t length = length_of(head.bytes, head.ncounts);
    return head.rank < size && (head.ncounts == 0 || head.ncounts == size) && length <= rest ? length : 0;
}

int hc__given_is_sound(const unsigned char *value, size_t bytes, int32_t size) {
    size_t at = 0, length = 1;
    for (; at < bytes && length; at += length)
        length = length_at(value + at, bytes - at, size);
    return length != 0;
}

void hc__given_merge(hc_ballot *own, const hc_ballot *const *operands, int32_t n) {
    int has_own = 0;
    for (int32_t i = 0; i < n; i++)
        has_own |= operands[i] == own;
    if (!has_own) /* it is in the result that it gets */
        own->bytes = 0;
    for (int32_t i = 0; i < n; i++) {
        if (operands[i] == own || own->bytes + operands[i]->bytes > sizeof own->value)
            continue;
        memcpy(own->value + own->bytes, operands[i]->value, operands[i]->bytes);
        own->bytes += operands[i]->bytes;
    }
}

int hc__given_take(hc_votes *votes, const unsigned char *value) {
    int32_t size = votes->call.size;
    size_t at = 0, offsets[HC_SHORTCUT_RANKS];
    memset(offsets, 0xff, sizeof offsets);
    for (int32_t i = 0; i < size; i++) {
        size_t length = length_at(value + at, HC_VOTE_GATHERED - at, size);
        if (!length)
            return 0;
        hc__given head;
        memcpy(&head, value + at, sizeof head);
        offsets[head.rank] = at;
        at += length;
    }
    memcpy(votes->result, value, at);
    votes->result_bytes = at;
    for (int32_t rank = 0; rank < size; rank++) {
        if (offsets[rank] == SIZE_MAX)
            return 0;
        votes->given[rank] = (const hc__given *)(const void *)(votes->result + offsets[rank]);
    }
    return 1;
}

const void *hc__given_part(const hc__given *given) {
    return given + 1;
}

const int32_t *hc__given_counts(const hc__given *given) {
    const unsigned char *part = hc__given_part(given);
    return given->ncounts ? (const int32_t *)(const void *)(part + before_counts(given->bytes)) : NULL;
}
