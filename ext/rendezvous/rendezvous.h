/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.h - exchanges between the ranks before there is a World: over MPI, through the store of `hpccoll run` or
 * the coordinator of an elastic job, through a launcher's PMIx server, or of a rank that is alone.
 *
 * Python's Worlds have their own (hpccoll/rendezvous), which share pmix.c.
 */
#pragma once

#include "core/hc.h"
#include "rendezvous/exchange.h"
#include "transport/net/net.h"

#define HC_RENDEZVOUS_WHY 512

typedef struct hc_rendezvous hc_rendezvous;
typedef struct hc_rendezvous_ops {
    /* An allgather of `bytes` per rank, equally many on all ranks, with more than one rank. OK; or a status and `why`,
     * the same on all ranks that take part. */
    int (*allgather)(hc_rendezvous *, const void *mine, size_t bytes, void *all);
    void (*free)(hc_rendezvous *); /* NULL: it has nothing but its own memory */
    const char *met;               /* "met through ...", for the line at the start; "" says nothing */
} hc_rendezvous_ops;

struct hc_rendezvous {
    const hc_rendezvous_ops *ops;
    int32_t rank, size;
    uint32_t generation; /* of an elastic job, from 1; 0: the job is none */
    uint64_t timeout;    /* ns for each exchange */
    const char *version; /* of the library: a rank with another one is refused */
    const hc_processes *processes;
    char why[HC_RENDEZVOUS_WHY]; /* text of the last failure */
};

/* What a rendezvous is made of. */
typedef struct hc_rendezvous_terms {
    int32_t rank, size; /* for the store: the launcher's variables have them */
    uint64_t timeout;
    const char *version;
} hc_rendezvous_terms;

/* Each makes a rendezvous: OK, or a status and why. The net is borrowed. `store`: the value of the launcher's variable,
 * the secret and the addresses of its store. hc_rendezvous_over_pmix() takes rank and size from the launcher; `prefix`:
 * see hc_pmix_join(). */
int hc_rendezvous_over_net(hc_net *, const hc_rendezvous_terms *, hc_rendezvous **, char why[HC_RENDEZVOUS_WHY]);
int hc_rendezvous_over_store(const char *store, const hc_rendezvous_terms *, hc_rendezvous **,
                             char why[HC_RENDEZVOUS_WHY]);
int hc_rendezvous_over_pmix(const char *prefix, const hc_rendezvous_terms *, hc_rendezvous **,
                            char why[HC_RENDEZVOUS_WHY]);
/* `coordinator`: as `store`; `worker`: the launcher's number of this process. Waits for the next generation of the job,
 * which has rank and size. SHUT_DOWN: the job does not need this process any more. An exchange returns PEER_LOST if a
 * rank was lost, or has left the generation. */
int hc_rendezvous_over_coordinator(const char *coordinator, int32_t worker, const hc_rendezvous_terms *,
                                   hc_rendezvous **, char why[HC_RENDEZVOUS_WHY]);
int hc_rendezvous_alone(const hc_rendezvous_terms *, hc_rendezvous **, char why[HC_RENDEZVOUS_WHY]);
void hc_rendezvous_free(hc_rendezvous *); /* NULL is allowed */

/* An allgather of `bytes` per rank. OK, or a status and `why`. */
int hc_rendezvous_allgather(hc_rendezvous *, const void *mine, size_t bytes, void *all);
/* The same, for what ranks agree on; the rendezvous has the text of a failure. */
hc_exchange hc_rendezvous_exchange(hc_rendezvous *);

/* ---- the connection to the coordinator of an elastic job, which the first rendezvous makes [any thread] ---- */

/* A rank of this generation was lost here: the next rendezvous reports it. */
void hc_coordinator_lost(uint32_t generation, int32_t rank, const char *how);
/* 1: this generation is about to change; 0: as far as this process knows, it is not. It looks for a message every ten
 * milliseconds at most, and never waits. From the first call on the next rendezvous reports that this process has the
 * state of the program. */
int hc_coordinator_changes(uint32_t generation);
/* Asks to leave the job. OK, or a status and why: the launcher is gone. */
int hc_coordinator_leave(char why[HC_RENDEZVOUS_WHY]);
void hc_coordinator_forked(void); /* in the child of a fork(): closes its copy of the connection */
