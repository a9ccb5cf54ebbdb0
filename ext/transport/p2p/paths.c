/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c - the paths of a large message: a read of the sender's memory, cells of the control segment, the net, or a
 * copy inside this rank.
 */
#include <stdlib.h>
#include <string.h>

#include "core/reserve.h"
#include "transport/p2p/p2p_state.h"
#include "transport/shm/cells.h"

#define READ_BYTES ((size_t)1 << 20) /* per call, so that the driver can do other work between calls */

static size_t least(size_t a, uint64_t b) {
    return a < b ? a : (size_t)b;
}

/* ---- inside this rank ------------------------------------------------------------------------------ */

static int copy_to_self(hc_p2p *p2p, hc_p2p_op *send) {
    hc_p2p_op *receive = hc__p2p_queue_find(&p2p->queues.cleared, p2p->rank, send->peer_number);
    if (receive) {
        memmove(receive->data, send->data, (size_t)send->bytes);
        hc__p2p_finish(p2p, receive, HC_OK);
    }
    hc__p2p_finish(p2p, send, HC_OK);
    return HC_MOVED;
}

/* ---- in the sender's memory ------------------------------------------------------------------------ */

/* The receiver makes one copy. If it cannot read the memory, or the send was withdrawn meanwhile, it sends a CTS
 * instead; the sender answers a CTS for a withdrawn send with GONE. */
static int read_source(hc_p2p *p2p, hc_p2p_op *receive) {
    int32_t local = p2p->local_of[receive->peer];
    size_t n = least(READ_BYTES, receive->received - receive->moved);
    int is_read = hc__node_control_read(p2p->node_control, local, (uint8_t *)receive->data + receive->moved,
                                        receive->source + receive->moved, n);
    receive->moved += n;
    if (is_read && receive->moved < receive->received)
        return HC_MOVED;
    if (!is_read || hc__node_control_withdrawn(p2p->node_control, local) != receive->withdrawn) {
        receive->moved = receive->source = 0;
        hc__p2p_queue_remove(receive);
        int status = hc__p2p_clear(p2p, receive);
        return status < 0 ? status : HC_MOVED;
    }
    hc__p2p_header end = {.kind = HC__P2P_FIN, .to = receive->peer_number};
    int32_t peer = receive->peer;
    hc__p2p_finish(p2p, receive, HC_OK);
    int status = hc__p2p_send_header(p2p, peer, &end, NULL);
    return status < 0 ? status : HC_MOVED;
}

/* ---- inside the node ------------------------------------------------------------------------------- */

static int send_through_cells(hc_p2p *p2p, hc_p2p_op *send) {
    hc__cells *cells = hc__node_control_cells(p2p->node_control, p2p->local);
    int moved = HC_IDLE;
    while (send->moved < send->bytes) {
        int cell = hc__cell_take(cells, p2p->local_size);
        if (cell < 0)
            return moved;
        size_t n = least(hc__cell_room(p2p->local_size), send->bytes - send->moved);
        hc_host_copy(hc__cell_at(cells, p2p->local_size, cell), (const uint8_t *)send->data + send->moved, n);
        hc__p2p_header header = {.kind = HC__P2P_CELL, .to = send->peer_number, .cell = (uint16_t)cell, .bytes = n};
        int status = hc__p2p_send_header(p2p, send->peer, &header, NULL);
        if (status < 0)
            return status;
        send->moved += n;
        moved = HC_MOVED;
    }
    hc__p2p_finish(p2p, send, HC_OK);
    return HC_MOVED;
}

const uint8_t *hc__p2p_cell(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header) {
    int32_t local = p2p->local_of[peer];
    if (local < 0 || header->cell >= hc__cells_count(p2p->local_size) || header->bytes > hc__cell_room(p2p->local_size))
        return NULL;
    return hc__cell_at(hc__node_control_cells(p2p->node_control, local), p2p->local_size, header->cell);
}

void hc__p2p_cell_read(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header) {
    int32_t local = p2p->local_of[peer];
    if (hc__cell_give(hc__node_control_cells(p2p->node_control, local), header->cell))
        hc_doorbell_ring(p2p->node_control, local);
}

int hc__p2p_read_cell(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header, hc_p2p_op *receive) {
    const uint8_t *content = hc__p2p_cell(p2p, peer, header);
    if (!content || !receive || header->bytes > receive->received - receive->moved)
        return HC_BAD_MESSAGE;
    hc_host_copy((uint8_t *)receive->data + receive->moved, content, (size_t)header->bytes);
    hc__p2p_cell_read(p2p, peer, header);
    receive->moved += header->bytes;
    if (receive->moved == receive->received)
        hc__p2p_finish(p2p, receive, HC_OK);
    return HC_OK;
}

/* ---- between nodes --------------------------------------------------------------------------------- */

/* All large messages use one tag and are cut into pieces, so only one at a time moves from one rank to another. */
static int is_path_free(const hc_p2p_op *op, const hc__p2p_queue *queue) {
    for (const hc_p2p_op *before = queue->first; before != op; before = before->next)
        if (before->peer == op->peer)
            return 0;
    return 1;
}

static int start_over_net(hc_p2p *p2p, hc_p2p_op *op) {
    op->path = hc_calloc(1, sizeof *op->path);
    if (!op->path)
        return HC_NO_MEMORY;
    op->path->net = p2p->net;
    if (op->receives)
        return hc__bundle_receive(op->path, op->peer, HC_TAG_P2P, op->data, (int64_t)op->received);
    hc__p2p_header header = {.kind = HC__P2P_RNDV, .to = op->peer_number};
    int status = hc__p2p_send_header(p2p, op->peer, &header, NULL);
    return status < 0 ? status : hc__bundle_send(op->path, op->peer, HC_TAG_P2P, op->data, (int64_t)op->bytes);
}

static int move_over_net(hc_p2p *p2p, hc_p2p_op *op, const hc__p2p_queue *queue) {
    int progress = HC_OK, starts = !op->path;
    if (starts && !is_path_free(op, queue))
        return HC_IDLE;
    if (starts)
        progress = start_over_net(p2p, op);
    if (progress >= 0)
        progress = hc__bundle_test(op->path);
    if (progress < HC_DONE)
        return progress == HC_IDLE && starts ? HC_MOVED : progress;
    hc__p2p_finish(p2p, op, HC_OK);
    return HC_MOVED;
}

/* ---- the choice of the path ------------------------------------------------------------------------ */

int hc__p2p_send_bytes(hc_p2p *p2p, hc_p2p_op *send) {
    if (send->peer == p2p->rank)
        return copy_to_self(p2p, send);
    if (p2p->local_of[send->peer] >= 0)
        return send_through_cells(p2p, send);
    return move_over_net(p2p, send, &p2p->queues.sending);
}

int hc__p2p_receive_bytes(hc_p2p *p2p, hc_p2p_op *receive) {
    return receive->source ? read_source(p2p, receive) : move_over_net(p2p, receive, &p2p->queues.receiving);
}
