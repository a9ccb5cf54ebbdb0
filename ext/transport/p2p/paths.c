/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c - how the bytes of a large message go: through cells, over the net, or from one place of this rank to
 * another.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/p2p/internal.h"

static size_t least(size_t a, uint64_t b) {
    return a < b ? a : (size_t)b;
}

/* ---- inside this rank ------------------------------------------------------------------------------ */

static int to_myself(hc_p2p *p2p, hc_p2p_op *send) {
    for (hc_p2p_op *receive = p2p->granted.first; receive; receive = receive->next) {
        if (receive->number != send->theirs || receive->peer != p2p->rank)
            continue;
        memmove(receive->data, send->data, (size_t)send->bytes);
        hc__p2p_finish(p2p, receive, HC_OK);
        break;
    }
    hc__p2p_finish(p2p, send, HC_OK);
    return HC_MOVED;
}

/* ---- inside the node ------------------------------------------------------------------------------- */

static int through_cells(hc_p2p *p2p, hc_p2p_op *send) {
    hc__cells *cells = hc__node_control_cells(p2p->node_control, hc__node_control_rank(p2p->node_control));
    int moved = HC_IDLE;
    while (send->moved < send->bytes) {
        int cell = hc__cell_take(cells, p2p->local_size);
        if (cell < 0)
            return moved;
        size_t n = least(hc__cell_room(p2p->local_size), send->bytes - send->moved);
        memcpy(hc__cell_at(cells, p2p->local_size, cell), (const uint8_t *)send->data + send->moved, n);
        hc__slip slip = {.kind = HC__CELL, .to = send->theirs, .cell = (uint16_t)cell, .bytes = n};
        int status = hc__p2p_tell(p2p, send->peer, &slip, NULL);
        if (status < 0)
            return status;
        send->moved += n;
        moved = HC_MOVED;
    }
    hc__p2p_finish(p2p, send, HC_OK);
    return HC_MOVED;
}

int hc__cell_arrived(hc_p2p *p2p, int32_t peer, const hc__slip *slip, hc_p2p_op *receive) {
    int32_t local = p2p->local_of[peer];
    if (local < 0 || slip->cell >= hc__cells_count(p2p->local_size) || slip->bytes > hc__cell_room(p2p->local_size) ||
        !receive || slip->bytes > receive->bytes - receive->moved)
        return HC_BAD_MESSAGE;
    hc__cells *cells = hc__node_control_cells(p2p->node_control, local);
    memcpy((uint8_t *)receive->data + receive->moved, hc__cell_at(cells, p2p->local_size, slip->cell),
           (size_t)slip->bytes);
    if (hc__cell_give(cells, slip->cell))
        hc_bell_ring(p2p->node_control, local);
    receive->moved += slip->bytes;
    if (receive->moved == receive->bytes)
        hc__p2p_finish(p2p, receive, HC_OK);
    return HC_OK;
}

/* ---- between nodes --------------------------------------------------------------------------------- */

/* All flights use one tag and travel in pieces, so there is one at a time from one rank to another. */
static int is_way_free(const hc_p2p_op *op, const hc__pile *pile) {
    for (const hc_p2p_op *before = pile->first; before != op; before = before->next)
        if (before->peer == op->peer)
            return 0;
    return 1;
}

static int take_off(hc_p2p *p2p, hc_p2p_op *op) {
    op->way = calloc(1, sizeof *op->way);
    if (!op->way)
        return HC_NO_MEMORY;
    op->way->net = p2p->net;
    if (op->receives)
        return hc__bundle_receive(op->way, op->peer, HC_TAG_P2P, op->data, (int64_t)op->bytes);
    hc__slip slip = {.kind = HC__FLIGHT, .to = op->theirs};
    int status = hc__p2p_tell(p2p, op->peer, &slip, NULL);
    return status < 0 ? status : hc__bundle_send(op->way, op->peer, HC_TAG_P2P, op->data, (int64_t)op->bytes);
}

static int fly(hc_p2p *p2p, hc_p2p_op *op, const hc__pile *pile) {
    int progress = HC_OK, starts = !op->way;
    if (starts && !is_way_free(op, pile))
        return HC_IDLE;
    if (starts)
        progress = take_off(p2p, op);
    if (progress >= 0)
        progress = hc__bundle_test(op->way);
    if (progress < HC_DONE)
        return progress == HC_IDLE && starts ? HC_MOVED : progress;
    hc__p2p_finish(p2p, op, HC_OK);
    return HC_MOVED;
}

void hc__way_close(hc_p2p_op *op) {
    if (!op->way)
        return;
    hc__bundle_free(op->way);
    free(op->way);
    op->way = NULL;
}

/* ---- either --------------------------------------------------------------------------------------------- */

int hc__send_bytes(hc_p2p *p2p, hc_p2p_op *send) {
    if (send->peer == p2p->rank)
        return to_myself(p2p, send);
    return p2p->local_of[send->peer] >= 0 ? through_cells(p2p, send) : fly(p2p, send, &p2p->sending);
}

int hc__land_bytes(hc_p2p *p2p, hc_p2p_op *receive) {
    return fly(p2p, receive, &p2p->landing);
}
