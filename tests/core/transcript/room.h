/* SPDX-License-Identifier: Apache-2.0
 *
 * room.h - a few engines in one room, driven by hand; everything they do is collected as text.
 */
#ifndef ROOM_H
#define ROOM_H

#include "core/hc.h"

enum { ROOM_RANKS = 16, ROOM_SETS = 8, ROOM_TICKETS = 1024, ROOM_MESSAGES = 4096 };

typedef struct room {
    int ranks, manual_sent; /* manual_sent: SENT comes by command, not with the delivery */
    hc_engine_config config;
    int32_t node_of[ROOM_RANKS], fanout;
    hc_engine *engine[ROOM_RANKS];
    uint64_t now[ROOM_RANKS], wake_at[ROOM_RANKS];
    struct {
        int from, to;
        size_t n;
        uint8_t *bytes;
    } message[ROOM_MESSAGES]; /* in the order of sending; bytes NULL: delivered */
    int nmessages;
    char ticket[ROOM_TICKETS][32]; /* what it was given for */
    int ntickets;
    struct {
        int rank;
        uint32_t set;
        uint64_t batch;
    } started[ROOM_TICKETS]; /* batches that are not done */
    int nstarted;
    char text[1 << 16]; /* the answer so far */
    size_t len;
} room;

void room_open(room *, const hc_engine_config *, const int32_t *node_of, int32_t fanout, int manual_sent);
void room_close(room *);
void room_add_set(room *, const hc_set_config *, const int32_t *members, int n);
uint64_t room_ticket(room *, const char *what);
void room_enqueue(room *, int rank, uint32_t set, hc_request *);
void room_feed(room *, int rank, hc_event *);
void room_deliver(room *, int from, int to, int n); /* the n oldest of an edge; from -1: of all edges */
void room_deliver_all(room *);                      /* until nothing is on its way */
void room_done(room *);                             /* every batch that has been started is done */
void room_counters(room *);
void room_quiet(room *);
void room_answer(room *); /* prints what was collected, and forgets it */
void room_say(room *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A control message in words, at most `room` bytes of them. */
void describe_message(const uint8_t *bytes, size_t n, char *out, size_t room);

#endif
