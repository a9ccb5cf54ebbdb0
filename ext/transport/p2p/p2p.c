/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p.c - point-to-point messages: posts them, reads their headers from the control edges, moves and finishes them.
 *
 *     small    EAGER or IN_CELL ---------> copied to its receive, or kept until that is posted
 *     large    RTS ----------------------> waits for its receive
 *              <---------------------- FIN   read in the sender's memory, where the system allows it; else
 *              <---------------------- CTS
 *              CELL, CELL, ... or RNDV and the net's messages
 *
 * The eager and the rendezvous protocol of MPI libraries. All headers go over the control edges, which keep the order
 * of the messages. The bytes of eager messages that a peer has not yet received are limited; beyond the limit a message
 * is announced like a large one. So no memory grows without limit if a receiver does not receive.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/p2p/p2p_state.h"
#include "transport/shm/cells.h"

#define INLINE_MAX 1024 /* bytes: inside the node, larger messages go through a cell, not a ring */

/* ---- posting --------------------------------------------------------------------------------------- */

static void move_to(hc__p2p_queue *queue, hc_p2p_op *op) {
    if (op->queue)
        hc__p2p_queue_remove(op);
    hc__p2p_queue_add(queue, op);
}

/* The credit that an eager send costs; 0: it must be announced. */
static uint64_t eager_cost(const hc_p2p *p2p, const hc_p2p_op *send) {
    uint64_t cost = sizeof(hc__p2p_header) + send->bytes;
    return send->bytes <= HC_P2P_EAGER_MAX && p2p->credits[send->peer].used + cost <= HC__P2P_CREDIT_MAX ? cost : 0;
}

static int takes(hc_p2p *p2p, int32_t peer, uint64_t bytes) {
    return p2p->control->ops->takes(p2p->control, peer, (size_t)bytes);
}

/* Sends the bytes in one of this rank's cells. 1: sent; 0: no room; or a status. */
static int send_in_cell(hc_p2p *p2p, const hc_p2p_op *send, hc__p2p_header *header) {
    int room = p2p->local_of[send->peer] < 0 ? 0 : takes(p2p, send->peer, sizeof *header);
    if (room <= 0)
        return room;
    hc__cells *cells = hc__node_control_cells(p2p->node_control, p2p->local);
    int cell = hc__cell_take(cells, p2p->local_size);
    if (cell < 0)
        return 0;
    hc_host_copy(hc__cell_at(cells, p2p->local_size, cell), send->data, (size_t)send->bytes);
    header->kind = HC__P2P_IN_CELL;
    header->cell = (uint16_t)cell;
    int status = hc__p2p_send_header(p2p, send->peer, header, NULL);
    return status < 0 ? status : 1;
}

/* Sends a message if it can leave this process now, so that no driver has to move it later. 1: sent; 0: no room; or a
 * status. */
static int send_at_once(hc_p2p *p2p, const hc_p2p_op *send, hc__p2p_header *header, uint64_t cost) {
    int fits = send->bytes > INLINE_MAX && p2p->local_of[send->peer] >= 0 ? 0 : takes(p2p, send->peer, cost);
    if (fits <= 0)
        return fits < 0 ? fits : send_in_cell(p2p, send, header);
    int status = hc__p2p_send_header(p2p, send->peer, header, send->data);
    return status < 0 ? status : 1;
}

/* 1: sent; 0: it must wait for room; or a status. */
static int send_whole(hc_p2p *p2p, hc_p2p_op *send, hc__p2p_header *header, uint64_t cost) {
    int is_self = send->peer == p2p->rank, sent = is_self ? 0 : send_at_once(p2p, send, header, cost);
    if (sent == 0 && p2p->holds && !is_self)
        return 0;
    p2p->credits[send->peer].used += cost; /* first: reading a message to itself returns the credit */
    if (sent == 0)
        sent = hc__p2p_send_header(p2p, send->peer, header, send->data);
    if (sent < 0)
        return sent;
    if (p2p->holds && !is_self)
        move_to(&p2p->queues.leaving, send);
    else
        hc__p2p_finish(p2p, send, HC_OK);
    return 1;
}

static int announce(hc_p2p *p2p, hc_p2p_op *send, hc__p2p_header *header) {
    hc__p2p_source source = {(uint64_t)(uintptr_t)send->data,
                             hc__node_control_withdrawn(p2p->node_control, p2p->local)};
    int room = p2p->holds && send->peer != p2p->rank ? takes(p2p, send->peer, sizeof *header + sizeof source) : 1;
    if (room <= 0)
        return room;
    header->kind = HC__P2P_RTS;
    header->from = send->number = ++p2p->numbers;
    move_to(&p2p->queues.announced, send);
    int status = hc__p2p_send_header(p2p, send->peer, header, &source);
    return status < 0 ? status : 1;
}

/* 1: started; 0: it must wait for room, and the peer knows nothing of it; or a status. */
static int begin_send(hc_p2p *p2p, hc_p2p_op *send) {
    hc__p2p_header header = {.kind = HC__P2P_EAGER,
                             .set = send->set,
                             .tag = send->tag,
                             .context = send->context,
                             .to = send->serial,
                             .bytes = send->bytes,
                             .type = send->type};
    uint64_t cost = eager_cost(p2p, send);
    return cost ? send_whole(p2p, send, &header, cost) : announce(p2p, send, &header);
}

static int is_behind(const hc__p2p_queue *queue, const hc_p2p_op *send) {
    const hc_p2p_op *before = queue->first;
    while (before && before != send && before->peer != send->peer)
        before = before->next;
    return before && before != send;
}

static int post_send(hc_p2p *p2p, hc_p2p_op *send) {
    p2p->serials = p2p->serials < HC_P2P_SERIAL_MAX ? p2p->serials + 1 : 1;
    send->serial = p2p->serials;
    int started = is_behind(&p2p->queues.held, send) ? 0 : begin_send(p2p, send);
    if (started == 0)
        hc__p2p_queue_add(&p2p->queues.held, send);
    return started < 0 ? started : HC_OK;
}

/* ---- sends that wait for room ---------------------------------------------------------------------------- */

static int move_held(hc_p2p *p2p, hc_p2p_op *send) {
    if (is_behind(&p2p->queues.held, send))
        return HC_IDLE;
    int started = begin_send(p2p, send);
    return started < 0 ? started : started ? HC_MOVED : HC_IDLE;
}

static int move_leaving(hc_p2p *p2p, hc_p2p_op *send) {
    if (!p2p->control->ops->has_left(p2p->control, send->peer))
        return HC_IDLE;
    hc__p2p_finish(p2p, send, HC_OK);
    return HC_MOVED;
}

void hc_p2p_hold(hc_p2p *p2p) {
    p2p->holds = 1;
}

/* ---- posted ---------------------------------------------------------------------------------------------- */

int hc_p2p_post(hc_p2p *p2p, hc_p2p_op *op) {
    if (op->peer < (op->receives ? HC_ANY_PEER : 0) || op->peer >= p2p->size)
        return HC_INVALID;
    op->queue = NULL;
    op->path = NULL;
    op->status = HC_OK;
    op->received = op->moved = op->source = 0;
    int status = op->receives ? hc__p2p_post_receive(p2p, op) : post_send(p2p, op);
    if (status < 0 && op->queue)
        hc__p2p_queue_remove(op);
    return status;
}

/* ---- headers in ------------------------------------------------------------------------------------ */

static int read_cts(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header) {
    hc_p2p_op *send = hc__p2p_queue_find(&p2p->queues.announced, peer, header->to);
    if (!send)
        return hc__p2p_send_header(p2p, peer, &(hc__p2p_header){.kind = HC__P2P_GONE, .to = header->from}, NULL);
    hc__p2p_queue_remove(send);
    send->peer_number = header->from;
    hc__p2p_queue_add(&p2p->queues.sending, send);
    return HC_OK;
}

static int read_rndv(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header) {
    hc_p2p_op *receive = hc__p2p_queue_find(&p2p->queues.cleared, peer, header->to);
    if (!receive || !p2p->net)
        return HC_BAD_MESSAGE;
    hc__p2p_queue_remove(receive);
    hc__p2p_queue_add(&p2p->queues.receiving, receive);
    return HC_OK;
}

static int read_in_cell(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header) {
    const uint8_t *content = hc__p2p_cell(p2p, peer, header);
    hc__p2p_header whole = *header;
    if (!content)
        return HC_BAD_MESSAGE;
    whole.kind = HC__P2P_EAGER;
    int status = hc__p2p_match(p2p, peer, &whole, content);
    hc__p2p_cell_read(p2p, peer, header);
    return status;
}

/* Finishes an operation that the peer has ended, if it still exists. */
static int end(hc_p2p *p2p, const hc__p2p_queue *queue, int32_t peer, uint32_t number, int status) {
    hc_p2p_op *op = hc__p2p_queue_find(queue, peer, number);
    if (op)
        hc__p2p_finish(p2p, op, status);
    return HC_OK;
}

static int read_header(hc_p2p *p2p, int32_t peer, const hc__p2p_header *header, const void *content) {
    switch (header->kind) {
    case HC__P2P_EAGER:
    case HC__P2P_RTS:
        return hc__p2p_match(p2p, peer, header, content);
    case HC__P2P_CTS:
        return read_cts(p2p, peer, header);
    case HC__P2P_FIN:
        return end(p2p, &p2p->queues.announced, peer, header->to, HC_OK);
    case HC__P2P_CELL:
        return hc__p2p_read_cell(p2p, peer, header, hc__p2p_queue_find(&p2p->queues.cleared, peer, header->to));
    case HC__P2P_RNDV:
        return read_rndv(p2p, peer, header);
    case HC__P2P_GONE:
        return end(p2p, &p2p->queues.cleared, peer, header->to, HC_SHUT_DOWN);
    case HC__P2P_IN_CELL:
        return read_in_cell(p2p, peer, header);
    case HC__P2P_CREDIT:
        if (header->bytes > p2p->credits[peer].used)
            return HC_BAD_MESSAGE;
        p2p->credits[peer].used -= header->bytes;
        return HC_OK;
    default:
        return HC_BAD_MESSAGE;
    }
}

int hc_p2p_message(hc_p2p *p2p, int32_t peer, const uint8_t *bytes, size_t nbytes) {
    hc__p2p_header header;
    if (nbytes == 0 || bytes[0] != HC__P2P_MARK)
        return 0;
    if (p2p->abandoned)
        return 1;
    if (nbytes < sizeof header)
        return HC_BAD_MESSAGE;
    memcpy(&header, bytes, sizeof header);
    if (nbytes - sizeof header != hc__p2p_content_bytes(&header))
        return HC_BAD_MESSAGE;
    int status = read_header(p2p, peer, &header, bytes + sizeof header);
    return status < 0 ? status : 1;
}

/* ---- for the driver -------------------------------------------------------------------------------- */

static int move_all(hc_p2p *p2p, hc__p2p_queue *queue, int (*move)(hc_p2p *, hc_p2p_op *)) {
    int moved = HC_IDLE;
    for (hc_p2p_op *op = queue->first, *next; op; op = next) {
        next = op->next; /* it may be finished now */
        int progress = move(p2p, op);
        if (progress < 0)
            return progress;
        moved |= progress;
    }
    return moved;
}

int hc_p2p_progress(hc_p2p *p2p) {
    const struct {
        hc__p2p_queue *queue;
        int (*move)(hc_p2p *, hc_p2p_op *);
    } kinds[] = {{&p2p->queues.held, move_held},
                 {&p2p->queues.leaving, move_leaving},
                 {&p2p->queues.sending, hc__p2p_send_bytes},
                 {&p2p->queues.receiving, hc__p2p_receive_bytes}};
    int moved = HC_IDLE;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int progress = kinds[i].queue->first ? move_all(p2p, kinds[i].queue, kinds[i].move) : HC_IDLE;
        if (progress < 0)
            return progress;
        moved |= progress;
    }
    return moved;
}

hc_p2p_op *hc_p2p_done(hc_p2p *p2p) {
    hc_p2p_op *op = p2p->queues.done.first;
    if (op)
        hc__p2p_queue_remove(op);
    return op;
}

int hc_p2p_is_moving(const hc_p2p *p2p) {
    return p2p->queues.held.first || p2p->queues.leaving.first || p2p->queues.sending.first ||
           p2p->queues.receiving.first || p2p->queues.cleared.first || p2p->queues.done.first;
}

int hc_p2p_withdraw(hc_p2p *p2p, hc_p2p_op *op) {
    if (op->queue != &p2p->queues.open && op->queue != &p2p->queues.announced && op->queue != &p2p->queues.held)
        return 0;
    if (op->queue == &p2p->queues.announced)
        hc__node_control_withdraw(p2p->node_control); /* a receiver may be reading its bytes */
    hc__p2p_queue_remove(op);
    return 1;
}

/* 1: the forgotten set, or an earlier set of its number, whose messages may arrive late. */
static int is_over(uint32_t set, uint32_t forgotten) {
    return set % HC_MAX_SETS == forgotten % HC_MAX_SETS && set <= forgotten;
}

void hc_p2p_forget(hc_p2p *p2p, uint32_t set) {
    for (hc__p2p_unexpected **link = &p2p->unexpected; *link;) {
        if (is_over((*link)->header.set, set))
            hc__p2p_drop_unexpected(p2p, link);
        else
            link = &(*link)->next;
    }
}

/* ---- from start to end ------------------------------------------------------------------------------ */

static void drop_all(hc__p2p_queue *queue) {
    while (queue->first) {
        hc_p2p_op *op = queue->first;
        hc__p2p_queue_remove(op);
        hc__p2p_close_path(op);
    }
}

void hc_p2p_abandon(hc_p2p *p2p) {
    p2p->abandoned = 1;
    hc__node_control_withdraw(p2p->node_control);
    hc__p2p_queue *queues[] = {&p2p->queues.open,      &p2p->queues.held,    &p2p->queues.leaving,
                               &p2p->queues.announced, &p2p->queues.cleared, &p2p->queues.receiving,
                               &p2p->queues.sending,   &p2p->queues.done};
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++)
        drop_all(queues[i]);
    while (p2p->unexpected)
        hc__p2p_drop_unexpected(p2p, &p2p->unexpected);
}

void hc_p2p_free(hc_p2p *p2p) {
    if (!p2p)
        return;
    hc_p2p_abandon(p2p);
    free(p2p->local_of);
    free(p2p->credits);
    free(p2p->message);
    free(p2p);
}

int hc_p2p_new(hc_node_control *node_control, hc_net *net, hc_control *control, const int32_t *local_of, int32_t rank,
               int32_t size, hc_p2p **out) {
    hc_p2p *p2p = calloc(1, sizeof *p2p);
    if (!p2p)
        return HC_NO_MEMORY;
    *p2p = (hc_p2p){.node_control = node_control,
                    .net = net,
                    .control = control,
                    .rank = rank,
                    .size = size,
                    .local = hc__node_control_rank(node_control),
                    .local_size = hc__node_control_size(node_control),
                    .read = read_header};
    p2p->last_unexpected = &p2p->unexpected;
    p2p->local_of = malloc((size_t)size * sizeof *local_of);
    p2p->credits = calloc((size_t)size, sizeof *p2p->credits);
    p2p->message = malloc(sizeof(hc__p2p_header) + HC_P2P_EAGER_MAX);
    if (!p2p->local_of || !p2p->credits || !p2p->message) {
        hc_p2p_free(p2p);
        return HC_NO_MEMORY;
    }
    memcpy(p2p->local_of, local_of, (size_t)size * sizeof *local_of);
    *out = p2p;
    return HC_OK;
}
