/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.h - a few engines, driven by hand; everything they do is collected as text.
 */
#ifndef CLUSTER_H
#define CLUSTER_H

#include "core/hc.h"

enum { CLUSTER_RANKS = 16, CLUSTER_SETS = 8, CLUSTER_TICKETS = 1024, CLUSTER_MESSAGES = 4096 };

typedef struct cluster {
    int ranks, manual_sent; /* manual_sent: SENT comes by command, not with the delivery */
    hc_engine_config config;
    int32_t node_of[CLUSTER_RANKS], fanout;
    hc_engine *engine[CLUSTER_RANKS];
    uint64_t now[CLUSTER_RANKS], wake_at[CLUSTER_RANKS];
    struct {
        int from, to;
        size_t n;
        uint8_t *bytes;
    } message[CLUSTER_MESSAGES]; /* in the order of sending; bytes NULL: delivered */
    int nmessages;
    char ticket[CLUSTER_TICKETS][32]; /* what it was given for */
    int ntickets;
    struct {
        int rank;
        uint32_t set;
        uint64_t batch;
    } started[CLUSTER_TICKETS]; /* batches that are not done */
    int nstarted;
    char text[1 << 16]; /* the answer so far */
    size_t len;
} cluster;

void cluster_open(cluster *, const hc_engine_config *, const int32_t *node_of, int32_t fanout, int manual_sent);
void cluster_close(cluster *);
void cluster_add_set(cluster *, const hc_set_config *, const int32_t *members, int n);
uint64_t cluster_ticket(cluster *, const char *what);
void cluster_enqueue(cluster *, int rank, uint32_t set, hc_request *);
void cluster_feed(cluster *, int rank, hc_event *);
void cluster_deliver(cluster *, int from, int to, int n); /* the n oldest of an edge; from -1: of all edges */
void cluster_deliver_all(cluster *);                      /* until nothing is on its way */
void cluster_done(cluster *);                             /* every batch that has been started is done */
void cluster_counters(cluster *);
void cluster_quiet(cluster *);
void cluster_answer(cluster *); /* prints what was collected, and forgets it */
void cluster_say(cluster *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A control message in words, at most `room` bytes of them. */
void describe_message(const uint8_t *bytes, size_t n, char *out, size_t room);

#endif
