/* SPDX-License-Identifier: Apache-2.0
 *
 * shortcut_state.h - the state of a node's shortcut, and its part of the segment. (Private to ext/transport/shm.)
 */
#pragma once

#include "transport/shm/layout.h"
#include "transport/shm/shortcut.h"
#include "transport/shm/stores.h"

typedef struct hc_node_control hc_node_control; /* control_segment.h */

/* The data that a rank publishes, and the count of arrived ranks. Larger parts lie behind the slots of all ranks: so a
 * call of few bytes touches few pages, which is 5 % of its time. */
#define HC__SHORTCUT_NEAR HC_SHORTCUT_SMALL
typedef struct hc__shortcut_slot {
    _Alignas(HC__LINE) uint64_t agreed[HC_SHORTCUT_WORDS];
    uint64_t own;
    uint8_t data[HC__SHORTCUT_NEAR + HC_SHORTCUT_RANKS * sizeof(int32_t)]; /* the counts, then a part of few bytes */
} hc__shortcut_slot;
typedef struct hc__shortcut_word {
    _Alignas(128) _Atomic uint64_t value; /* number of the call << 8 | arrived groups of ranks; 255: the call is off */
} hc__shortcut_word;
/* Ranks come in groups, because a word in which each of many ranks counts itself moves from core to core for each of
 * them, and more often: the last rank of a group counts the group. */
#ifndef HC__SHORTCUT_GROUPS
#define HC__SHORTCUT_GROUPS 32
#endif
typedef struct hc__shortcut_group {
    int32_t own, ranks; /* this rank's group, and its ranks */
    int32_t n;          /* groups of the node; as many as ranks: each rank counts itself */
} hc__shortcut_group;
size_t hc__shortcut_area(int32_t local_size);
struct hc_shortcut {
    uint64_t number; /* of the next call */
    int32_t rank, size, misses;
    hc__shortcut_group group;
    const hc_node_control *node_control;
    hc__shortcut_word *words; /* the count of two calls in turn, the outcomes of votes on them, the counts of groups */
    hc__shortcut_slot *slots;
    uint8_t *results; /* of votes, HC_SHORTCUT_RESULT bytes each, of two calls in turn */
    uint8_t *far;     /* two areas for large parts per rank */
    size_t largest, area;
    hc__choice choice; /* of the stores of large parts */
};
