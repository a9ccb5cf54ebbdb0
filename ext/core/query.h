/* SPDX-License-Identifier: Apache-2.0
 *
 * query.h - stall queries (which ranks are awaited?): their records and messages.
 */
#pragma once

#include "core/base.h"

#define HC__LISTED 16 /* ranks that a report names */

/* An open query: which ranks lack the item with this key (0, 0: which have not joined)? */
typedef struct hc__query {
    struct hc__query *next;
    uint64_t key[2];
    uint64_t deadline;
    uint32_t first_asker; /* source */
    uint32_t unanswered;  /* children */
    uint32_t lacking, silent;
    uint32_t nranks;
    int32_t ranks[HC__LISTED];       /* set ranks that lack the item */
    int32_t world_ranks[HC__LISTED]; /* the same ranks in the World */
    int32_t silent_rank;             /* World rank of the first silent child */
    uint8_t collecting;
    uint64_t bits[]; /* two sets of sources: the askers, and the sources without an answer */
} hc__query;

/* A stall that a rank was told to print. */
#define HC__PRINTED 8
typedef struct hc__printed {
    uint64_t key[2], at; /* at 0: never used */
} hc__printed;

typedef struct hc__stall {
    hc__query *queries;
    uint32_t nqueries;
    uint32_t asked_times;
    uint64_t next_ask, asked_ticket;  /* the request that next_ask is about */
    uint8_t named_silent;             /* the last report of that request named the silent ranks */
    char *last_report;                /* HC__TEXT bytes, or NULL */
    hc__printed printed[HC__PRINTED]; /* at the root */
} hc__stall;

extern const uint64_t hc__join_key[2];
int hc__query_is_join(const uint64_t key[2]);
hc__query *hc__query_find(const hc__set *, const uint64_t key[2]);
hc__query *hc__query_find_or_make(hc__set *, const uint64_t key[2]); /* NULL: too many, or out of memory */
void hc__query_drop(hc__set *, hc__query *);
uint64_t hc__query_patience(const hc__set *); /* ns that the root gives its children to answer */
int hc__query_asks(const hc__query *, uint32_t source);
void hc__query_add_asker(hc__query *, uint32_t source);
uint64_t *hc__query_unanswered(const hc__set *, hc__query *);
int hc__query_has(const uint64_t *sources, uint32_t source);
void hc__query_clear_unanswered(const hc__set *, hc__query *);
uint64_t hc__query_deadline(const hc__set *); /* the earliest deadline */

/* Drops the query about an item that is agreed now. */
void hc__query_forget(hc__set *, const uint64_t key[2]);
void hc__queries_free(hc__set *);

/* A message about `key` with room for `more` bytes at *p. NULL: out of memory. */
uint8_t *hc__query_message(hc__set *, int message, const uint64_t key[2], size_t more, uint8_t **p);
uint8_t *hc__write_ranks(uint8_t *, const int32_t *ranks, uint32_t n);
