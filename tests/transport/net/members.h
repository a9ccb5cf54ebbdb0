/* SPDX-License-Identifier: Apache-2.0
 *
 * members.h - the members of an operation between nodes, over the local net, all in one thread; what they send is
 * counted.
 */
#ifndef HC_MEMBERS_H
#define HC_MEMBERS_H

#include "transport/net/algorithms.h"
#include "transport/net_threads.h"

#define MEMBERS 40
#define CHANNELS 2

static hc_net *nets[MEMBERS];
static int32_t peers[MEMBERS];
static hc__team teams[MEMBERS];
static hc__channel channels[MEMBERS][CHANNELS];
static hc__splits splits;
static const hc__net_model model = {2e-5, 1e-9, 1e-10};

/* What each member has sent and asked for. */
static int64_t sent_bytes[MEMBERS], received_bytes[MEMBERS];
static int sent[MEMBERS], received[MEMBERS];
static struct hc_net_ops counting;
static const struct hc_net_ops *real;

static int32_t member_of(const hc_net *net) {
    int32_t q = 0;
    while (nets[q] != net)
        q++;
    return q;
}

static int count_send(hc_net *net, int32_t peer, int32_t tag, const void *data, size_t bytes, hc_net_request **r) {
    sent_bytes[member_of(net)] += (int64_t)bytes;
    sent[member_of(net)]++;
    return real->isend(net, peer, tag, data, bytes, r);
}

static int count_receive(hc_net *net, int32_t peer, int32_t tag, void *data, size_t bytes, hc_net_request **r) {
    received_bytes[member_of(net)] += (int64_t)bytes;
    received[member_of(net)]++;
    return real->irecv(net, peer, tag, data, bytes, r);
}

static inline void make_nets(int32_t n) {
    CHECK(hc_local_net_new(n, nets) == HC_OK, "net");
    real = nets[0]->ops;
    counting = *real;
    counting.isend = count_send;
    counting.irecv = count_receive;
    for (int32_t q = 0; q < n; q++) {
        nets[q]->ops = &counting;
        peers[q] = q;
        teams[q] = (hc__team){nets[q], &hc_host_arithmetic, peers, n, q, &splits};
        for (int i = 0; i < CHANNELS; i++)
            hc__channel_init(&channels[q][i], &teams[q], &model, i);
    }
    hc__splits_of(n, 0, &splits);
}

static inline void drop_nets(int32_t n) {
    for (int32_t q = 0; q < n; q++)
        for (int i = 0; i < CHANNELS; i++)
            hc__channel_free(&channels[q][i]);
    for (int32_t q = 0; q < n; q++)
        nets[q]->ops->free(nets[q]);
}

/* Each member goes on when the random numbers say so. */
static inline void drive(int32_t n, uint64_t random) {
    int left = n * CHANNELS, idle = 0;
    uint8_t done[MEMBERS][CHANNELS] = {{0}};
    while (left > 0) {
        int32_t q = (int32_t)below(&random, n), i = (int32_t)below(&random, CHANNELS);
        int status = done[q][i] ? HC_IDLE : hc__channel_test(&channels[q][i]);
        CHECK(status >= 0, "test: %s", hc_status_name(status));
        idle = status == HC_IDLE ? idle + 1 : 0;
        CHECK(idle < 100000, "%d operations of %d members do not end", left, n);
        left -= status == HC_DONE;
        done[q][i] |= status == HC_DONE;
    }
}

/* Digits of a member's position, the nearest first, counted here from the radices; 0: it has none. */
static inline int digits_of(const hc__stages *s, int32_t member, int32_t *digits) {
    int32_t position = 0, at = 0, group = 0;
    for (; group < s->extra && at + s->radix[0] < member; group++) { /* groups of one member more */
        at += s->radix[0] + 1;
        position += s->radix[0];
    }
    if (group < s->extra && member == at + s->radix[0])
        return 0;
    position += member - at;
    for (int32_t k = 0; k < s->depth; position /= s->radix[k++])
        digits[k] = position % s->radix[k];
    return 1;
}

/* ---- the times of the textbooks -------------------------------------------------------------------------------- */

static inline double chain(const hc__net_model *m, int32_t n, double bytes, double segment) {
    double s = bytes > segment ? bytes / segment : 1;
    return (n - 2 + s) * (m->alpha + bytes / s * m->beta);
}

static inline double binomial(const hc__net_model *m, int32_t n, double bytes) {
    return ceil(log2(n)) * (m->alpha + bytes * m->beta);
}

/* Van de Geijn's broadcast, with a binomial tree and recursive doubling, and Rabenseifner's reduce, with recursive
 * halving, which reads two operands of each sum, and a binomial tree; n is a power of two. */
static inline double scattered(const hc__net_model *m, int32_t n, double bytes) {
    return 2 * log2(n) * m->alpha + 2.0 * (n - 1) / n * bytes * (m->beta + m->gamma);
}

/* The best tree: binomial, or a chain of segments of 16 to 512 KiB. */
static inline double best_tree(const hc__net_model *m, int32_t n, double bytes) {
    double best = binomial(m, n, bytes);
    for (double s = 512 << 10; s >= 16 << 10; s /= 2)
        best = fmin(best, chain(m, n, bytes, s));
    return best;
}

#endif
