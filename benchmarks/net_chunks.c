/* SPDX-License-Identifier: Apache-2.0
 *
 * net_chunks.c - measures if the stages of an allreduce overlap, on two emulated nodes with a link of a given rate.
 *
 *     net_chunks BYTES GBYTES_PER_S REPETITIONS CHUNK BATCH      prints the seconds of each, one per line
 *
 * The array is summed in batches of BATCH bytes, one after the other. Each batch passes the stages node, net and node
 * in chunks. A batch of one chunk passes them one by one; a batch of many chunks overlaps them. Node, hierarchy and
 * algorithms are the real ones. Ranks are threads. The link is a clock: a message may be received when its last byte
 * would have left a link of that rate; each node has one link per direction. So time on the wire takes no processor, as
 * with a network adapter, and it can be as short as the stages in the node.
 */
#include "transport/emulated.h"

/* A receive, which waits for the message and then for the link. */
typedef struct passage {
    hc_net_request *request; /* NULL: the message is here */
    size_t bytes;
    double due;
    int taken;
} passage;

typedef struct link_net {
    hc_net base;
    hc_net *inner;
    passage passages[256];
} link_net;

static double rate;               /* bytes per second */
static double free_at[MAX_RANKS]; /* when the link into a node will be free */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static int64_t bytes, batch_bytes;
static int repetitions;
static double seconds[1000];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns when the last of `n` bytes leaves the link, if the first may enter it now. */
static double pass_link(int32_t node, size_t n) {
    pthread_mutex_lock(&lock);
    double begin = now();
    begin = begin < free_at[node] ? free_at[node] : begin;
    double end = free_at[node] = begin + (double)n / rate;
    pthread_mutex_unlock(&lock);
    return end;
}

static int link_isend(hc_net *net, int32_t peer, int32_t tag, const void *data, size_t n, hc_net_request **request) {
    link_net *l = (link_net *)net;
    return l->inner->ops->isend(l->inner, peer, tag, data, n, request);
}

static int link_irecv(hc_net *net, int32_t peer, int32_t tag, void *data, size_t room, hc_net_request **request) {
    link_net *l = (link_net *)net;
    passage *p = l->passages;
    while (p->taken)
        p++;
    CHECK(p < l->passages + 255, "more receives than expected");
    *p = (passage){.taken = 1};
    *request = (hc_net_request *)p;
    return l->inner->ops->irecv(l->inner, peer, tag, data, room, &p->request);
}

static int link_test(hc_net *net, hc_net_request **request, size_t *n, int32_t *peer) {
    link_net *l = (link_net *)net;
    passage *p = (passage *)*request;
    if (p < l->passages || p >= l->passages + 256)
        return l->inner->ops->test(l->inner, request, n, peer);
    if (p->request) {
        int status = l->inner->ops->test(l->inner, &p->request, &p->bytes, peer);
        if (status != HC_DONE)
            return status;
        p->due = pass_link(node_of[net->rank], p->bytes);
    }
    if (now() < p->due)
        return HC_IDLE;
    *n = p->bytes;
    *request = NULL;
    p->taken = 0;
    return HC_DONE;
}

static int link_cancel(hc_net *net, hc_net_request **request) {
    (void)net;
    (void)request;
    return HC_INVALID; /* no message is cancelled here */
}

static const struct hc_net_ops link_ops = {
    .name = "link", .isend = link_isend, .irecv = link_irecv, .test = link_test, .cancel = link_cancel};

static void sum_all(rank_state *s, float *data) {
    for (int64_t at = 0; at < bytes; at += batch_bytes) {
        int64_t n = bytes - at < batch_bytes ? bytes - at : batch_bytes;
        hc_piece piece;
        hc_batch batch = sum_of(&piece, data + at / 4, n / 4);
        CHECK(run_batch(s, &batch) == HC_DONE, "allreduce");
    }
}

/* The ranks start together; the time is that of the slowest rank. */
static void run_rank(int32_t rank) {
    rank_state s;
    link_net l = {.base = *nets[rank], .inner = nets[rank]};
    float *data = hc_result_new((size_t)bytes);
    memset(data, 0, (size_t)bytes);
    l.base.ops = &link_ops;
    make_rank(&s, rank, 0, &l.base);
    for (int i = 0; i < repetitions; i++) {
        pthread_barrier_wait(&barrier);
        double begin = now();
        sum_all(&s, data);
        double taken = now() - begin;
        pthread_mutex_lock(&lock);
        if (taken > seconds[i])
            seconds[i] = taken;
        pthread_mutex_unlock(&lock);
    }
    drop_rank(&s);
    hc_result_free(data);
}

int main(int argc, char **argv) {
    CHECK(argc == 6, "usage: see the head of this file");
    bytes = atoll(argv[1]);
    rate = atof(argv[2]) * 1e9;
    repetitions = atoi(argv[3]);
    knobs.chunk_bytes = atoll(argv[4]);
    batch_bytes = atoll(argv[5]);
    CHECK(bytes % 4 == 0 && batch_bytes % 4 == 0 && batch_bytes > 0, "bytes of float32");
    CHECK(repetitions > 0 && repetitions <= 1000, "1 to 1000 repetitions");
    make_job("0,0,1,1");
    pthread_barrier_init(&barrier, NULL, (unsigned)size);
    run_threads(size, run_rank);
    drop_job();
    for (int i = 0; i < repetitions; i++)
        printf("%.9f\n", seconds[i]);
    return 0;
}
