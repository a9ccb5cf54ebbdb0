/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.h - signs of life of the other ranks, and operations that wait for long.
 */
#pragma once

#include "loop/clock.h"
#include "loop/loop.h"

/* The state of a rank without a sign of life; later values are more specific. */
enum hc__silence { HC__SILENT = 1, HC__AWAY, HC__DEBUGGED, HC__STOPPED, HC__SILENCES };
#define HC__SILENT_MOST 8
#define HC__OWN (-1) /* this rank has seen it itself */
typedef struct hc__silent {
    int32_t rank, from;   /* from: the rank that reported it, or HC__OWN */
    uint8_t kind, is_new; /* is_new: not yet sent to the neighbours */
    uint64_t since, at;   /* at: when it was last seen or reported */
} hc__silent;

/* The ranks without a sign of life. */
typedef struct hc__silences {
    hc__silent of[HC__SILENT_MOST];
    uint32_t count;
    uint8_t published;  /* the leader's list in shared memory is not empty */
    uint64_t listed_at; /* when the engine got the list */
    char text[512];     /* the list as text, or "" */
} hc__silences;

/* A neighbour in the World's tree that is on another node. */
typedef struct hc__neighbour {
    int32_t rank;
    uint64_t asked, asked_other; /* when this rank asked it, and another rank of its node */
} hc__neighbour;

/* A rank of this node: its count of progress iterations, and when the count last changed. */
typedef struct hc__local {
    uint64_t turns, moved, looked;
} hc__local;

typedef struct hc__watch {
    hc_counter *turns;            /* progress iterations, in shared memory */
    uint64_t ask_every, patience; /* ns: between questions; without a sign of life until it is reported */
    uint64_t watched;             /* time of the last check of other ranks */
    uint64_t watching;            /* the same while a caller waits; else 0 */
    uint64_t pinged, asked_at;    /* when this rank asked other nodes; when it was asked */
    hc__neighbour *neighbours;
    int32_t nneighbours;
    hc__local *local; /* of each rank of the node */
    uint64_t *owed;   /* per World rank: time of the oldest unanswered question; 0: none */
    hc__silences silent;
    char report[1024]; /* the newest report of a waiting operation, or "" */
} hc__watch;

/* heartbeat.c */
#define HC__HEARTBEAT_NS (50 * HC__MS) /* how often a waiting driver checks that all peers are alive */
void hc__heartbeat(hc_loop *, uint64_t now);
void hc__heartbeat_idle(hc_loop *);
/* 1: it was a heartbeat message; 0: it was not; or a status. */
int hc__heartbeat_message(hc_loop *, int32_t peer, const uint8_t *bytes, size_t nbytes);

/* node_life.c */
void hc__node_begin(hc_loop *, uint64_t now); /* restarts all clocks */
/* Returns a rank of this node whose process has been stopped for longer than the peer timeout, or -1. */
int32_t hc__node_look(hc_loop *, uint64_t now);
void hc__node_publish(hc_loop *, uint64_t now); /* the leader publishes for the ranks of its node */
int hc__node_reports(hc_loop *);                /* 1: this rank prints the reports of its node */
void hc__node_read(hc_loop *, uint64_t now);    /* the other ranks read that */

/* silence.c */
void hc__silence_note(hc_loop *, const hc__silent *, uint64_t now);
void hc__silence_end(hc_loop *, int32_t rank); /* the rank gave a sign of life */
void hc__silence_expire(hc_loop *, uint64_t now);
void hc__silence_describe(hc_loop *, uint64_t now);

/* long_wait.c */
/* Reports a wait of `ns` that the engine does not know of, or breaks the World at the stall limit. */
void hc__watch_wait(hc_loop *, hc_handle *, uint64_t ns,
                    void (*describe)(hc_loop *, const hc_handle *, char *, size_t));
