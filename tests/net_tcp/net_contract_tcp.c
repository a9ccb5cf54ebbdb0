/* SPDX-License-Identifier: Apache-2.0
 *
 * net_contract_tcp.c - the contract of hc_net, over TCP between threads, and what TCP adds to it: net_contract_tcp
 * RANKS
 */
#include "transport/net/net_contract.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONG ((size_t)32 << 20) /* more than a connection takes at once */

hc_net_box *net_tcp_new(int32_t rank, int32_t size, const int *fds);

static hc_net *nets[MAX_RANKS];
static int sockets[MAX_RANKS][MAX_RANKS];

/* Two sockets that are connected with each other over loopback. */
static void connect_pair(int *a, int *b) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0, "listen");
    CHECK(getsockname(listener, (struct sockaddr *)&at, &bytes) == 0, "port");
    *a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(*a, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    *b = accept(listener, NULL, NULL);
    CHECK(*b >= 0, "accept");
    setsockopt(*a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(*b, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

static void make_nets(int32_t n) {
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = 0; b < a; b++)
            connect_pair(&sockets[a][b], &sockets[b][a]);
    for (int32_t r = 0; r < n; r++) {
        hc_net_box *box = net_tcp_new(r, n, sockets[r]);
        CHECK(box && box->version == HC_NET_VERSION, "net %d", (int)r);
        nets[r] = box->net;
    }
}

static void free_net(int32_t rank) {
    nets[rank]->ops->free(nets[rank]);
}

static void check_rank(int32_t rank) {
    check_net(nets[rank]);
    check_too_long(nets[rank]);
    check_net(nets[rank]); /* nothing is left over from the first time */
    free_net(rank);
}

static char *filled(char with) {
    char *data = malloc(LONG);
    CHECK(data, "memory");
    return memset(data, with, LONG);
}

static int all_are(const char *data, char value) {
    return data[0] == value && memcmp(data, data + 1, LONG - 1) == 0;
}

/* A cancelled send that had begun arrives as it was, and its buffer is free for other use at once. */
static void check_cancelled_send(void) {
    char *out = filled('a'), *in = filled('-'), *next = filled('n');
    hc_net_request *send = give(nets[0], 1, 7, out, LONG);
    CHECK(nets[0]->ops->test(nets[0], &send, NULL, NULL) == HC_IDLE, "32 MiB cannot leave at once");
    CHECK(nets[0]->ops->cancel(nets[0], &send) == HC_OK && !send, "cancel");
    memset(out, 'x', LONG);
    free(out);
    hc_net_request *another = give(nets[0], 1, 7, next, LONG), *untouched = give(nets[0], 1, 7, next, 5);
    CHECK(nets[0]->ops->cancel(nets[0], &untouched) == HC_OK && !untouched, "one that has not begun is not sent");
    hc_net_request *receive = ask(nets[1], 0, 7, in, LONG);
    while (receive) {
        nets[0]->ops->test(nets[0], &another, NULL, NULL);
        CHECK(nets[1]->ops->test(nets[1], &receive, NULL, NULL) >= 0, "receive");
    }
    CHECK(all_are(in, 'a'), "what was sent first");
    receive = ask(nets[1], 0, 7, in, LONG);
    while (receive) {
        if (another)
            nets[0]->ops->test(nets[0], &another, NULL, NULL);
        CHECK(nets[1]->ops->test(nets[1], &receive, NULL, NULL) >= 0, "receive");
    }
    CHECK(all_are(in, 'n'), "what was sent next");
    if (another)
        finish(nets[0], &another, NULL, NULL);
    free(in);
    free(next);
}

/* A cancelled receive whose message was arriving leaves its buffer alone from then on, and the next one is served. */
static void check_cancelled_receive(int posted_first) {
    char *out = filled('a'), *in = filled('-'), small = 's', got = '-';
    hc_net_request *receive = posted_first ? ask(nets[1], 0, 8, in, LONG) : NULL, *probe = ask(nets[1], 0, 9, in, 1);
    hc_net_request *send = give(nets[0], 1, 8, out, LONG), *next = give(nets[0], 1, 8, &small, 1);
    struct pollfd arrived = {.fd = sockets[1][0], .events = POLLIN};
    CHECK(poll(&arrived, 1, NEVER * 1000) == 1, "nothing arrives"); /* the kernel may deliver later than it sends */
    for (int i = 0; i < 3; i++)
        CHECK(nets[1]->ops->test(nets[1], &probe, NULL, NULL) == HC_IDLE, "nothing was sent for this one");
    if (!posted_first)
        receive = ask(nets[1], 0, 8, in, LONG);
    CHECK(nets[1]->ops->cancel(nets[1], &receive) == HC_OK && !receive, "cancel");
    CHECK(nets[1]->ops->cancel(nets[1], &probe) == HC_OK && !probe, "cancel");
    memset(in, '-', LONG);
    receive = ask(nets[1], 0, 8, &got, 1);
    while (receive) {
        if (send)
            nets[0]->ops->test(nets[0], &send, NULL, NULL);
        if (next) /* `send` may fill the connection and end before `next` has left */
            nets[0]->ops->test(nets[0], &next, NULL, NULL);
        CHECK(nets[1]->ops->test(nets[1], &receive, NULL, NULL) >= 0, "receive");
    }
    CHECK(got == 's' && all_are(in, '-'), "a cancelled receive took bytes");
    if (next)
        finish(nets[0], &next, NULL, NULL);
    if (send)
        finish(nets[0], &send, NULL, NULL);
    free(out);
    free(in);
}

static void check_fails(hc_net *net, hc_net_request *req, const char *what) {
    int status;
    while ((status = net->ops->test(net, &req, NULL, NULL)) == HC_IDLE)
        sched_yield();
    CHECK(status == HC_TRANSPORT && !req, "%s: %s", what, hc_status_name(status));
    CHECK(net->text && strstr(net->text, "rank 1: its connection ended"), "%s: %s", what, net->text);
}

/* A peer that is gone: what it sent is received, what needs it fails, and the others go on. */
static void check_lost_peer(void) {
    char *out = filled('a'), last = 'l', got = '-', none;
    hc_net_request *said = give(nets[1], 0, 1, &last, 1), *more = NULL;
    finish(nets[1], &said, NULL, NULL);
    hc_net_request *named = ask(nets[0], 1, 2, &none, 1), *any = ask(nets[0], HC_ANY_PEER, 3, &none, 1);
    hc_net_request *send = give(nets[0], 1, 4, out, LONG), *other = ask(nets[0], 2, 5, &none, 1);
    shutdown(sockets[1][0], SHUT_WR);
    check_fails(nets[0], named, "a receive from it");
    check_fails(nets[0], any, "a receive from any rank");
    check_fails(nets[0], send, "a send to it");
    named = ask(nets[0], 1, 1, &got, 1);
    finish(nets[0], &named, NULL, NULL);
    CHECK(got == 'l', "its last message");
    check_fails(nets[0], ask(nets[0], 1, 2, &none, 1), "a later receive");
    CHECK(nets[0]->ops->isend(nets[0], 1, 4, &none, 1, &more) == HC_TRANSPORT, "a later send");
    hc_net_request *hello = give(nets[2], 0, 5, &last, 1);
    finish(nets[2], &hello, NULL, NULL);
    finish(nets[0], &other, NULL, NULL);
    for (int32_t r = 0; r < 3; r++)
        nets[r]->abandoned = 1;
    free(out);
}

int main(int argc, char **argv) {
    int32_t n = argc > 1 ? atoi(argv[1]) : 2;
    make_nets(n);
    run_threads(n, check_rank);
    make_nets(2);
    check_cancelled_send();
    check_cancelled_receive(1);
    check_cancelled_receive(0);
    run_threads(2, free_net);
    make_nets(3);
    check_lost_peer();
    run_threads(3, free_net);
    printf("ok\n");
    return 0;
}
