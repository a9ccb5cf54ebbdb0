/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_start.h - makes the net over UCX of all ranks: they choose interfaces and exchange addresses.
 */
#pragma once

#include "rendezvous/exchange.h"
#include "transport/net/net.h"

typedef struct hc_ucx_terms {
    int32_t rank;
    const char *interface; /* HPCCOLL_INTERFACE: names or networks, or "" */
    int by_user;           /* UCX_NET_DEVICES is set, which UCX reads itself: no interface is chosen */
    uint16_t generation;   /* that no earlier net had; rank 0's counts */
} hc_ucx_terms;

/* All ranks call it after hc_ucx_open(). OK; or the same status on all, and why: "rank 3: ..."; "": the exchange has
 * the text. */
int hc_ucx_net_make(const hc_exchange *, const hc_ucx_terms *, hc_net **, char why[HC_EXCHANGE_WHY]);
/* "UCX 1.20.0 (/usr/lib/libucp.so.0) on tcp/eth0, tcp/ib0" */
void hc_ucx_net_describe(hc_net *, int by_user, char *text, size_t space);
