/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx.c - a net over UCX's tag matching: it needs neither MPI nor a launcher, and notices a lost peer by its
 * connection.
 *
 * Each net has its own context and worker. UCX's tag of 64 bits has the generation, source and tag of a message, so a
 * message of an earlier net at the same port matches nothing. A rank connects at first need, also if it only receives:
 * only its own connection tells it of the sender's end.
 *
 * UCX calls the error handler of a connection a few milliseconds after the peer's process is gone, but ends neither
 * posted receives nor sends. So the net closes the connection by force, which ends the sends, and itself ends the
 * receives from this peer and from any peer. Only the heartbeat notices a peer whose host is cut off or stopped.
 *
 * As over MPI, the second test of a request makes the net progress all requests once.
 */
#include "transport/net/ucx_parts.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Over TCP. UCX sends a longer message by its rendezvous protocol: on a fast link an allreduce of 16 MiB between two
 * hosts took a third of the time in messages of 60 KiB, and on one of 1 Gbit/s all lengths reached the wire's rate.
 * Between two ranks of one machine it took 1.5 to 1.7 times as long in messages of 128 KiB, alternating on a loaded
 * machine. */
#define MESSAGE_BYTES (60 << 10)
/* If all ranks have an RDMA transport, whose adapters write into the receiver's memory; not measured. */
#define MESSAGE_BYTES_RDMA (1 << 20)

static int is_wrong(hc_net *base, int32_t lowest, int32_t peer, int32_t tag) {
    hc__ucx_net *net = (hc__ucx_net *)base;
    if (peer >= lowest && peer < base->size && tag >= 0 && tag <= base->max_tag)
        return 0;
    snprintf(net->text, sizeof net->text, "no such rank or tag: %d, %d", (int)peer, (int)tag);
    return 1;
}

static int isend(hc_net *base, int32_t peer, int32_t tag, const void *data, size_t bytes, hc_net_request **req) {
    if (is_wrong(base, 0, peer, tag))
        return HC_INVALID;
    int status = hc__ucx_send((hc__ucx_net *)base, peer, tag, data, bytes, req);
    if (status == HC_OK) {
        hc_count(&base->sent_messages, 1);
        hc_count(&base->sent_bytes, bytes);
    }
    return status;
}

static int irecv(hc_net *base, int32_t peer, int32_t tag, void *data, size_t room, hc_net_request **req) {
    hc__ucx_net *net = (hc__ucx_net *)base;
    if (is_wrong(base, HC_ANY_PEER, peer, tag))
        return HC_INVALID;
    if (peer == HC_ANY_PEER && net->first_lost >= 0)
        return hc__ucx_fail_of_loss(net, net->first_lost);
    return hc__ucx_receive(net, peer, tag, data, room, req);
}

static int test(hc_net *base, hc_net_request **req, size_t *bytes, int32_t *peer) {
    hc__ucx_net *net = (hc__ucx_net *)base;
    hc_net_request *r = *req;
    if (r->status == HC_IDLE && r->asked == net->sweep)
        hc__ucx_look(net);
    r->asked = net->sweep;
    int status = r->status;
    if (status == HC_IDLE)
        return HC_IDLE;
    if (status == HC_PEER_LOST)
        hc__ucx_fail_of_loss(net, r->lost);
    if (bytes)
        *bytes = r->bytes;
    if (peer)
        *peer = r->peer;
    r->abandoned = 1; /* for a request that a loss has ended, but UCX has not */
    if (!r->handle)
        hc__ucx_give_back(net, r);
    *req = NULL;
    return status;
}

static int cancel(hc_net *base, hc_net_request **req) {
    hc_net_request *r = *req;
    *req = NULL;
    return hc__ucx_withdraw((hc__ucx_net *)base, r);
}

static const struct hc_net_ops ucx_ops = {
    .name = "ucx", .isend = isend, .irecv = irecv, .test = test, .cancel = cancel, .free = hc__ucx_free};

/* ---- the beginning --------------------------------------------------------------------------------------- */

static ucs_status_t configure(ucp_config_t *config, const char *const *settings, char why[HC_UCX_WHY]) {
    for (; *settings; settings += 2) {
        ucs_status_t status = hc__ucx.ucp_config_modify(config, settings[0], settings[1]);
        if (status != UCS_OK) {
            snprintf(why, HC_UCX_WHY, "UCX refuses %s=%s: %s", settings[0], settings[1],
                     hc__ucx.ucs_status_string(status));
            return status;
        }
    }
    return UCS_OK;
}

static ucs_status_t open_context(hc__ucx_net *net, const char *const *settings, char why[HC_UCX_WHY]) {
    ucp_config_t *config;
    const ucp_params_t parameters = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_TAG,
        .tag_sender_mask = HC__UCX_SOURCE_MASK,
        .estimated_num_eps = (size_t)net->base.size,
    };
    ucs_status_t status = hc__ucx.ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    status = configure(config, settings, why);
    if (status == UCS_OK)
        status = hc__ucx.ucp_init_version(1, 13, &parameters, config, &net->context);
    hc__ucx.ucp_config_release(config);
    return status;
}

static ucs_status_t open_worker(hc__ucx_net *net) {
    const ucp_worker_params_t parameters = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                            .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = hc__ucx.ucp_worker_create(net->context, &parameters, &net->worker);
    if (status != UCS_OK)
        return status;
    return hc__ucx.ucp_worker_get_address(net->worker, &net->address, &net->address_bytes);
}

int hc_ucx_net_new(int32_t rank, int32_t size, const char *const *settings, hc_net **out, char why[HC_UCX_WHY]) {
    *out = NULL;
    why[0] = 0;
    if (size > HC__UCX_RANKS) {
        snprintf(why, HC_UCX_WHY, "%d ranks, and it connects %d at most", (int)size, HC__UCX_RANKS);
        return HC_INVALID;
    }
    hc__ucx_net *net = calloc(1, sizeof *net);
    hc__ucx_peer *peers = calloc((size_t)size, sizeof *peers);
    uint8_t *lost = calloc((size_t)size, 1);
    if (!net || !peers || !lost) {
        free(net);
        free(peers);
        free(lost);
        return HC_NO_MEMORY;
    }
    net->base = (hc_net){
        .ops = &ucx_ops, .rank = rank, .size = size, .max_tag = HC__UCX_GOODBYE - 1, .lost_peers = lost};
    net->peers = peers;
    net->lost = lost;
    net->first_lost = -1;
    net->owner = getpid();
    sigset_t all, before; /* UCX's thread inherits the mask and must not get the program's signals */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ucs_status_t status = open_context(net, settings, why);
    if (status == UCS_OK)
        status = open_worker(net);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != UCS_OK) {
        if (!why[0])
            snprintf(why, HC_UCX_WHY, "%s", hc__ucx.ucs_status_string(status));
        hc__ucx_free(&net->base);
        return status == UCS_ERR_NO_MEMORY ? HC_NO_MEMORY : HC_TRANSPORT;
    }
    *out = &net->base;
    return HC_OK;
}

const void *hc_ucx_net_address(hc_net *base, size_t *bytes) {
    const hc__ucx_net *net = (const hc__ucx_net *)base;
    *bytes = net->address_bytes;
    return net->address;
}

int hc_ucx_net_connect(hc_net *base, uint16_t generation, int has_rdma, const void *const *addresses,
                       const size_t *bytes) {
    hc__ucx_net *net = (hc__ucx_net *)base;
    size_t all = 0;
    for (int32_t rank = 0; rank < base->size; rank++)
        all += bytes[rank];
    if (!(net->addresses = malloc(all + 1)))
        return HC_NO_MEMORY;
    char *to = net->addresses;
    for (int32_t rank = 0; rank < base->size; rank++) {
        net->peers[rank].net = net;
        net->peers[rank].address = memcpy(to, addresses[rank], bytes[rank]);
        to += bytes[rank];
    }
    hc__ucx.ucp_worker_release_address(net->worker, net->address);
    net->address = NULL;
    net->generation = (ucp_tag_t)generation << HC__UCX_GENERATION;
    base->message_bytes = has_rdma ? MESSAGE_BYTES_RDMA : MESSAGE_BYTES;
    return hc__ucx_expect_goodbyes(net);
}
