/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h - an allgather of few bytes: of a rendezvous at the start, of the World's ranks later.
 *
 * It lies below everything that ranks agree on by themselves: nets, segments, process sets and plans.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The caller's allgather. All ranks call it with the same name and size; `all` receives the bytes of each rank, in the
 * order of the ranks. OK; HC_RESULT_SIZE: a rank has joined; or another status, whose text the callback keeps. */
typedef struct hc_exchange {
    int (*allgather)(void *of, const char *name, const void *mine, size_t bytes, void *all);
    void *of;
    int32_t size; /* number of ranks */
} hc_exchange;

#define HC_EXCHANGE_WHY 512 /* bytes of a text */

/* `status` below 0: this rank has failed, for the reason `why`, or NULL. All ranks get the status of the lowest rank
 * that has failed, and its reason: "rank 3: ...". `text` stays "" if the allgather fails. */
int hc_exchange_agree(const hc_exchange *, int status, const char *why, char text[HC_EXCHANGE_WHY]);
