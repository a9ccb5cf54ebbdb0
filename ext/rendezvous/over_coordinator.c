/* SPDX-License-Identifier: Apache-2.0
 *
 * over_coordinator.c - the rendezvous of the ranks of an elastic job, whose launcher chooses them for each generation
 * and relays their values. hpccoll/rendezvous/coordinator.py does the same, and has the messages.
 *
 * A process keeps one connection, for all its Worlds. No thread reads it: what waits for a message reads it, and
 * hc_coordinator_changes() looks while nothing waits. So a message that announces a change is noted by any of them.
 */
#include "rendezvous/channel.h"
#include "rendezvous/json.h"
#include "rendezvous/kinds.h"
#include "rendezvous/values.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE (5 * HC__SECOND) /* for the launcher to take a message */
#define LOOK_EVERY (HC__SECOND / 100)
#define TEXT 256

static struct coordinator {
    pthread_mutex_t lock; /* for all the rest but `forked` */
    hc_channel *channel;  /* NULL: not made yet. It stays when it has ended, because another thread may wait for it */
    uint32_t generation;  /* of the last rendezvous */
    uint32_t changing;    /* the generation that is about to change; 0: none */
    int32_t worker, rank;
    uint64_t looked; /* time of the last look, ns */
    uint8_t waits;   /* a thread waits for a message, and reads all of them */
    uint8_t has_state;
    char *lost;     /* members of a JSON object: the lost ranks of `generation`; NULL: none */
    int ended;      /* the status of each later rendezvous: the connection has ended; OK: it has not */
    char why[TEXT]; /* of `ended` */
    atomic_int forked;
} of_process = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct over_coordinator {
    hc_rendezvous base;
    uint32_t exchanges;
} over_coordinator;

/* ---- messages: under the lock ------------------------------------------------------------------------------ */

static int gone(struct coordinator *c, int status, const char *why) {
    snprintf(c->why, sizeof c->why,
             "the launcher of the job is gone (%.100s), so its ranks cannot change: see why `hpccoll run` ended",
             *why ? why : hc_status_text(status));
    return c->ended = HC_TRANSPORT;
}

static int say(struct coordinator *c, const char *message) {
    char why[HC_CHANNEL_WHY] = "";
    if (c->ended)
        return c->ended;
    int status = hc_channel_send(c->channel, message, PATIENCE, why);
    return status < 0 ? gone(c, status, why) : HC_OK;
}

/* A message that has come, which the caller frees. STALLED, or another status: there is none, and it is NULL. Notes
 * what comes unasked. */
static int take(struct coordinator *c, char **message) {
    char why[HC_CHANNEL_WHY] = "";
    for (;;) {
        *message = NULL;
        if (c->ended)
            return c->ended;
        int status = hc_channel_receive(c->channel, 0, message, why);
        if (status < 0)
            return status == HC_STALLED ? status : gone(c, status, why);
        int64_t changing = hc__json_number(hc__json_get(*message, "change"));
        if (changing < 0)
            return HC_OK;
        c->changing = (uint32_t)changing;
        free(*message);
    }
}

/* The next message. STALLED: none has come within `ns`. */
static int next(struct coordinator *c, uint64_t ns, char **message) {
    int status = take(c, message);
    const hc_channel *channel = c->channel;
    if (status != HC_STALLED)
        return status;
    pthread_mutex_unlock(&c->lock);
    hc_channel_await(channel, ns);
    pthread_mutex_lock(&c->lock);
    return take(c, message);
}

/* ---- the connection ---------------------------------------------------------------------------------------- */

/* Sends the identity of this process, and waits for the answer. */
static int greet(struct coordinator *c, uint64_t ns, char why[HC_CHANNEL_WHY]) {
    char hello[2 * TEXT], host[65] = "", quoted[TEXT], *answer = NULL;
    gethostname(host, sizeof host - 1);
    hc__json_quote(host, quoted, sizeof quoted);
    snprintf(hello, sizeof hello, "{\"worker\": %" PRId32 ", \"host\": %s, \"pid\": %ld}", c->worker, quoted,
             (long)getpid());
    int status = hc_channel_ask(c->channel, hello, ns, &answer, why);
    free(answer);
    return status;
}

static int connect_once(struct coordinator *c, const char *text, int32_t worker, uint64_t ns) {
    char why[HC_CHANNEL_WHY] = "";
    if (c->channel || c->ended)
        return c->ended;
    c->worker = worker;
    c->why[0] = 0;
    int status = hc_channel_connect(text, ns, &c->channel, why);
    if (status >= 0 && (status = greet(c, ns, why)) < 0) {
        hc_channel_close(c->channel);
        c->channel = NULL;
    }
    if (status < 0)
        snprintf(c->why, sizeof c->why, "the coordinator of the job cannot be reached: %.180s",
                 *why ? why : hc_status_text(status));
    return status == HC_STALLED ? HC_TRANSPORT : status;
}

/* ---- the generation ---------------------------------------------------------------------------------------- */

static int report_ready(struct coordinator *c) {
    size_t room = (c->lost ? strlen(c->lost) : 0) + 128;
    char *message = malloc(room);
    if (!message)
        return HC_NO_MEMORY;
    snprintf(message, room, "{\"come\": %" PRIu32 ", \"lost\": {%s}, \"has_state\": %s}", c->generation,
             c->lost ? c->lost : "", c->has_state ? "true" : "false");
    free(c->lost);
    c->lost = NULL;
    int status = say(c, message);
    free(message);
    return status;
}

/* 1: the message makes this process a member; 0: it is about something else; or a status. */
static int take_place(struct coordinator *c, const char *message, over_coordinator *o) {
    char *release = hc__json_string(hc__json_get(message, "release"));
    int64_t generation = hc__json_number(hc__json_get(message, "generation"));
    int64_t rank = hc__json_number(hc__json_get(message, "rank")),
            size = hc__json_number(hc__json_get(message, "size"));
    if (release) {
        snprintf(c->why, sizeof c->why, "the job does not need this process any more (%.100s): end it with status 0",
                 release);
        free(release);
        return c->ended = HC_SHUT_DOWN;
    }
    if (generation < 1 || generation > UINT32_MAX || rank < 0 || rank >= size || size > INT32_MAX)
        return 0;
    o->base.generation = c->generation = (uint32_t)generation;
    o->base.rank = c->rank = (int32_t)rank;
    o->base.size = (int32_t)size;
    return 1;
}

static int find_place(struct coordinator *c, over_coordinator *o) {
    int status = report_ready(c);
    c->rank = -1;
    while (status >= 0 || status == HC_STALLED) {
        char *message = NULL;
        status = next(c, HC__SECOND, &message);
        if (status >= 0 && (status = take_place(c, message, o)) > 0) {
            free(message);
            return HC_OK;
        }
        free(message);
    }
    return status;
}

/* ---- the exchange ------------------------------------------------------------------------------------------ */

static int give(struct coordinator *c, const over_coordinator *o, const void *mine, size_t bytes) {
    char *value = hc__value_text(&o->base, mine, bytes);
    size_t room = (value ? strlen(value) : 0) + 128;
    char *message = value ? malloc(room) : NULL;
    int status = HC_NO_MEMORY;
    if (message) {
        snprintf(message, room, "{\"gather\": %" PRIu32 ", \"generation\": %" PRIu32 ", \"value\": \"%s\"}",
                 o->exchanges, o->base.generation, value);
        status = say(c, message);
    }
    free(message);
    free(value);
    return status;
}

static int take_values(hc_rendezvous *r, const char *values, size_t bytes, void *all) {
    const char *value = hc__json_first(values);
    int status = HC_OK;
    for (int32_t rank = 0; rank < r->size && status >= 0; rank++) {
        char *text = hc__json_string(value);
        status = hc__value_take(r, rank, text ? text : "", bytes, all);
        free(text);
        value = value ? hc__json_next(value) : NULL;
    }
    return status;
}

/* 1: the message ends the exchange; 0: it is about something else; or a status. */
static int take_answer(over_coordinator *o, const char *message, size_t bytes, void *all) {
    hc_rendezvous *r = &o->base;
    if (hc__json_number(hc__json_get(message, "void")) == r->generation) {
        char *why = hc__json_string(hc__json_get(message, "why"));
        snprintf(r->why, sizeof r->why, "generation %" PRIu32 " has ended: %s", r->generation, why ? why : "");
        free(why);
        return HC_PEER_LOST;
    }
    const char *values = hc__json_get(message, "values");
    if (!values || hc__json_number(hc__json_get(message, "of")) != r->generation ||
        hc__json_number(hc__json_get(message, "gathered")) != o->exchanges)
        return 0;
    int status = take_values(r, values, bytes, all);
    return status < 0 ? status : 1;
}

/* OK, or TRANSPORT and why: it has lasted too long. Rank 0 reports long waits. */
static int go_on_waiting(hc_rendezvous *r, uint32_t exchange, uint64_t began, uint64_t *reported) {
    uint64_t now = hc__now_ns();
    if (now - began > r->timeout) {
        snprintf(r->why, sizeof r->why,
                 "not all ranks have come to step %" PRIu32 " of the start within %g s (HPCCOLL_START_TIMEOUT)",
                 exchange, (double)r->timeout / 1e9);
        return HC_TRANSPORT;
    }
    if (r->rank == 0 && now - *reported > HC__REPORT_EVERY) {
        *reported = now;
        fprintf(stderr, "hpccoll: start: waiting for some of ranks 0 to %" PRId32 "\n", r->size - 1);
    }
    return HC_OK;
}

static int exchange(struct coordinator *c, over_coordinator *o, const void *mine, size_t bytes, void *all) {
    uint64_t began = hc__now_ns(), reported = began;
    int status = give(c, o, mine, bytes);
    while (status == HC_OK) {
        char *message = NULL;
        status = next(c, o->base.timeout < HC__SECOND ? o->base.timeout : HC__SECOND, &message);
        if (status == HC_STALLED)
            status = go_on_waiting(&o->base, o->exchanges, began, &reported);
        else if (status >= 0)
            status = take_answer(o, message, bytes, all);
        free(message);
    }
    return status;
}

/* Begins a wait for messages: the one thread that makes Worlds waits, and others that look leave the messages to it. */
static void begin_wait(struct coordinator *c) {
    pthread_mutex_lock(&c->lock);
    c->waits = 1;
}

static void end_wait(struct coordinator *c) {
    c->waits = 0;
    pthread_mutex_unlock(&c->lock);
}

static int allgather(hc_rendezvous *r, const void *mine, size_t bytes, void *all) {
    struct coordinator *c = &of_process;
    over_coordinator *o = (over_coordinator *)r;
    begin_wait(c);
    int status = exchange(c, o, mine, bytes, all);
    o->exchanges++;
    if (status < 0 && !*r->why)
        snprintf(r->why, sizeof r->why, "%s", c->ended ? c->why : hc_status_text(status));
    end_wait(c);
    return status < 0 ? status : HC_OK;
}

/* The connection is the process's: none is closed. */
static const hc_rendezvous_ops over_coordinator_ops = {allgather, NULL, "the ranks are a generation of an elastic job"};

int hc_rendezvous_over_coordinator(const char *coordinator, int32_t worker, const hc_rendezvous_terms *terms,
                                   hc_rendezvous **made, char why[HC_RENDEZVOUS_WHY]) {
    struct coordinator *c = &of_process;
    if (atomic_load(&c->forked)) {
        snprintf(why, HC_RENDEZVOUS_WHY, "this process was forked by a rank of an elastic job, and is none itself");
        return HC_FORKED;
    }
    over_coordinator *o = hc__rendezvous_new(sizeof *o, &over_coordinator_ops, terms, why);
    if (!o)
        return HC_NO_MEMORY;
    begin_wait(c);
    int status = connect_once(c, coordinator, worker, terms->timeout);
    if (status >= 0)
        status = find_place(c, o);
    if (status < 0)
        snprintf(why, HC_RENDEZVOUS_WHY, "%s", *c->why ? c->why : hc_status_text(status));
    end_wait(c);
    if (status < 0)
        free(o);
    else
        *made = &o->base;
    return status;
}

/* ---- while a World runs ------------------------------------------------------------------------------------ */

void hc_coordinator_lost(uint32_t generation, int32_t rank, const char *how) {
    struct coordinator *c = &of_process;
    char quoted[TEXT];
    if (atomic_load(&c->forked))
        return;
    hc__json_quote(how, quoted, sizeof quoted);
    pthread_mutex_lock(&c->lock);
    size_t before = c->lost ? strlen(c->lost) : 0, room = before + TEXT + 32;
    char *lost = generation == c->generation ? realloc(c->lost, room) : NULL;
    if (lost) {
        snprintf(lost + before, room - before, "%s\"%" PRId32 "\": %s", before ? ", " : "", rank, quoted);
        c->lost = lost;
    }
    pthread_mutex_unlock(&c->lock);
}

/* Reads what has come unasked. */
static void look(struct coordinator *c) {
    char *message = NULL;
    if (c->ended)
        return;
    while (take(c, &message) >= 0)
        free(message);
    if (c->ended && c->rank == 0)
        fprintf(stderr,
                "hpccoll: worker %" PRId32
                ": the launcher of the job is gone: training goes on, and the next change of "
                "the ranks ends it\n",
                c->worker);
}

int hc_coordinator_changes(uint32_t generation) {
    struct coordinator *c = &of_process;
    uint64_t now = hc__now_ns();
    if (atomic_load(&c->forked))
        return 0;
    pthread_mutex_lock(&c->lock);
    c->has_state = 1;
    if (!c->waits && now - c->looked >= LOOK_EVERY) {
        c->looked = now;
        look(c);
    }
    int changes = generation == c->changing;
    pthread_mutex_unlock(&c->lock);
    return changes;
}

int hc_coordinator_leave(char why[HC_RENDEZVOUS_WHY]) {
    struct coordinator *c = &of_process;
    if (atomic_load(&c->forked))
        return HC_FORKED;
    pthread_mutex_lock(&c->lock);
    int status = say(c, "{\"leave\": true}");
    snprintf(why, HC_RENDEZVOUS_WHY, "%s", c->why);
    pthread_mutex_unlock(&c->lock);
    return status;
}

void hc_coordinator_forked(void) {
    struct coordinator *c = &of_process;
    atomic_store(&c->forked, 1);
    hc_channel_close(c->channel);
    c->channel = NULL;
}
