/* SPDX-License-Identifier: Apache-2.0
 *
 * match.c - matches receives and messages, in the order in which they were posted and arrived.
 *
 * A receive takes the earliest matching message, a message the earliest matching receive. Unmatched receives wait in
 * `open`, unmatched messages in `unexpected`.
 */
#include <stdlib.h>
#include <string.h>

#include "core/reserve.h"
#include "transport/p2p/p2p_state.h"

/* Returns credit for a received eager message to its sender, in few headers: only when much is owed. */
static int return_credit(hc_p2p *p2p, int32_t peer, uint64_t bytes) {
    hc__p2p_credit *credit = &p2p->credits[peer];
    credit->owed += sizeof(hc__p2p_header) + bytes;
    if (credit->owed < HC__P2P_CREDIT_MAX / 4)
        return HC_OK;
    hc__p2p_header header = {.kind = HC__P2P_CREDIT, .bytes = credit->owed};
    credit->owed = 0;
    return hc__p2p_send_header(p2p, peer, &header, NULL);
}

static void describe(hc_p2p_op *receive, int32_t peer, const hc__p2p_header *header) {
    receive->peer = peer;
    receive->tag = header->tag;
    receive->received = header->bytes;
    receive->came = header->type;
    receive->serial = header->to;
}

/* Describes the message in the receive; OK, or the status if the receive cannot take it. */
static int fit(hc_p2p_op *receive, int32_t peer, const hc__p2p_header *header) {
    describe(receive, peer, header);
    if (receive->type && header->type && receive->type != header->type)
        return HC_MISMATCH;
    if (receive->flags & HC_P2P_ALLOCATES) {
        receive->data = malloc((size_t)header->bytes + 1);
        return receive->data ? HC_OK : HC_NO_MEMORY;
    }
    int fits = header->bytes == receive->bytes || (header->bytes < receive->bytes && !(receive->flags & HC_P2P_EXACT));
    return fits ? HC_OK : HC_RESULT_SIZE;
}

/* Pairs a message with a receive, which is in no queue. */
static int pair(hc_p2p *p2p, hc_p2p_op *receive, int32_t peer, const hc__p2p_header *header, const void *content) {
    int status = fit(receive, peer, header);
    if (header->kind == HC__P2P_EAGER) {
        if (status == HC_OK)
            hc_host_copy(receive->data, content, (size_t)header->bytes);
        hc__p2p_finish(p2p, receive, status);
        return return_credit(p2p, peer, header->bytes);
    }
    if (status < 0 || header->bytes == 0) {
        hc__p2p_finish(p2p, receive, status);
        return hc__p2p_send_header(p2p, peer, &(hc__p2p_header){.kind = HC__P2P_FIN, .to = header->from}, NULL);
    }
    receive->peer_number = header->from;
    if (peer == p2p->rank || p2p->local_of[peer] < 0 || !hc__node_control_reads(p2p->node_control, p2p->local_of[peer]))
        return hc__p2p_clear(p2p, receive);
    hc__p2p_source source;
    memcpy(&source, content, sizeof source);
    receive->source = source.address;
    receive->withdrawn = source.withdrawn;
    hc__p2p_queue_add(&p2p->queues.receiving, receive);
    int progress = hc__p2p_receive_bytes(p2p, receive);
    return progress < 0 ? progress : HC_OK;
}

static int is_match(const hc_p2p_op *receive, int32_t peer, const hc__p2p_header *header) {
    return receive->set == header->set && receive->context == header->context &&
           (receive->tag == header->tag || receive->flags & HC_P2P_ANY_TAG) &&
           (receive->peer == peer || receive->peer == HC_ANY_PEER);
}

/* Shows an unmatched message to the matching probes. */
static void show(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header) {
    for (hc_p2p_op *probe = p2p->queues.open.first, *next; probe; probe = next) {
        next = probe->next;
        if (!(probe->flags & HC_P2P_PROBE) || !is_match(probe, peer, header))
            continue;
        describe(probe, peer, header);
        hc__p2p_finish(p2p, probe, HC_OK);
    }
}

static int keep(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header, const void *content) {
    size_t bytes = hc__p2p_content_bytes(header);
    hc__p2p_unexpected *message = hc_malloc(sizeof *message + bytes);
    if (!message)
        return HC_NO_MEMORY;
    message->next = NULL;
    message->header = *header;
    message->peer = peer;
    hc_host_copy(message->content, content, bytes);
    *p2p->last_unexpected = message;
    p2p->last_unexpected = &message->next;
    show(p2p, peer, header);
    return HC_OK;
}

int hc__p2p_match(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header, const void *content) {
    for (hc_p2p_op *receive = p2p->queues.open.first; receive; receive = receive->next) {
        if (receive->flags & HC_P2P_PROBE || !is_match(receive, peer, header))
            continue;
        hc__p2p_queue_remove(receive);
        return pair(p2p, receive, peer, header, content);
    }
    return keep(p2p, peer, header, content);
}

/* Removes the message at *link from the list; the caller frees it. */
static hc__p2p_unexpected *take(hc_p2p *p2p, hc__p2p_unexpected **link) {
    hc__p2p_unexpected *message = *link;
    *link = message->next;
    if (p2p->last_unexpected == &message->next)
        p2p->last_unexpected = link;
    return message;
}

void hc__p2p_drop_unexpected(hc_p2p *p2p, hc__p2p_unexpected **link) {
    hc__p2p_unexpected *message = take(p2p, link);
    if (message->header.kind == HC__P2P_EAGER && !p2p->abandoned)
        return_credit(p2p, message->peer, message->header.bytes);
    hc_free(message);
}

static int post_probe(hc_p2p *p2p, hc_p2p_op *probe) {
    hc__p2p_unexpected *message = p2p->unexpected;
    while (message && !is_match(probe, message->peer, &message->header))
        message = message->next;
    if (!message && !(probe->flags & HC_P2P_PROBE_NOW)) {
        hc__p2p_queue_add(&p2p->queues.open, probe);
        return HC_OK;
    }
    if (message)
        describe(probe, message->peer, &message->header);
    else
        probe->peer = HC_ANY_PEER;
    hc__p2p_finish(p2p, probe, HC_OK);
    return HC_OK;
}

int hc__p2p_post_receive(hc_p2p *p2p, hc_p2p_op *receive) {
    if (receive->flags & HC_P2P_PROBE)
        return post_probe(p2p, receive);
    for (hc__p2p_unexpected **link = &p2p->unexpected; *link; link = &(*link)->next) {
        if (!is_match(receive, (*link)->peer, &(*link)->header))
            continue;
        hc__p2p_unexpected *message = take(p2p, link);
        int status = pair(p2p, receive, message->peer, &message->header, message->content);
        hc_free(message);
        return status;
    }
    hc__p2p_queue_add(&p2p->queues.open, receive);
    return HC_OK;
}
