/* SPDX-License-Identifier: Apache-2.0
 *
 * net_tcp.c - a net over TCP: one connection per pair of ranks, which test() moves and nothing waits for.
 *
 * A message travels as a frame: a header (length, tag), then its bytes. TCP keeps the order of frames, so messages
 * between two ranks with one tag are matched in order. If the receive of a frame was posted, its bytes go straight
 * there. If not, they are kept in memory until they are asked for: a rank never stops reading, so two ranks that send
 * at once never block each other.
 *
 * The last frame of a rank says END. If a connection ends without it, the rank was lost: every request that needs it
 * fails with TRANSPORT, and so does a receive from any rank; `text` names the rank and the reason.
 */
#include "transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define END (-1)           /* the tag of the last frame */
#define END_SECONDS 10.0   /* the longest wait for the others' last frames */
#define READS_PER_SWEEP 64 /* of one connection, so that a fast sender does not starve the others */
#define DISCARD_BYTES ((size_t)64 << 10)

typedef struct header {
    uint64_t bytes;
    int64_t tag;
} header;

/* A send, a receive, or a message that has begun to arrive. */
struct hc_net_request {
    hc_net_request *next; /* in the queue that holds it */
    char *data;           /* NULL: what comes is discarded */
    size_t bytes, moved;  /* of a receive: the room, then what came; moved counts the header of a send */
    header header;        /* of a send */
    int32_t peer, tag;
    int status;              /* HC_IDLE, HC_DONE or a failure */
    uint32_t asked;          /* the sweep after which test() was last asked about it */
    uint8_t receives, owned; /* owned: data is its own memory */
    uint8_t cancelled;       /* but half moved: it ends by itself */
    hc_net_request *receive; /* of a message; NULL: none that matches is posted yet */
};

typedef struct connection {
    int fd;                /* -1: none, or lost */
    hc_net_request *sends; /* oldest first, as all queues */
    header header;         /* of the next frame, as far as it has come */
    size_t header_got;
    hc_net_request *coming; /* the message whose bytes come now, or NULL */
    uint8_t ended;          /* the peer's END has come */
} connection;

typedef struct tcp_net {
    hc_net base;
    hc_net_box box;
    hc_net_request *posted;     /* receives that nothing has come for */
    hc_net_request *unexpected; /* messages that no receive was posted for */
    uint32_t sweep;
    uint8_t any_lost;
    char text[200], discarded[DISCARD_BYTES];
    connection peers[];
} tcp_net;

/* ---- queues ------------------------------------------------------------------------------------------- */

static void append(hc_net_request **queue, hc_net_request *r) {
    while (*queue)
        queue = &(*queue)->next;
    r->next = NULL;
    *queue = r;
}

static void take_out(hc_net_request **queue, const hc_net_request *r) {
    while (*queue && *queue != r)
        queue = &(*queue)->next;
    if (*queue)
        *queue = r->next;
}

/* The oldest that matches, taken out of the queue; or NULL. */
static hc_net_request *take_match(hc_net_request **queue, int32_t peer, int32_t tag) {
    hc_net_request *r = *queue;
    while (r && (r->tag != tag || (r->peer != peer && r->peer != HC_ANY_PEER && peer != HC_ANY_PEER)))
        r = r->next;
    if (r)
        take_out(queue, r);
    return r;
}

static void drop(hc_net_request *r) {
    if (r->owned)
        free(r->data);
    free(r);
}

static void complete(hc_net_request *r, int status) {
    r->status = status;
    if (r->cancelled)
        drop(r);
}

static void complete_all(hc_net_request **queue, int status) {
    while (*queue) {
        hc_net_request *r = *queue;
        *queue = r->next;
        complete(r, status);
    }
}

static int fail(tcp_net *net, int32_t peer, const char *why) {
    snprintf(net->text, sizeof net->text, "rank %d: %s", (int)peer, why);
    net->base.text = net->text;
    return HC_TRANSPORT;
}

/* Ends the posted receives from `peer`. */
static void fail_receives(tcp_net *net, int32_t peer, const char *why) {
    for (hc_net_request *r = net->posted, *next; r; r = next) {
        next = r->next;
        if (r->peer != peer)
            continue;
        take_out(&net->posted, r);
        complete(r, fail(net, peer, why));
    }
}

/* ---- arrival ------------------------------------------------------------------------------------------ */

static hc_net_request *new_request(const tcp_net *net, int32_t peer, int32_t tag, void *data, size_t bytes) {
    hc_net_request *r = malloc(sizeof *r);
    if (r)
        *r = (hc_net_request){
            .data = data, .bytes = bytes, .header = {bytes, tag}, .peer = peer, .tag = tag, .asked = net->sweep};
    return r;
}

/* A message begins to arrive: its bytes go to a receive, or are kept. NULL: out of memory. */
static hc_net_request *arrive(tcp_net *net, int32_t peer, int32_t tag, size_t bytes) {
    hc_net_request *m = new_request(net, peer, tag, NULL, bytes);
    if (!m)
        return NULL;
    m->receive = take_match(&net->posted, peer, tag);
    if (m->receive) {
        m->data = bytes <= m->receive->bytes ? m->receive->data : NULL;
        return m;
    }
    m->owned = 1;
    m->data = malloc(bytes + 1);
    if (!m->data) {
        free(m);
        return NULL;
    }
    append(&net->unexpected, m);
    return m;
}

/* The message is whole: ends its receive. Without one it stays where it is. */
static void deliver(tcp_net *net, hc_net_request *m) {
    hc_net_request *r = m->receive;
    if (!r)
        return;
    int status = m->bytes > r->bytes ? fail(net, m->peer, "its message is longer than the room for it") : HC_DONE;
    if (status == HC_DONE && m->owned && r->data && m->bytes > 0)
        memcpy(r->data, m->data, m->bytes);
    if (status == HC_DONE)
        hc_count(&net->base.received_bytes, m->bytes);
    r->bytes = m->bytes;
    r->peer = m->peer;
    drop(m);
    complete(r, status);
}

/* ---- connections ----------------------------------------------------------------------------------------- */

static void lose(tcp_net *net, int32_t peer, const char *why) {
    connection *c = &net->peers[peer];
    hc_net_request *m = c->coming;
    close(c->fd);
    c->fd = -1;
    c->coming = NULL;
    net->any_lost = 1;
    complete_all(&c->sends, fail(net, peer, why));
    fail_receives(net, HC_ANY_PEER, why);
    fail_receives(net, peer, why);
    fail(net, peer, why);
    if (m) {
        take_out(&net->unexpected, m);
        if (m->receive)
            complete(m->receive, HC_TRANSPORT);
        drop(m);
    }
}

/* The header of a frame is whole. */
static void begin_frame(tcp_net *net, int32_t peer) {
    connection *c = &net->peers[peer];
    c->header_got = 0;
    if (c->header.tag == END) {
        c->ended = 1;
        complete_all(&c->sends, HC_DONE); /* some messages cross the end of a World: the peer wants them no more */
        fail_receives(net, peer, "it has closed its net");
        return;
    }
    hc_net_request *m = arrive(net, peer, (int32_t)c->header.tag, (size_t)c->header.bytes);
    if (!m)
        lose(net, peer, "there is no memory for its message");
    else if (m->bytes == 0)
        deliver(net, m);
    else
        c->coming = m;
}

/* Reads what has come. */
static void pull(tcp_net *net, int32_t peer) {
    connection *c = &net->peers[peer];
    for (int i = 0; i < READS_PER_SWEEP && c->fd >= 0 && !c->ended; i++) {
        hc_net_request *m = c->coming;
        char *to = m ? m->data : (char *)&c->header;
        size_t *got = m ? &m->moved : &c->header_got, bytes = m ? m->bytes : sizeof c->header, most = bytes - *got;
        if (!to && most > DISCARD_BYTES)
            most = DISCARD_BYTES;
        ssize_t n = recv(c->fd, to ? to + *got : net->discarded, most, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            lose(net, peer, n < 0 ? strerror(errno) : "its connection ended, so its process is gone");
            return;
        }
        *got += (size_t)n;
        if (*got < bytes)
            continue;
        c->coming = NULL;
        if (m)
            deliver(net, m);
        else
            begin_frame(net, peer);
    }
}

/* Writes what the connection takes. */
static void push(tcp_net *net, int32_t peer) {
    connection *c = &net->peers[peer];
    while (c->sends) {
        hc_net_request *r = c->sends;
        size_t head = sizeof r->header, of_head = r->moved < head ? r->moved : head, of_data = r->moved - of_head;
        struct iovec parts[2] = {{(char *)&r->header + of_head, head - of_head},
                                 {r->bytes ? r->data + of_data : NULL, r->bytes - of_data}};
        struct msghdr frame = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n = sendmsg(c->fd, &frame, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) {
            const char *why = strerror(errno);
            pull(net, peer); /* what it sent before it went, and perhaps its END */
            if (c->fd >= 0 && !c->ended)
                lose(net, peer, why);
            complete_all(&c->sends, HC_DONE);
            return;
        }
        r->moved += (size_t)n;
        if (r->moved < head + r->bytes)
            return;
        c->sends = r->next;
        complete(r, HC_DONE);
    }
}

/* One look at all connections, which waits `milliseconds` at most for one of them to move. */
static void sweep(tcp_net *net, int milliseconds) {
    struct pollfd polls[net->base.size];
    for (int32_t p = 0; p < net->base.size; p++) {
        const connection *c = &net->peers[p];
        short events = (short)((c->ended ? 0 : POLLIN) | (c->sends ? POLLOUT : 0));
        polls[p] = (struct pollfd){.fd = events ? c->fd : -1, .events = events};
    }
    net->sweep++;
    if (poll(polls, (nfds_t)net->base.size, milliseconds) <= 0)
        return;
    for (int32_t p = 0; p < net->base.size; p++) {
        if (polls[p].revents & ~POLLOUT)
            pull(net, p);
        if (polls[p].revents & ~POLLIN)
            push(net, p);
    }
}

/* ---- the functions of a net --------------------------------------------------------------------------------- */

static int send_to_self(tcp_net *net, hc_net_request *r) {
    hc_net_request *m = arrive(net, r->peer, r->tag, r->bytes);
    if (!m)
        return HC_NO_MEMORY;
    if (m->data && m->bytes > 0)
        memcpy(m->data, r->data, m->bytes);
    m->moved = m->bytes;
    deliver(net, m);
    r->status = HC_DONE;
    return HC_OK;
}

static int tcp_isend(hc_net *base, int32_t peer, int32_t tag, const void *data, size_t bytes, hc_net_request **req) {
    tcp_net *net = (tcp_net *)base;
    if (peer < 0 || peer >= base->size || tag < 0)
        return HC_INVALID;
    connection *c = &net->peers[peer];
    hc_net_request *r = new_request(net, peer, tag, (void *)(uintptr_t)data, bytes);
    int status = r ? HC_OK : HC_NO_MEMORY;
    if (r && peer == base->rank) {
        status = send_to_self(net, r);
    } else if (r && c->fd < 0) {
        status = fail(net, peer, "its connection was lost");
    } else if (r && c->ended) {
        r->status = HC_DONE;
    } else if (r) {
        append(&c->sends, r);
        if (c->sends == r)
            push(net, peer);
    }
    if (status < 0) {
        free(r);
        return status;
    }
    hc_count(&base->sent_messages, 1);
    hc_count(&base->sent_bytes, bytes);
    *req = r;
    return HC_OK;
}

static int tcp_irecv(hc_net *base, int32_t peer, int32_t tag, void *data, size_t room, hc_net_request **req) {
    tcp_net *net = (tcp_net *)base;
    if (peer < HC_ANY_PEER || peer >= base->size || tag < 0)
        return HC_INVALID;
    hc_net_request *r = new_request(net, peer, tag, data, room), *m;
    if (!r)
        return HC_NO_MEMORY;
    r->receives = 1;
    *req = r;
    if ((m = take_match(&net->unexpected, peer, tag))) {
        m->receive = r;
        if (m->moved == m->bytes)
            deliver(net, m);
    } else if (peer == HC_ANY_PEER ? net->any_lost : peer != base->rank && net->peers[peer].fd < 0) {
        r->status = HC_TRANSPORT; /* `text` has said why */
    } else if (peer >= 0 && net->peers[peer].ended) {
        r->status = fail(net, peer, "it has closed its net");
    } else {
        append(&net->posted, r);
    }
    return HC_OK;
}

static int tcp_test(hc_net *base, hc_net_request **req, size_t *bytes, int32_t *peer) {
    tcp_net *net = (tcp_net *)base;
    hc_net_request *r = *req;
    if (r->status == HC_IDLE && r->asked == net->sweep)
        sweep(net, 0);
    r->asked = net->sweep;
    int status = r->status;
    if (status == HC_IDLE)
        return HC_IDLE;
    if (r->receives && bytes)
        *bytes = r->bytes;
    if (r->receives && peer)
        *peer = r->peer;
    free(r);
    *req = NULL;
    return status;
}

/* What is half moved goes on without the caller's memory: a send from a copy, a receive to nowhere. */
static int tcp_cancel(hc_net *base, hc_net_request **req) {
    tcp_net *net = (tcp_net *)base;
    hc_net_request *r = *req;
    if (r->status == HC_IDLE && r->moved > 0) {
        char *copy = malloc(r->bytes + 1);
        if (!copy)
            return HC_NO_MEMORY;
        memcpy(copy, r->data, r->bytes);
        r->data = copy;
        r->cancelled = r->owned = 1;
    }
    for (int32_t p = 0; p < base->size; p++) {
        hc_net_request *m = net->peers[p].coming;
        if (!m || m->receive != r)
            continue;
        m->data = m->owned ? m->data : NULL;
        r->data = NULL;
        r->cancelled = 1;
    }
    *req = NULL;
    if (r->cancelled)
        return HC_OK;
    take_out(r->receives ? &net->posted : &net->peers[r->peer].sends, r);
    free(r);
    return HC_OK;
}

/* ---- the beginning and the end ----------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int is_open(const tcp_net *net) {
    for (int32_t p = 0; p < net->base.size; p++)
        if (net->peers[p].fd >= 0 && (net->peers[p].sends || !net->peers[p].ended))
            return 1;
    return 0;
}

/* Says END to all peers and reads until theirs: a connection that is closed with bytes unread loses bytes on the other
 * side. After a failure the others may not be there: then nothing is waited for. */
static void end_connections(tcp_net *net) {
    double limit = seconds() + (net->base.abandoned ? 0 : END_SECONDS);
    for (int32_t p = 0; p < net->base.size; p++) {
        hc_net_request *r = net->peers[p].fd >= 0 ? new_request(net, p, END, NULL, 0) : NULL;
        if (r) {
            r->cancelled = 1; /* nobody asks about it */
            append(&net->peers[p].sends, r);
        }
    }
    do
        sweep(net, net->base.abandoned ? 0 : 10);
    while (is_open(net) && seconds() < limit);
}

static void tcp_free(hc_net *base) {
    tcp_net *net = (tcp_net *)base;
    end_connections(net);
    for (int32_t p = 0; p < base->size; p++)
        if (net->peers[p].fd >= 0)
            lose(net, p, "this rank has closed its net");
    while (net->unexpected) {
        hc_net_request *m = net->unexpected;
        net->unexpected = m->next;
        drop(m);
    }
    free(net);
}

static const struct hc_net_ops tcp_ops = {
    .name = "tcp", .isend = tcp_isend, .irecv = tcp_irecv, .test = tcp_test, .cancel = tcp_cancel, .free = tcp_free};

/* fds[p] is connected with rank p; the net owns it from here on. NULL: out of memory, and they stay the caller's. */
hc_net_box *net_tcp_new(int32_t rank, int32_t size, const int *fds) {
    tcp_net *net = calloc(1, sizeof *net + (size_t)size * sizeof net->peers[0]);
    if (!net)
        return NULL;
    net->base = (hc_net){.ops = &tcp_ops, .rank = rank, .size = size, .max_tag = INT32_MAX};
    net->box = (hc_net_box){HC_NET_VERSION, &net->base};
    for (int32_t p = 0; p < size; p++)
        net->peers[p].fd = p == rank ? -1 : fds[p];
    return &net->box;
}

/* For net_tcp.py: the name of a capsule, and what Python calls at its end. */
void *PyCapsule_GetPointer(void *capsule, const char *name) __attribute__((weak)); /* only Python has it */
const char net_tcp_capsule_name[] = "hpccoll.net";

void net_tcp_capsule_free(void *capsule) {
    hc_net_box *box = PyCapsule_GetPointer(capsule, net_tcp_capsule_name);
    box->net->ops->free(box->net);
}
