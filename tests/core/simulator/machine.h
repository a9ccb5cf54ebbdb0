/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.h - virtual ranks with a real engine each, a transport, a data plane and a scheduler that lets
 * one enabled event happen at a time.
 */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include "program.h"
#include "world/order.h"

#define SIM_FAR ((uint64_t)1 << 50) /* ns; timers beyond it are not part of the ordinary run */

#define SIM_DUPLICATE ((uint64_t)1 << 40) /* ticket of a request whose name is in flight */

enum sim_state { SIM_UNBORN, SIM_PENDING, SIM_RUNNING, SIM_ENDED };

typedef struct sim_result { /* what became of a handle */
    uint8_t state;
    int status;
    uint64_t position;
    int64_t value;
    uint32_t covered; /* tensors that batches have carried, one bit each */
    uint32_t running; /* batches of it that are not done here */
    uint8_t spoiled;  /* a batch of it ended with an error of this rank alone */
    const char *text;
    char name[HC_ORDER_NAME]; /* of a call without one: what its rank calls it */
    uint64_t order;
} sim_result;

typedef struct sim_message {
    struct sim_message *next;
    size_t n;
    uint8_t bytes[];
} sim_message;

typedef struct sim_edge { /* FIFO from one rank to another */
    sim_message *head, *tail;
} sim_edge;

typedef struct sim_item {
    int name, occurrence; /* occurrence -1: every rank so far had joined */
    uint32_t first, count;
} sim_item;

typedef struct sim_batch {
    sim_item *items;
    uint32_t nitems;
    uint8_t cached;
    int started;
    uint8_t member_started[SIM_RANKS]; /* by set rank */
    int *handles[SIM_RANKS];           /* by set rank: of each item, -1 when joined */
} sim_batch;

typedef struct sim_log { /* what is seen of one set's log */
    sim_batch *batches;
    int n, room;
} sim_log;

typedef struct sim_stream { /* batches a rank has started, in order: per set, or one for all (one_stream) */
    struct sim_started {
        uint8_t set;
        int batch;
    } *items;
    int head, n, room;
} sim_stream;

typedef struct sim_done { /* batches that are done and not yet reported to the engine */
    int *batch;
    int head, n, room;
} sim_done;

typedef struct sim_rank {
    hc_engine *engine;
    uint64_t now, wake_at;
    int pc[SIM_THREADS];
    uint8_t waiting[SIM_THREADS];
    int outstanding;                  /* handles that have not ended */
    uint8_t inbox[SIM_RANKS], ninbox; /* senders with a message on its way */
    uint8_t *sent;                    /* peers of SENT events to come */
    int nsent, sent_room;
    sim_stream stream[SIM_SETS];
    sim_done done[SIM_SETS];
    int started[SIM_SETS]; /* batches, in this set */
    hc_set_config config[SIM_SETS];
    uint8_t added[SIM_SETS], removed[SIM_SETS], stopped[SIM_SETS];
    uint8_t failed, dead;
    int fail_peer;                /* the transport is about to report it; -1 none */
    uint64_t preempted[SIM_SETS]; /* position + 1 */
    hc_tuning tuning[SIM_SETS];   /* as it holds now */
    uint64_t tuned[SIM_SETS];     /* a hash of all that were, with their positions */
    uint64_t raises[SIM_SETS];    /* an upper bound of the items this rank raised */
    int joins[SIM_SETS];
    hc_order order[SIM_SETS];  /* of its calls without a name */
    uint8_t renamed[SIM_SETS]; /* the set knows such calls by their positions in the order */
    int depth[SIM_SETS];       /* in the set's tree */
    int neighbour[SIM_RANKS];  /* shares an edge with */
    int nstalled;              /* STALLED reports in the last phase */
    uint8_t dirty;
    uint32_t enabled[8];
} sim_rank;

enum sim_event {
    SIM_EV_MESSAGE,
    SIM_EV_SENT,
    SIM_EV_TIMER,
    SIM_EV_THREAD,
    SIM_EV_DONE,
    SIM_EV_FAIL,
    SIM_EV_SETS,
    SIM_EV_KINDS
};

typedef struct sim_machine {
    const sim_program *program;
    sim_arena *arena;
    sim_random *rng;
    sim_rank rank[SIM_RANKS];
    sim_edge *edge; /* [from * ranks + to] */
    sim_log log[SIM_SETS];
    sim_result *result; /* by handle */
    uint64_t steps, messages, bytes;
    int preempts[SIM_SETS], tunes[SIM_SETS];
    int stops[2];  /* of the World, of other sets */
    int duplicate; /* how the request with the ticket SIM_DUPLICATE ended */
    int failing;   /* a failure was reported somewhere */
    int trace;     /* print every event and action */
    int broken;    /* a rule was violated: `why` says which */
    char why[4096];
    void (*fed)(void *, int rank, const hc_event *); /* sees every event, or NULL */
    void *fed_arg;
    void (*stalled)(struct sim_machine *, int rank, const hc_action *); /* sees STALLED, or NULL */
} sim_machine;

extern int sim_in_engine; /* inside hc_step: for the allocator that fails (starve.c) */

int sim_machine_open(sim_machine *, const sim_program *, sim_arena *, sim_random *);
void sim_machine_close(sim_machine *);

/* Lets enabled events happen until there are none (1), a rule is broken or `limit` events passed (0). */
int sim_machine_run(sim_machine *, uint64_t limit);

/* Gives an engine one event and carries out its actions. Returns hc_step's status. */
int sim_feed(sim_machine *, int rank, hc_event *);

void sim_break(sim_machine *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- between the files of the machine ------------------------------------------------------------ */

void sim_send(sim_machine *, int from, int to, const uint8_t *bytes, size_t n);
void sim_deliver(sim_machine *, int from, int to);
void sim_start_batch(sim_machine *, int rank, const hc_action *);
void sim_report_done(sim_machine *, int rank, int set);
int sim_thread_can(const sim_machine *, int rank, int thread);
void sim_thread_step(sim_machine *, int rank, int thread);
void sim_inject_failures(sim_machine *, int rank);
uint32_t sim_sets_due(const sim_machine *, int rank);
void sim_change_set(sim_machine *, int rank, int which);
void sim_add_set(sim_machine *, int rank, int set);
void sim_trace_event(const sim_machine *, int rank, const hc_event *);
void sim_trace_action(const sim_machine *, int rank, const hc_action *);

#endif
