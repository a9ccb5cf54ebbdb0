/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h - the trace of one rank: a ring of its last events, and the file made from it.
 *
 * Ring and file begin with the same header. The ring is in a memfd, so another process of the user can read it through
 * /proc/PID/fd at any time; the file has the newest records, in order. hpccoll/tools/trace/recording.py reads both: a
 * change here needs a new HC_TRACE_VERSION.
 */
#pragma once

#include "core/hc.h"

#define HC_TRACE_MAGIC "hctrace"
#define HC_TRACE_VERSION 2
#define HC_TRACE_MEMFD "hpccoll-trace" /* the name that /proc/PID/fd shows */
#define HC_TRACE_ROOM 8192             /* records of the ring; a power of two */
#define HC_TRACE_KEPT 2048             /* the newest records, in a file */
#define HC_TRACE_NAME 64
#define HC_TRACE_DIMS 4
#define HC_TRACE_SITE 192

enum hc_trace_kind {
    HC_TRACE_ENQUEUE,  /* the driver has taken a request */
    HC_TRACE_SEND,     /* a control message */
    HC_TRACE_RECEIVE,  /* a control message */
    HC_TRACE_FUSE,     /* a request was agreed and is in a batch */
    HC_TRACE_START,    /* a batch was started */
    HC_TRACE_END,      /* a batch has ended */
    HC_TRACE_COMPLETE, /* a request's handle is done */
    HC_TRACE_WAIT,     /* a caller has begun to sleep until this request is done */
    HC_TRACE_BREAK,    /* the World broke: status; the reason is in the header */
};

typedef struct hc_trace_record {
    uint64_t time; /* ns, CLOCK_MONOTONIC */
    uint64_t bytes;
    uint64_t ticket; /* ENQUEUE, FUSE, COMPLETE, WAIT: the request's, unique while it is in flight */
    uint64_t batch;  /* FUSE, START, END: its number; COMPLETE: its position in the log */
    int32_t peer;    /* SEND, RECEIVE, point-to-point: rank of the World, -1: any */
    int16_t status;
    uint8_t kind; /* enum hc_trace_kind */
    uint8_t operation;
    uint32_t set;
    uint32_t count; /* requests of a batch, tensors of a request */
    uint32_t tag;   /* point-to-point */
    int32_t root;
    uint8_t dtype, ndim, reduction, memory; /* of a request's first tensor */
    uint32_t plan;                          /* 1: the request is a start of a plan, on which the ranks do not agree */
    int64_t dims[HC_TRACE_DIMS];            /* ENQUEUE: of the first tensor; the first dimensions */
    char name[HC_TRACE_NAME];               /* ends in 0; a long name is cut to "~" and its end */
} hc_trace_record;

/* A process set of this rank. Number, wire and lead identify one set of the World. */
typedef struct hc_trace_set {
    uint32_t used, wire;
    int32_t size, lead; /* lead: World rank of set rank 0 */
} hc_trace_set;

typedef struct hc_trace_header {
    char magic[8];
    uint32_t version, header_bytes, record_bytes, site_bytes; /* site_bytes: 0 without HPCCOLL_DEBUG */
    uint32_t nrecords;                                        /* records that follow; then as many sites */
    uint32_t is_file; /* 1: a file, with records in order; 0: the ring, where record n is in slot n % nrecords */
    int32_t rank, size, pid;
    _Atomic(uint32_t) dumps_at_signal; /* SIGUSR2 writes the file */
    uint64_t first;                    /* file: number of its first record */
    uint64_t clock;                    /* ns: CLOCK_REALTIME minus CLOCK_MONOTONIC */
    uint64_t written;                  /* file: time of writing, CLOCK_MONOTONIC */
    char world[32], host[64];
    char folder[704];            /* the folder of files */
    char cause[256], ended[256]; /* why the World broke; the exception that ends the process */
    hc_trace_set sets[HC_MAX_SETS];
    _Alignas(64) atomic_ullong head; /* number of the next record */
    _Alignas(64) atomic_int callers; /* threads that wait in a call */
    char end[4096 - 3524];
} hc_trace_header;
_Static_assert(sizeof(hc_trace_header) == 4096, "one page");
_Static_assert(sizeof(hc_trace_record) == 160, "as docs/trace.md says");

/* The names for the files; NULL counts as "". */
typedef struct hc_trace_config {
    const char *world, *folder; /* a word that no other World has; an absolute path, created when needed */
} hc_trace_config;

struct hc_loop;
/* Copies at most `room` records from number *next on, and advances *next. Skips overwritten records. [any thread] */
size_t hc_loop_trace_read(struct hc_loop *, uint64_t *next, hc_trace_record *out, size_t room);
/* Writes the file; `ended` (or NULL): the exception that ends the process. OK, or a status. [any thread] */
int hc_loop_trace_write(struct hc_loop *, const char *ended);
/* 1: SIGUSR2 writes the file. [any thread] */
int hc_loop_trace_at_signal(struct hc_loop *);
/* Call it when Python's handler of SIGUSR2 is installed, which writes a stack to `fd`: our handler replaces and calls
 * it. */
void hc_trace_stacks(int fd);
/* Calls Python's handler no more, and installs ours again if Python has removed it. */
void hc_trace_no_stacks(void);
