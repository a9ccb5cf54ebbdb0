/* SPDX-License-Identifier: Apache-2.0
 *
 * order.h - the order of a process set's calls without a name, by which the ranks match them.
 *
 * A call's name is its number since the program has last waited for all calls, of which the last one had not failed. So
 * a loop of blocking calls repeats its names, which the ranks have agreed on. All languages of a process share the
 * order. [any thread]
 *
 * Ranks that wait at different calls give the later ones different numbers. Such calls must never meet another one of
 * the same number, so numbers are even and odd in turn, each time that they begin anew: equal names are the same call.
 * To begin anew a rank must have waited for calls that the other ranks have made under the same names, so no rank is
 * ahead by two turns. The engine finds out that numbers differ, and then names the calls by hc_request.order, their
 * count since the set was made (core/renumber.h).
 */
#pragma once

#include "loop/loop.h"
#include "transport/shm/shortcut.h"

#include <stdatomic.h>

#define HC_ORDER_NAME 32 /* bytes of a name */
#define HC_ORDER_REFUSAL "an unnamed call from another thread is in flight; calls from several threads must be named"

typedef struct hc_order {
    atomic_int open;           /* calls that the program has not waited for */
    atomic_int next;           /* number of the next call: half of the one in its name */
    atomic_int odd;            /* 1: the numbers in names are odd now; 0: even */
    _Atomic(uintptr_t) thread; /* that makes the open calls */
    _Atomic uint64_t count;    /* calls with a number since the set was made */
    atomic_int failed;         /* the highest number that a rank refused, or the ranks disagreed on; -1: none */
    _Atomic uint64_t agree;    /* the ranks must agree on a call of at least this count; 0: shortcuts are allowed */
    atomic_int many;           /* 1: the newest scatter on which the ranks have agreed was too large for a shortcut */
    int32_t size;              /* of the set */
    hc_shortcut *shortcut;     /* of the node; NULL: the set's calls take none */
    hc_votes *votes;           /* of a set on several nodes; else NULL */
} hc_order;

/* `shortcut` NULL: none, or the set has ended. */
void hc_order_reset(hc_order *, int32_t size, hc_shortcut *shortcut, hc_votes *);
/* Counts a call, and writes its name. Returns the length; -1: calls of another thread are open (HC_ORDER_REFUSAL). */
int hc_order_begin(hc_order *, char name[HC_ORDER_NAME]);
void hc_order_take_back(hc_order *); /* the call was not submitted: the next call has its number */
/* Counts a call that has no number. 0; -1: as above. */
int hc_order_hold(hc_order *);
void hc_order_end(hc_order *); /* of begin() or hold(): the program has waited for the call */
/* Shortcuts are off until the ranks agree on a call that begins later. */
void hc_order_agree(hc_order *);
/* Names a call that this rank refuses; it uses up the number. Shortcuts are off, too. */
int hc_order_refuse(hc_order *, char name[HC_ORDER_NAME]);
/* Call it for each call without a name, and each join, that the program has waited for: the positions of those that
 * the ranks agreed on number the shortcuts, so that all ranks number them alike. */
void hc_order_note(hc_order *, const hc_handle *);
/* 1: the request's name is from begin(). */
static inline int hc_order_has(const hc_handle *h) {
    return h->request.order != 0;
}
/* For hc_request.order of the call that begin() or refuse() has named last. */
static inline uint64_t hc_order_count(const hc_order *order) {
    return atomic_load_explicit(&order->count, memory_order_relaxed);
}

/* The most bytes of a call of this set that may try the shortcut. */
static inline size_t hc_order_most(const hc_order *order) {
    return order->votes ? HC_SHORTCUT_SMALL : hc_shortcut_bytes(order->size);
}

/* 1: the next call may try the shortcut. `own`: the number of open calls that the caller knows about. */
static inline int hc_order_may_shorten(hc_order *order, int own) {
    return atomic_load_explicit(&order->open, memory_order_relaxed) == own &&
           !atomic_load_explicit(&order->agree, memory_order_relaxed);
}
