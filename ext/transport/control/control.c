/* SPDX-License-Identifier: Apache-2.0
 *
 * control.c - the edges of the tree: delivers small messages whole and in order, over rings in the node control segment
 * or over a net.
 *
 * Each peer has one outgoing stream of bytes, in which a message is its length (8 bytes) and its body. A ring takes as
 * much of the stream as fits; a net takes frames of at most FRAME bytes, one at a time. So the same few lines split and
 * reassemble messages of any size on both paths. Unsent bytes wait in process memory.
 *
 * A poll for new messages costs a few loads: a writer marks its ring in the reader's dirty bits, and the net has one
 * posted receive from any rank.
 */
#include <stdlib.h>
#include <string.h>

#include "core/reserve.h"
#include "transport/control/control.h"

#define FRAME ((size_t)16 << 10)
#define LONGEST (UINT64_C(1) << 32) /* of a message; a larger length is corrupt */

typedef struct stream {
    uint8_t *data;
    size_t from, to, room;
} stream;

typedef struct edge {
    struct edge *next;     /* all edges */
    struct edge *next_out; /* edges with bytes to send or a SENT to report */
    int32_t peer, local;   /* World rank; local rank, -1: over the net */
    int is_out;            /* in the list `out` */
    stream out, in;
    size_t in_given; /* bytes at the front of `in` that the caller reads until its next receive */
    hc_net_request *sending;
    uint8_t *frame; /* the frame in flight; only for a net */
} edge;

typedef struct control {
    hc_control base;
    hc_node_control *node_control;
    hc_net *net;
    int32_t *local_of, world_size;
    edge *edges, *out;
    edge *given;  /* the edge of the message that the caller holds */
    edge *unread; /* an edge that may hold more whole messages */
    hc__mask dirty;
    hc_net_request *receiving;
    uint8_t frame[FRAME];
} control;

static control *control_of(hc_control *base) {
    return (control *)base;
}

/* ---- streams ------------------------------------------------------------------------------------- */

static size_t filled(const stream *s) {
    return s->to - s->from;
}

/* Makes room for n bytes at the end; NULL: out of memory. */
static uint8_t *stream_room(stream *s, size_t n) {
    if (s->from > 0 && (s->from == s->to || s->room - s->to < n)) {
        memmove(s->data, s->data + s->from, filled(s));
        s->to -= s->from;
        s->from = 0;
    }
    if (s->room - s->to < n) {
        size_t room = (s->to + n) * 2;
        uint8_t *data = hc_realloc(s->data, s->to, room);
        if (data == NULL)
            return NULL;
        s->data = data;
        s->room = room;
    }
    return s->data + s->to;
}

static int stream_add(stream *s, const void *bytes, size_t n) {
    uint8_t *room = stream_room(s, n);
    if (room == NULL)
        return HC_NO_MEMORY;
    if (n > 0)
        memcpy(room, bytes, n);
    s->to += n;
    return HC_OK;
}

/* 1: the stream begins with a whole message; 0: not yet; HC_BAD_MESSAGE: its length is corrupt. */
static int stream_message(const stream *s, const uint8_t **bytes, size_t *n) {
    uint64_t length;
    if (filled(s) < sizeof length)
        return 0;
    memcpy(&length, s->data + s->from, sizeof length);
    if (filled(s) - sizeof length < length)
        return length > LONGEST ? HC_BAD_MESSAGE : 0;
    *bytes = s->data + s->from + sizeof length;
    *n = (size_t)length;
    return 1;
}

/* ---- edges --------------------------------------------------------------------------------------- */

static edge *edge_to(control *control, int32_t peer) {
    for (edge *e = control->edges; e != NULL; e = e->next)
        if (e->peer == peer)
            return e;
    edge *e = hc_calloc(1, sizeof *e);
    if (e == NULL)
        return NULL;
    e->peer = peer;
    e->local = control->local_of[peer];
    e->next = control->edges;
    control->edges = e;
    return e;
}

static void edge_free(control *control, edge *e) {
    if (e->sending != NULL && control->net->ops->cancel(control->net, &e->sending) != HC_OK)
        e->frame = NULL; /* the library may still read the frame, so it is not freed */
    hc_free(e->out.data);
    hc_free(e->in.data);
    hc_free(e->frame);
    hc_free(e);
}

/* ---- out ----------------------------------------------------------------------------------------- */

static int push_ring(control *control, edge *e) {
    hc__ring *ring = hc__node_control_ring(control->node_control, hc__node_control_rank(control->node_control),
                                           e->local);
    size_t n = hc__ring_write(ring, hc__node_control_ring_room(control->node_control), e->out.data + e->out.from,
                              filled(&e->out));
    if (n == 0)
        return HC_IDLE;
    e->out.from += n;
    hc__node_control_mark_dirty(control->node_control, e->local);
    return HC_MOVED;
}

static int push_net(control *control, edge *e) {
    hc_net *net = control->net;
    if (e->sending != NULL) {
        int status = net->ops->test(net, &e->sending, NULL, NULL);
        if (status != HC_DONE)
            return status;
    }
    size_t n = filled(&e->out) < FRAME ? filled(&e->out) : FRAME;
    if (n == 0)
        return HC_MOVED;
    if (e->frame == NULL)
        e->frame = hc_malloc(FRAME);
    if (e->frame == NULL)
        return HC_NO_MEMORY;
    memcpy(e->frame, e->out.data + e->out.from, n);
    int status = net->ops->isend(net, e->peer, HC_TAG_CONTROL, e->frame, n, &e->sending);
    if (status < 0)
        return status; /* the unsent bytes stay queued, before any message about this failure */
    e->out.from += n;
    return HC_MOVED;
}

static int push(control *control, edge *e) {
    return e->local >= 0 ? push_ring(control, e) : push_net(control, e);
}

/* Behind what waits already: all of it or nothing. */
static int queue(edge *e, const void *bytes, size_t nbytes) {
    uint64_t length = nbytes;
    if (stream_room(&e->out, sizeof length + nbytes) == NULL)
        return HC_NO_MEMORY;
    stream_add(&e->out, &length, sizeof length);
    stream_add(&e->out, bytes, nbytes);
    return HC_OK;
}

/* Writes the message directly into the ring, if no bytes wait and there is room. This allocates nothing, so a rank that
 * is out of memory can still report it. */
static int write_ring(control *control, const edge *e, const void *bytes, size_t nbytes) {
    uint64_t length = nbytes;
    size_t room = hc__node_control_ring_room(control->node_control);
    hc__ring *ring = hc__node_control_ring(control->node_control, hc__node_control_rank(control->node_control),
                                           e->local);
    if (filled(&e->out) > 0 || room - hc__ring_filled(ring) < sizeof length + nbytes)
        return 0;
    hc__ring_write(ring, room, &length, sizeof length);
    hc__ring_write(ring, room, bytes, nbytes);
    hc__node_control_mark_dirty(control->node_control, e->local);
    return 1;
}

static void count_waiting(hc_control *base, uint32_t more) {
    uint32_t now = atomic_load_explicit(&base->waiting, memory_order_relaxed);
    atomic_store_explicit(&base->waiting, now + more, memory_order_relaxed);
}

/* The edge to a reachable peer: OK, or a status. */
static int find_way(control *control, int32_t peer, edge **e) {
    if (peer < 0 || peer >= control->world_size)
        return HC_INVALID;
    *e = edge_to(control, peer);
    if (*e == NULL)
        return HC_NO_MEMORY;
    return (*e)->local < 0 && control->net == NULL ? HC_INVALID : HC_OK;
}

static int has_left(const edge *e) {
    return filled(&e->out) == 0 && e->sending == NULL;
}

static int control_has_left(hc_control *base, int32_t peer) {
    edge *e;
    return find_way(control_of(base), peer, &e) < 0 || has_left(e);
}

/* An eighth of a ring stays free for messages that do not wait for takes(). A message too large for the whole ring does
 * not wait either. */
static int control_takes(hc_control *base, int32_t peer, size_t nbytes) {
    control *control = control_of(base);
    edge *e;
    int status = find_way(control, peer, &e);
    if (status < 0 || !has_left(e) || e->local < 0)
        return status < 0 ? status : has_left(e);
    size_t room = hc__node_control_ring_room(control->node_control);
    hc__ring *ring = hc__node_control_ring(control->node_control, hc__node_control_rank(control->node_control),
                                           e->local);
    size_t needed = sizeof(uint64_t) + nbytes + room / 8;
    return needed <= room && hc__ring_has_room(ring, room, needed);
}

static int control_send(hc_control *base, int32_t peer, const void *bytes, size_t nbytes) {
    control *control = control_of(base);
    edge *e;
    int status = find_way(control, peer, &e);
    if (status < 0)
        return status;
    int sent = e->local >= 0 && write_ring(control, e, bytes, nbytes);
    status = sent ? HC_OK : queue(e, bytes, nbytes);
    if (status < 0)
        return status;
    hc_count(e->local >= 0 ? &base->local_messages : &base->net_messages, 1);
    hc_count(e->local >= 0 ? &base->local_bytes : &base->net_bytes, nbytes);
    if (!e->is_out) {
        e->is_out = 1;
        count_waiting(base, 1);
        e->next_out = control->out;
        control->out = e;
    }
    status = sent ? HC_OK : push(control, e);
    return status < 0 && status != HC_NO_MEMORY ? status : HC_OK; /* progress() tries again, and reports the failure */
}

/* Unlinks the edge at *link if it has sent everything. */
static int is_through(edge **link) {
    edge *e = *link;
    if (!has_left(e))
        return 0;
    *link = e->next_out;
    e->is_out = 0;
    return 1;
}

static int control_progress(hc_control *base, int32_t *peer) {
    control *control = control_of(base);
    int moved = HC_IDLE;
    *peer = -1;
    for (edge **link = &control->out; *link != NULL; link = &(*link)->next_out) {
        edge *e = *link;
        int status = has_left(e) ? HC_MOVED : push(control, e);
        if (status < 0)
            return status;
        if (status != HC_IDLE)
            moved = HC_MOVED;
        if (is_through(link)) {
            count_waiting(base, (uint32_t)-1);
            *peer = e->peer;
            return HC_MOVED;
        }
    }
    return moved;
}

/* ---- in ------------------------------------------------------------------------------------------ */

static int pull_ring(control *control, int32_t local) {
    edge *e = edge_to(control, hc__node_control_world_rank(control->node_control, local));
    if (e == NULL)
        return HC_NO_MEMORY;
    hc__ring *ring = hc__node_control_ring(control->node_control, local, hc__node_control_rank(control->node_control));
    size_t n = hc__ring_filled(ring);
    uint8_t *room = stream_room(&e->in, n);
    if (room == NULL)
        return HC_NO_MEMORY;
    e->in.to += hc__ring_read(ring, hc__node_control_ring_room(control->node_control), room, n);
    if (hc__ring_writer_waits(ring))
        hc_doorbell_ring(control->node_control, local);
    control->unread = e;
    return HC_MOVED;
}

static int pull_rings(control *control) {
    hc__mask news;
    int words = hc__node_control_words(control->node_control);
    if (hc__node_control_take_dirty(control->node_control, &news))
        for (int w = 0; w < words; w++)
            control->dirty.word[w] |= news.word[w];
    for (int w = 0; w < words; w++) {
        uint64_t bits = control->dirty.word[w];
        if (bits == 0)
            continue;
        control->dirty.word[w] = bits & (bits - 1);
        return pull_ring(control, w * 64 + __builtin_ctzll(bits));
    }
    return HC_IDLE;
}

static int post_receive(control *control) {
    hc_net *net = control->net;
    return net->ops->irecv(net, HC_ANY_PEER, HC_TAG_CONTROL, control->frame, FRAME, &control->receiving);
}

static int pull_net(control *control) {
    hc_net *net = control->net;
    size_t n;
    int32_t peer;
    if (net == NULL || control->receiving == NULL)
        return HC_IDLE; /* NULL: it failed before, and the failure was reported */
    int status = net->ops->test(net, &control->receiving, &n, &peer);
    if (status != HC_DONE)
        return status;
    edge *e = edge_to(control, peer);
    if (e == NULL || stream_add(&e->in, control->frame, n) != HC_OK)
        return HC_NO_MEMORY;
    control->unread = e;
    status = post_receive(control);
    return status < 0 ? status : HC_MOVED;
}

static void take_back_given(control *control) {
    edge *e = control->given;
    if (e == NULL)
        return;
    e->in.from += e->in_given;
    control->given = NULL;
}

static int control_receive(hc_control *base, int32_t *peer, const uint8_t **bytes, size_t *nbytes) {
    control *control = control_of(base);
    take_back_given(control);
    for (;;) {
        edge *e = control->unread;
        int whole = e != NULL ? stream_message(&e->in, bytes, nbytes) : 0;
        if (whole > 0) {
            e->in_given = sizeof(uint64_t) + *nbytes;
            control->given = e;
            *peer = e->peer;
            return HC_DONE;
        }
        control->unread = NULL;
        if (whole < 0)
            return whole;
        int status = pull_rings(control);
        if (status == HC_IDLE)
            status = pull_net(control);
        if (status <= HC_IDLE)
            return status;
    }
}

/* ---- create and free ----------------------------------------------------------------------------- */

static void control_free(hc_control *base) {
    control *control = control_of(base);
    int stuck = control->receiving != NULL && control->net->ops->cancel(control->net, &control->receiving) != HC_OK;
    while (control->edges != NULL) {
        edge *e = control->edges;
        control->edges = e->next;
        edge_free(control, e);
    }
    hc_free(control->local_of);
    if (!stuck) /* else the library may still write to its frame */
        hc_free(control);
}

static const struct hc_control_ops control_ops = {
    .send = control_send,
    .takes = control_takes,
    .has_left = control_has_left,
    .receive = control_receive,
    .progress = control_progress,
    .free = control_free,
};

int hc_control_new(hc_node_control *node_control, hc_net *net, const int32_t *local_of, int32_t world_size,
                   hc_control **out) {
    control *control = hc_calloc(1, sizeof *control);
    if (control == NULL)
        return HC_NO_MEMORY;
    control->base.ops = &control_ops;
    control->node_control = node_control;
    control->net = net;
    control->world_size = world_size;
    control->local_of = hc_malloc((size_t)world_size * sizeof *local_of);
    int status = control->local_of == NULL ? HC_NO_MEMORY : HC_OK;
    if (status == HC_OK)
        memcpy(control->local_of, local_of, (size_t)world_size * sizeof *local_of);
    if (status == HC_OK && net != NULL)
        status = post_receive(control);
    if (status < 0) {
        control_free(&control->base);
        return status;
    }
    *out = &control->base;
    return HC_OK;
}
