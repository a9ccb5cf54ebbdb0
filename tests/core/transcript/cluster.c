/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.c - a few engines driven by hand: events in, actions out as text.
 */
#include "cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cluster_say(cluster *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(r->text + r->len, sizeof r->text - r->len, format, args);
    va_end(args);
    r->len += (size_t)n < sizeof r->text - r->len ? (size_t)n : sizeof r->text - r->len - 1;
}

void cluster_answer(cluster *r) {
    fputs(r->text, stdout);
    r->text[r->len = 0] = 0;
}

/* ---- actions ------------------------------------------------------------------------------------- */

static void say_run(cluster *r, int rank, const hc_action *a) {
    cluster_say(r, "  %d: RUN", rank);
    if (a->set)
        cluster_say(r, " set %u", a->set);
    cluster_say(r, " batch %llu%s:", (unsigned long long)a->batch, a->cached ? " (cached)" : "");
    for (uint32_t i = 0; i < a->nitems; i++) {
        const hc_item *it = &a->items[i];
        cluster_say(r, " %.*s", (int)it->agreed->name_len, it->agreed->name);
        if (it->count != it->agreed->ntensors)
            cluster_say(r, "[%u..%u]", it->first, it->first + it->count - 1);
        if (!it->ticket)
            cluster_say(r, "(neutral)");
    }
    cluster_say(r, "\n");
    r->started[r->nstarted].rank = rank;
    r->started[r->nstarted].set = a->set;
    r->started[r->nstarted++].batch = a->batch;
}

static void say_send(cluster *r, int rank, const hc_action *a) {
    char words[4096];
    describe_message(a->bytes, a->nbytes, words, sizeof words);
    cluster_say(r, "  %d -> %d: %s\n", rank, a->peer, words);
    if (r->nmessages == CLUSTER_MESSAGES)
        exit(1);
    r->message[r->nmessages].from = rank;
    r->message[r->nmessages].to = a->peer;
    r->message[r->nmessages].n = a->nbytes;
    memcpy(r->message[r->nmessages++].bytes = malloc(a->nbytes), a->bytes, a->nbytes);
}

static void say_complete(cluster *r, int rank, const hc_action *a) {
    cluster_say(r, "  %d: COMPLETE %s %s", rank, a->ticket < CLUSTER_TICKETS ? r->ticket[a->ticket] : "?",
                hc_status_name(a->status));
    if (a->ticket < CLUSTER_TICKETS && !strcmp(r->ticket[a->ticket], "join") && !a->status)
        cluster_say(r, ", last %lld", (long long)a->value);
    if (a->status)
        cluster_say(r, ": %s", a->text);
    cluster_say(r, "\n");
}

static void say(cluster *r, int rank, const hc_action *a) {
    switch (a->kind) {
    case HC_AC_SEND:
        say_send(r, rank, a);
        break;
    case HC_AC_RUN:
        say_run(r, rank, a);
        break;
    case HC_AC_COMPLETE:
        say_complete(r, rank, a);
        break;
    case HC_AC_WAKE_AT:
        r->wake_at[rank] = a->time;
        break;
    case HC_AC_STALLED:
        cluster_say(r, "  %d: STALLED%s: %s\n", rank, a->reporter ? " (reporter)" : "", a->text);
        break;
    case HC_AC_PREEMPTED:
        cluster_say(r, "  %d: PREEMPTED at %llu\n", rank, (unsigned long long)a->position);
        break;
    case HC_AC_TUNED:
        cluster_say(r, "  %d: TUNED at %llu\n", rank, (unsigned long long)a->position);
        break;
    case HC_AC_STOPPED:
        cluster_say(r, "  %d: STOPPED set %u\n", rank, a->set);
        break;
    default:
        cluster_say(r, "  %d: FAILED %s: %s\n", rank, hc_status_name(a->status), a->text);
    }
}

void cluster_feed(cluster *r, int rank, hc_event *e) {
    const hc_action *actions;
    size_t n;
    e->now = r->now[rank];
    int status = hc_step(r->engine[rank], e, &actions, &n);
    if (status)
        cluster_say(r, "  %d: refused: %s\n", rank, hc_status_name(status));
    for (size_t i = 0; i < n; i++)
        say(r, rank, &actions[i]);
}

/* ---- the cluster --------------------------------------------------------------------------------- */

void cluster_open(cluster *r, const hc_engine_config *c, const int32_t *node_of, int32_t fanout, int manual_sent) {
    cluster_close(r);
    r->config = *c;
    r->ranks = c->size;
    r->manual_sent = manual_sent;
    r->fanout = fanout;
    memcpy(r->node_of, node_of, sizeof *node_of * (size_t)c->size);
    r->ntickets = 1;
    for (int i = 0; i < c->size; i++) {
        r->config.rank = i;
        r->engine[i] = hc_engine_new(&r->config);
    }
}

void cluster_close(cluster *r) {
    for (int i = 0; i < r->ranks; i++)
        hc_engine_free(r->engine[i]);
    for (int i = 0; i < r->nmessages; i++)
        free(r->message[i].bytes);
    memset(r, 0, sizeof *r);
}

/* Uses the configuration's set and generation. */
void cluster_add_set(cluster *r, const hc_set_config *set, const int32_t *members, int n) {
    int32_t nodes[CLUSTER_RANKS] = {0};
    for (int i = 0; i < n; i++)
        nodes[i] = r->node_of[members[i]];
    hc_tree_index *tree = hc_tree_index_new(members, nodes, n, r->fanout);
    cluster_say(r, "  tree:");
    for (int i = 0; i < n; i++) {
        hc_child children[CLUSTER_RANKS];
        hc_set_config c = *set;
        hc_tree_place(tree, i, &c, children, CLUSTER_RANKS);
        c.children = children;
        if (c.parent >= 0)
            cluster_say(r, " %d under %d", members[i], c.parent);
        else
            cluster_say(r, " root %d", members[i]);
        cluster_say(r, i + 1 < n ? "," : "\n");
        cluster_feed(r, members[i], &(hc_event){.kind = HC_EV_ADD_SET, .set = c.set, .peer = -1, .config = &c});
    }
    hc_tree_index_free(tree);
}

uint64_t cluster_ticket(cluster *r, const char *what) {
    snprintf(r->ticket[r->ntickets], sizeof *r->ticket, "%s", what);
    return (uint64_t)r->ntickets++;
}

void cluster_enqueue(cluster *r, int rank, uint32_t set, hc_request *q) {
    q->ticket = cluster_ticket(r, q->name);
    cluster_feed(r, rank, &(hc_event){.kind = HC_EV_ENQUEUE, .set = set, .peer = -1, .request = q});
}

void cluster_deliver(cluster *r, int from, int to, int n) {
    for (int i = 0; i < r->nmessages && n > 0; i++) {
        uint8_t *bytes = r->message[i].bytes;
        int a = r->message[i].from, b = r->message[i].to;
        if (!bytes || (from >= 0 && (a != from || b != to)))
            continue;
        r->message[i].bytes = NULL;
        n--;
        cluster_feed(r, b, &(hc_event){.kind = HC_EV_MESSAGE, .peer = a, .bytes = bytes, .nbytes = r->message[i].n});
        if (!r->manual_sent)
            cluster_feed(r, a, &(hc_event){.kind = HC_EV_SENT, .peer = b});
        free(bytes);
    }
}

void cluster_deliver_all(cluster *r) {
    for (int before = -1; before != r->nmessages;) {
        before = r->nmessages;
        cluster_deliver(r, -1, -1, CLUSTER_MESSAGES);
    }
    r->nmessages = 0;
}

void cluster_done(cluster *r) {
    int n = r->nstarted;
    r->nstarted = 0;
    for (int i = 0; i < n; i++)
        cluster_feed(
            r, r->started[i].rank,
            &(hc_event){.kind = HC_EV_BATCH_DONE, .set = r->started[i].set, .peer = -1, .batch = r->started[i].batch});
}

void cluster_counters(cluster *r) {
    for (int i = 0; i < r->ranks; i++) {
        hc_counters c;
        hc_engine_counters(r->engine[i], &c);
        cluster_say(r, "  %d: %llu messages up, %llu down, %llu entries, %llu batches\n", i,
                    (unsigned long long)c.messages_up, (unsigned long long)c.messages_down,
                    (unsigned long long)c.entries, (unsigned long long)c.batches);
    }
}

void cluster_quiet(cluster *r) {
    for (int i = 0; i < r->ranks; i++)
        cluster_say(r, "  %d: %s\n", i, hc_engine_quiet(r->engine[i]) ? "quiet" : "busy");
}
