/* SPDX-License-Identifier: Apache-2.0
 *
 * queues.c - moves operations between queues, and sends headers.
 */
#include <stdlib.h>
#include <string.h>

#include "core/reserve.h"
#include "transport/p2p/p2p_state.h"

void hc__p2p_queue_add(hc__p2p_queue *queue, hc_p2p_op *op) {
    op->queue = queue;
    op->next = NULL;
    if (queue->first)
        queue->last->next = op;
    else
        queue->first = op;
    queue->last = op;
}

void hc__p2p_queue_remove(hc_p2p_op *op) {
    hc__p2p_queue *queue = op->queue;
    hc_p2p_op *before = NULL, *at = queue->first;
    while (at != op) {
        before = at;
        at = at->next;
    }
    if (before)
        before->next = op->next;
    else
        queue->first = op->next;
    if (queue->last == op)
        queue->last = before;
    op->queue = NULL;
}

hc_p2p_op *hc__p2p_queue_find(const hc__p2p_queue *queue, int32_t peer, uint32_t number) {
    for (hc_p2p_op *op = queue->first; op; op = op->next)
        if (op->number == number && op->peer == peer)
            return op;
    return NULL;
}

void hc__p2p_close_path(hc_p2p_op *op) {
    if (!op->path)
        return;
    hc__bundle_free(op->path);
    hc_free(op->path);
    op->path = NULL;
}

void hc__p2p_finish(hc_p2p *p2p, hc_p2p_op *op, int status) {
    if (op->queue)
        hc__p2p_queue_remove(op);
    hc__p2p_close_path(op);
    op->status = status;
    hc__p2p_queue_add(&p2p->queues.done, op);
}

size_t hc__p2p_content_bytes(const hc__p2p_header *header) {
    return header->kind == HC__P2P_EAGER ? (size_t)header->bytes
           : header->kind == HC__P2P_RTS ? sizeof(hc__p2p_source)
                                         : 0;
}

int hc__p2p_send_header(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header, const void *content) {
    size_t bytes = hc__p2p_content_bytes(header);
    if (peer == p2p->rank)
        return p2p->read(p2p, peer, header, content);
    hc__p2p_header marked = *header;
    marked.mark = HC__P2P_MARK;
    memcpy(p2p->message, &marked, sizeof marked);
    if (content)
        hc_host_copy(p2p->message + sizeof marked, content, bytes);
    return p2p->control->ops->send(p2p->control, peer, p2p->message, sizeof marked + bytes);
}

int hc__p2p_clear(hc_p2p *p2p, hc_p2p_op *receive) {
    receive->number = ++p2p->numbers;
    hc__p2p_queue_add(&p2p->queues.cleared, receive);
    hc__p2p_header clear = {.kind = HC__P2P_CTS, .to = receive->peer_number, .from = receive->number};
    return hc__p2p_send_header(p2p, receive->peer, &clear, NULL);
}
