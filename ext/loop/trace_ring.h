/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_ring.h - records the last events of this rank, and writes them to a file.
 */
#pragma once

#include "loop/set_queues.h"

typedef struct hc__trace {
    hc_trace_header *header; /* [any] reads; waiting threads write `callers`, the driver all else */
    hc_trace_record *records;
    char (*sites)[HC_TRACE_SITE]; /* of each record, or NULL */
    int fd;                       /* -1: other processes cannot read the ring */
    atomic_int writing;           /* [any] 1: a thread writes the file */
    uint64_t broke_at;            /* the last record in the file of a broken World; 0: not broken */
    char file[sizeof(((hc_trace_header *)0)->folder) + 64], unfinished[sizeof(((hc_trace_header *)0)->folder) + 72];
    char stack[sizeof(((hc_trace_header *)0)->folder) + 64];
    char note[sizeof(((hc_trace_header *)0)->folder) + 64]; /* the file that explains the folder */
} hc__trace;

int hc__trace_new(hc_loop *);
void hc__trace_free(hc__trace *);
void hc__trace_forked(hc__trace *);
void hc__trace_message(hc_loop *, int kind, int32_t peer, uint64_t bytes);
void hc__trace_handle(hc_loop *, int kind, const hc_handle *, uint64_t batch);
void hc__trace_batch(hc_loop *, int kind, uint32_t set, const hc__run *);
void hc__trace_break(hc_loop *, int status, const char *text);
void hc__trace_set(hc_loop *, const hc__set_queue *, int32_t lead); /* a set begins or, not used, ends */

/* trace_file.c */
void hc__trace_prepare(hc_loop *);
int hc__trace_write_file(hc__trace *); /* async-signal-safe */
void hc__trace_write_broken(hc_loop *);
void hc__trace_watch_signal(hc_loop *);
void hc__trace_at_signal(hc_loop *); /* from here on SIGUSR2 writes the file */
void hc__trace_not_at_signal(hc_loop *);
