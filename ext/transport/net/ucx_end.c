/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_end.c - closes a net over UCX so that its peers do not report a lost rank.
 *
 * Peers see every end of a connection as an error. Normally the ranks pass two barriers. After the first all ranks are
 * closing the net, so an error is no loss any more; after the second nobody waits for a message. A rank that cannot
 * wait for the others, because the World is broken or they are late, sends a goodbye to its connected peers.
 */
#include "transport/net/ucx_parts.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define END_SECONDS 10.0 /* the longest wait for the others at the end */
/* For sending a goodbye, which waits only for a peer that has not answered yet: a loaded one may take a second, and a
 * peer without a goodbye counts this rank as lost. */
#define GOODBYE_SECONDS 2.0
#define FORCE_SECONDS 0.2 /* for closing a connection by force */
#define CLOSE_SECONDS 2.0 /* for all connections to send their last messages */

/* ---- goodbyes -------------------------------------------------------------------------------------------- */

static void send_goodbye(hc__ucx_net *net, int32_t rank) {
    hc__ucx_peer *peer = &net->peers[rank];
    hc_net_request *goodbye = NULL;
    if (peer->sent_goodbye || !peer->endpoint || rank == net->base.rank)
        return;
    peer->sent_goodbye = 1;
    if (hc__ucx_send(net, rank, HC__UCX_GOODBYE, NULL, 0, &goodbye) != HC_OK)
        return;
    for (double limit = hc__ucx_seconds() + GOODBYE_SECONDS; goodbye->status == HC_IDLE && hc__ucx_seconds() < limit;)
        hc__ucx_look(net);
    goodbye->abandoned = 1;
    if (!goodbye->handle)
        hc__ucx_give_back(net, goodbye);
}

/* ---- the end of connections -------------------------------------------------------------------------------- */

/* Ends an unmatched receive. */
static void withdraw_receive(hc__ucx_net *net, hc_net_request *r) {
    if (!r->handle || !r->receives)
        return;
    r->status = r->status == HC_IDLE ? HC_TRANSPORT : r->status; /* so that complete() does not report a loss */
    hc__ucx.ucp_request_cancel(net->worker, r->handle);
}

int hc__ucx_withdraw(hc__ucx_net *net, hc_net_request *r) {
    withdraw_receive(net, r);
    if (r->handle && r->peer >= 0 && r->peer != net->base.rank) {
        send_goodbye(net, r->peer);
        hc__ucx_close_by_force(net, r->peer);
    }
    for (double limit = hc__ucx_seconds() + FORCE_SECONDS; r->handle && hc__ucx_seconds() < limit;)
        hc__ucx.ucp_worker_progress(net->worker);
    r->abandoned = 1;
    if (r->handle)
        return HC_TRANSPORT;
    hc__ucx_give_back(net, r);
    return HC_OK;
}

static void close_all(hc__ucx_net *net, uint32_t flags) {
    double limit = hc__ucx_seconds() + CLOSE_SECONDS;
    void **handles = calloc((size_t)net->base.size, sizeof *handles);
    for (int32_t rank = 0; rank < net->base.size; rank++) {
        hc__ucx_peer *peer = &net->peers[rank];
        void *handle = peer->endpoint ? hc__ucx_begin_to_close(peer, rank == net->base.rank ? 0 : flags) : NULL;
        if (handles)
            handles[rank] = handle;
        else
            hc__ucx_finish_closing(net, handle, limit);
    }
    for (int32_t rank = 0; handles && rank < net->base.size; rank++)
        hc__ucx_finish_closing(net, handles[rank], limit);
    free(handles);
}

/* ---- barriers ------------------------------------------------------------------------------------------------ */

/* 1: it is complete; 0: it failed, or the time is over. `gone_is_fine`: a peer whose connection has ended has passed
 * this barrier. */
static int await(hc__ucx_net *net, hc_net_request *r, int32_t peer, int gone_is_fine, double limit) {
    while (r->status == HC_IDLE && hc__ucx_seconds() < limit) {
        hc__ucx_look(net);
        if (gone_is_fine && net->peers[peer].closed)
            break;
        if (!gone_is_fine && (net->first_lost >= 0 || net->peers[peer].closed || net->peers[peer].received_goodbye))
            break;
        sched_yield();
    }
    int done = r->status == HC_DONE || (gone_is_fine && net->peers[peer].closed);
    withdraw_receive(net, r);
    r->abandoned = 1;
    if (!r->handle)
        hc__ucx_give_back(net, r);
    return done;
}

/* A dissemination barrier (Hensgen, Finkel, Manber 1988): log2(n) rounds, with a message to the right in each. 1; 0: a
 * rank was late. */
static int barrier(hc__ucx_net *net, int32_t tag, int gone_is_fine, double limit) {
    int32_t n = net->base.size, me = net->base.rank;
    for (int32_t round = 0, step = 1; step < n; round++, step *= 2) {
        int32_t to = (me + step) % n, from = (me - step + n) % n;
        hc_net_request *out = NULL, *in = NULL;
        int sends = hc__ucx_send(net, to, tag + round, NULL, 0, &out) == HC_OK;
        int receives = hc__ucx_receive(net, from, tag + round, NULL, 0, &in) == HC_OK;
        int is_out = sends ? await(net, out, to, gone_is_fine, limit) : gone_is_fine;
        int is_in = receives ? await(net, in, from, gone_is_fine, limit) : gone_is_fine;
        if (!is_in || !is_out)
            return 0;
    }
    return 1;
}

static int end_together(hc__ucx_net *net) {
    double limit = hc__ucx_seconds() + END_SECONDS;
    if (net->base.abandoned || net->first_lost >= 0 || !barrier(net, HC__UCX_ENTERED, 0, limit))
        return 0;
    net->ending = 1;
    barrier(net, HC__UCX_LEFT, 1, limit);
    return 1;
}

/* 1: UCX still sends a message to the peer. */
static int sends_to(const hc__ucx_net *net, int32_t peer) {
    for (const hc_net_request *r = net->alive; r; r = r->next)
        if (r->handle && !r->receives && r->peer == peer)
            return 1;
    return 0;
}

/* A silent rank receives nothing, so its connection would not end by itself. UCX ends its sends a little after the
 * forced close. */
static void end_the_dead(hc__ucx_net *net) {
    int32_t dead = (int32_t)net->base.dead - 1;
    if (dead < 0)
        return;
    net->peers[dead].sent_goodbye = 1;
    hc__ucx_close_by_force(net, dead);
    for (double limit = hc__ucx_seconds() + CLOSE_SECONDS; sends_to(net, dead) && hc__ucx_seconds() < limit;)
        hc__ucx.ucp_worker_progress(net->worker);
}

/* ---- the end of the net -------------------------------------------------------------------------------------- */

/* Receives messages without a receive: UCX would warn of each message that it drops itself. */
static void discard(hc__ucx_net *net) {
    const ucp_request_param_t how = {.op_attr_mask = 0};
    for (int left = 1 << 20; left > 0; left--) {
        void *handle = hc__ucx.ucp_tag_recv_nbx(net->worker, NULL, 0, 0, 0, &how);
        intptr_t error = (intptr_t)handle;
        if (!handle || (error < 0 && error >= UCS_ERR_LAST))
            continue;
        hc__ucx.ucp_request_cancel(net->worker, handle);
        hc__ucx.ucp_request_free(handle);
        return;
    }
}

static void end_connections(hc__ucx_net *net) {
    int together = end_together(net), sending = 0;
    net->ending = 1;
    end_the_dead(net);
    for (int32_t rank = 0; !together && rank < net->base.size; rank++)
        send_goodbye(net, rank);
    for (hc_net_request *r = net->alive, *next; r; r = next) {
        next = r->next;
        withdraw_receive(net, r);
    }
    for (const hc_net_request *r = net->alive; r; r = r->next)
        sending |= r->handle != NULL;
    close_all(net, sending ? UCP_EP_CLOSE_FLAG_FORCE : 0);
    discard(net);
}

static void free_list(hc_net_request *r) {
    while (r) {
        hc_net_request *next = r->next;
        free(r);
        r = next;
    }
}

void hc__ucx_free(hc_net *base) {
    hc__ucx_net *net = (hc__ucx_net *)base;
    if (net->owner == getpid()) {
        if (net->addresses)
            end_connections(net);
        if (net->address)
            hc__ucx.ucp_worker_release_address(net->worker, net->address);
        if (net->worker)
            hc__ucx.ucp_worker_destroy(net->worker);
        if (net->context)
            hc__ucx.ucp_cleanup(net->context);
    }
    free_list(net->alive);
    free_list(net->unused);
    free(net->addresses);
    free(net->lost);
    free(net->peers);
    free(net);
}
