/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_messages.c - requests and connections of the net over UCX, and how a lost peer ends them.
 */
#include "transport/net/ucx_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOSE_SECONDS 0.2 /* for closing a connection by force */

double hc__ucx_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- requests ---------------------------------------------------------------------------------------- */

static hc_net_request *take(hc__ucx_net *net) {
    hc_net_request *r = net->unused;
    if (r)
        net->unused = r->next;
    else
        r = malloc(sizeof *r);
    if (!r)
        return NULL;
    *r = (hc_net_request){.net = net, .status = HC_IDLE, .lost = -1, .asked = net->sweep - 1, .next = net->alive};
    if (net->alive)
        net->alive->before = r;
    net->alive = r;
    return r;
}

void hc__ucx_give_back(hc__ucx_net *net, hc_net_request *r) {
    if (r->before)
        r->before->next = r->next;
    else
        net->alive = r->next;
    if (r->next)
        r->next->before = r->before;
    r->next = net->unused;
    net->unused = r;
}

static int fail(hc__ucx_net *net, ucs_status_t error) {
    snprintf(net->text, sizeof net->text, "UCX: %s", hc__ucx.ucs_status_string(error));
    net->base.text = net->text;
    return error == UCS_ERR_NO_MEMORY ? HC_NO_MEMORY : HC_TRANSPORT;
}

int hc__ucx_fail_of_loss(hc__ucx_net *net, int32_t peer) {
    net->base.text = net->text;
    snprintf(net->text, sizeof net->text, "its connection ended (UCX: %s)",
             hc__ucx.ucs_status_string(net->peers[peer].error));
    net->base.lost = (uint32_t)peer + 1;
    return HC_PEER_LOST;
}

/* UCX has ended a request. */
static void complete(hc_net_request *r, ucs_status_t error) {
    hc__ucx_net *net = r->net;
    const hc__ucx_peer *peer = r->peer >= 0 ? &net->peers[r->peer] : NULL;
    int of_connection = error != UCS_OK && error != UCS_ERR_MESSAGE_TRUNCATED && error != UCS_ERR_NO_MEMORY;
    r->handle = NULL;
    if (r->abandoned) {
        hc__ucx_give_back(net, r);
    } else if (r->status != HC_IDLE || error == UCS_OK) { /* a loss has ended it before, or it succeeded */
        r->status = r->status != HC_IDLE ? r->status : HC_DONE;
    } else if (of_connection && peer && !r->receives && peer->received_goodbye) {
        r->status = HC_DONE; /* the peer has ended and does not want this message */
    } else if (of_connection && peer && !peer->closed && !net->ending) {
        r->status = HC_PEER_LOST;
        r->lost = r->peer;
        net->peers[r->peer].failed = net->news = 1;
        net->peers[r->peer].error = net->peers[r->peer].error ? net->peers[r->peer].error : error;
    } else {
        r->status = fail(net, error);
    }
}

static void accept_message(hc_net_request *r, const ucp_tag_recv_info_t *info) {
    r->bytes = info->length;
    r->peer = (int32_t)((info->sender_tag & HC__UCX_SOURCE_MASK) >> HC__UCX_SOURCE);
    hc_count(&r->net->base.received_bytes, r->bytes);
}

static void sent(void *handle, ucs_status_t status, void *of) {
    complete(of, status);
    hc__ucx.ucp_request_free(handle);
}

static void received(void *handle, ucs_status_t status, const ucp_tag_recv_info_t *info, void *of) {
    hc_net_request *r = of;
    int at_once = !r->handle; /* from within ucp_tag_recv_nbx() */
    if (status == UCS_OK)
        accept_message(r, info);
    complete(r, status);
    if (!at_once)
        hc__ucx.ucp_request_free(handle);
}

/* ---- connections --------------------------------------------------------------------------------------- */

/* UCX calls this from its progress; hc__ucx_look() acts on it afterwards. */
static void connection_ended(void *of, ucp_ep_h endpoint, ucs_status_t status) {
    hc__ucx_peer *peer = of;
    (void)endpoint;
    peer->error = status;
    peer->failed = peer->net->news = 1;
}

static int connect(hc__ucx_net *net, int32_t rank) {
    hc__ucx_peer *peer = &net->peers[rank];
    ucp_ep_params_t parameters = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->address,
        .err_mode = rank == net->base.rank ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {connection_ended, peer},
    };
    if (net->lost[rank])
        return hc__ucx_fail_of_loss(net, rank);
    if (peer->closed || !peer->address) {
        snprintf(net->text, sizeof net->text, "the connection to rank %d was closed", (int)rank);
        net->base.text = net->text;
        return HC_TRANSPORT;
    }
    ucs_status_t status = hc__ucx.ucp_ep_create(net->worker, &parameters, &peer->endpoint);
    if (status == UCS_OK)
        return HC_OK;
    peer->endpoint = NULL;
    int failed = fail(net, status), has_rdma;
    size_t end = strlen(net->text);
    char *devices = hc_ucx_net_devices(&net->base, &has_rdma);
    snprintf(net->text + end, sizeof net->text - end,
             ", for a connection to rank %d over %.64s (is the interface right? see HPCCOLL_INTERFACE)", (int)rank,
             devices ? devices : "UCX");
    free(devices);
    return failed;
}

void *hc__ucx_begin_to_close(hc__ucx_peer *peer, uint32_t flags) {
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    void *handle = hc__ucx.ucp_ep_close_nbx(peer->endpoint, &how);
    peer->endpoint = NULL;
    peer->closed = 1;
    intptr_t error = (intptr_t)handle;
    return error < 0 && error >= UCS_ERR_LAST ? NULL : handle;
}

void hc__ucx_finish_closing(hc__ucx_net *net, void *handle, double limit) {
    while (handle && hc__ucx.ucp_request_check_status(handle) == UCS_INPROGRESS && hc__ucx_seconds() < limit)
        hc__ucx.ucp_worker_progress(net->worker);
    if (handle)
        hc__ucx.ucp_request_free(handle);
}

void hc__ucx_close_by_force(hc__ucx_net *net, int32_t rank) {
    if (net->peers[rank].endpoint)
        hc__ucx_finish_closing(net, hc__ucx_begin_to_close(&net->peers[rank], UCP_EP_CLOSE_FLAG_FORCE),
                               hc__ucx_seconds() + CLOSE_SECONDS);
}

/* ---- messages ------------------------------------------------------------------------------------------- */

static ucp_tag_t tag_of(const hc__ucx_net *net, int32_t source, int32_t tag) {
    return net->generation | (ucp_tag_t)source << HC__UCX_SOURCE | (ucp_tag_t)tag;
}

/* Handles UCX's answer to a new request. */
static int started(hc__ucx_net *net, hc_net_request *r, void *handle, hc_net_request **out) {
    intptr_t error = (intptr_t)handle;
    if (error == UCS_ERR_MESSAGE_TRUNCATED) { /* the message had arrived before */
        r->status = fail(net, UCS_ERR_MESSAGE_TRUNCATED);
        *out = r;
        return HC_OK;
    }
    if (error < 0 && error >= UCS_ERR_LAST) {
        hc__ucx_give_back(net, r);
        return fail(net, (ucs_status_t)error);
    }
    *out = r;
    if (!handle)
        r->status = HC_DONE;
    else if (r->status == HC_IDLE)
        r->handle = handle;
    else
        hc__ucx.ucp_request_free(handle); /* it is already complete: its callback has run */
    return HC_OK;
}

int hc__ucx_send(hc__ucx_net *net, int32_t peer, int32_t tag, const void *data, size_t bytes, hc_net_request **out) {
    int status = net->peers[peer].endpoint || net->peers[peer].received_goodbye ? HC_OK : connect(net, peer);
    hc_net_request *r = status == HC_OK ? take(net) : NULL;
    *out = r;
    if (!r)
        return status < 0 ? status : HC_NO_MEMORY;
    r->peer = peer;
    r->bytes = bytes;
    if (!net->peers[peer].endpoint) { /* it has ended regularly */
        r->status = HC_DONE;
        return HC_OK;
    }
    const ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = sent,
        .user_data = r,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    void *handle = hc__ucx.ucp_tag_send_nbx(net->peers[peer].endpoint, data, bytes, tag_of(net, net->base.rank, tag),
                                            &how);
    *out = NULL;
    return started(net, r, handle, out);
}

int hc__ucx_receive(hc__ucx_net *net, int32_t peer, int32_t tag, void *data, size_t room, hc_net_request **out) {
    ucp_tag_t mask = peer == HC_ANY_PEER ? ~HC__UCX_SOURCE_MASK : ~(ucp_tag_t)0;
    int connected = peer == HC_ANY_PEER || net->peers[peer].endpoint || net->peers[peer].received_goodbye;
    int status = connected ? HC_OK : connect(net, peer);
    hc_net_request *r = status == HC_OK ? take(net) : NULL;
    *out = NULL;
    if (!r)
        return status < 0 ? status : HC_NO_MEMORY;
    r->peer = peer;
    r->receives = 1;
    r->is_any = peer == HC_ANY_PEER;
    const ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL, /* 1.13 gives the length of a message only to the callback */
        .cb.recv = received,
        .user_data = r,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    void *handle = hc__ucx.ucp_tag_recv_nbx(net->worker, data, room, tag_of(net, r->is_any ? 0 : peer, tag), mask,
                                            &how);
    return started(net, r, handle, out);
}

/* ---- goodbyes and losses ---------------------------------------------------------------------------------- */

int hc__ucx_expect_goodbyes(hc__ucx_net *net) {
    int status = HC_OK;
    while (status == HC_OK && (!net->goodbye || net->goodbye->status != HC_IDLE)) {
        if (net->goodbye && net->goodbye->status == HC_DONE && net->goodbye->peer < net->base.size)
            net->peers[net->goodbye->peer].received_goodbye = 1;
        if (net->goodbye)
            hc__ucx_give_back(net, net->goodbye);
        net->goodbye = NULL;
        status = hc__ucx_receive(net, HC_ANY_PEER, HC__UCX_GOODBYE, NULL, 0, &net->goodbye);
    }
    return status;
}

/* Ends all requests that need a lost peer. */
static void lose(hc__ucx_net *net, int32_t rank) {
    net->lost[rank] = 1;
    if (net->first_lost < 0)
        net->first_lost = rank;
    for (hc_net_request *r = net->alive, *next; r; r = next) {
        next = r->next;
        if (r->status != HC_IDLE || r->abandoned || r == net->goodbye || (r->peer != rank && !r->is_any))
            continue;
        r->status = HC_PEER_LOST; /* before cancel, which calls complete() */
        r->lost = rank;
        if (r->handle && r->receives)
            hc__ucx.ucp_request_cancel(net->worker, r->handle);
    }
}

static void deal_with_news(hc__ucx_net *net) {
    net->news = 0;
    for (int32_t rank = 0; rank < net->base.size; rank++) {
        hc__ucx_peer *peer = &net->peers[rank];
        if (!peer->failed)
            continue;
        peer->failed = 0;
        if (!peer->received_goodbye && !net->ending && !net->lost[rank])
            lose(net, rank);
        hc__ucx_close_by_force(net, rank);
    }
}

void hc__ucx_look(hc__ucx_net *net) {
    net->sweep++;
    hc__ucx.ucp_worker_progress(net->worker);
    if (net->goodbye && net->goodbye->status != HC_IDLE)
        hc__ucx_expect_goodbyes(net); /* before the end of that connection is judged */
    if (net->news)
        deal_with_news(net);
}
