/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c - a run in words: the program, and every event and action of every rank.
 */
#include "machine.h"

#include <stdio.h>

static void print_signature(const sim_signature *s) {
    printf("%s", hc_operation_name(s->operation));
    if (hc_operation_has(s->operation, HC_OP_REDUCES))
        printf(" %s", hc_reduction_name(s->reduction));
    for (int i = 0; i < s->ntensors; i++) {
        printf(" %s[", hc_dtype_name(s->tensor[i].dtype));
        for (int d = 0; d < s->tensor[i].ndim; d++)
            printf(d ? ",%lld" : "%lld", (long long)s->tensor[i].dims[d]);
        printf("]");
    }
    if (s->root >= 0)
        printf(" root %d", s->root);
    if (s->flags & HC_REQUEST_GROUP)
        printf(" group");
    if (s->flags & HC_REQUEST_LAST)
        printf(" last");
    if (s->prescale != 1.0)
        printf(" prescale %g", s->prescale);
}

static void print_op(const sim_program *p, sim_op op) {
    static const char *kinds[] = {"enqueue", "enqueue twice", "refuse", "wait", "join",
                                  "stop",    "preempt",       "fail",   "tune"};
    printf("%s set %d", kinds[op.kind], op.set);
    if (op.handle < 0)
        return;
    const sim_handle *h = &p->handles[op.handle];
    printf(" ticket %d", op.handle + 1);
    if (!h->is_join)
        printf(" %s", p->set[h->set].name[h->name]);
    if (op.kind == SIM_ENQUEUE || op.kind == SIM_ENQUEUE_TWICE || op.kind == SIM_REFUSE) {
        printf(" ");
        print_signature(&h->signature);
    }
}

void sim_program_print(const sim_program *p) {
    printf("%d ranks, fanout %d, capacity %u, threshold %llu, raise bytes %llu, window "
           "%llu%s%s%s%s%s%s\nnodes",
           p->ranks, p->fanout, p->capacity, (unsigned long long)p->threshold, (unsigned long long)p->raise_bytes,
           (unsigned long long)p->raise_window, p->one_stream ? ", one stream" : "", p->late_sets ? ", late sets" : "",
           p->lazy ? ", idle ranks do not listen" : "", p->stop ? ", stop" : "", p->stall ? ", stall reports" : "",
           p->fail ? ", failure" : "");
    for (int r = 0; r < p->ranks; r++)
        printf(" %d", p->node_of[r]);
    printf("\n");
    for (int s = 0; s < p->nsets; s++) {
        printf("set %d:", s);
        for (int i = 0; i < p->set[s].n; i++)
            printf(" %d", p->set[s].members[i]);
        printf("\n");
    }
    for (int r = 0; r < p->ranks; r++)
        for (int t = 0; t < p->threads[r]; t++) {
            printf("rank %d thread %d:\n", r, t);
            for (int i = 0; i < p->thread[r][t].n; i++) {
                printf("  %2d ", i);
                print_op(p, p->thread[r][t].ops[i]);
                printf("\n");
            }
        }
}

void sim_trace_event(const sim_machine *m, int rank, const hc_event *e) {
    static const char *kinds[] = {"ADD_SET", "REMOVE_SET", "ENQUEUE", "FLUSH", "JOIN",       "STOP",   "PREEMPT",
                                  "TUNE",    "MESSAGE",    "SENT",    "TICK",  "BATCH_DONE", "SILENT", "FAIL"};
    printf("%6llu rank %d: %s set %u", (unsigned long long)m->steps, rank, kinds[e->kind], e->set);
    if (e->peer >= 0)
        printf(" peer %d", e->peer);
    if (e->kind == HC_EV_ENQUEUE)
        printf(" ticket %llu %.*s", (unsigned long long)e->request->ticket, (int)e->request->name_len,
               e->request->name);
    if (e->kind == HC_EV_JOIN)
        printf(" ticket %llu", (unsigned long long)e->ticket);
    if (e->kind == HC_EV_BATCH_DONE)
        printf(" batch %llu", (unsigned long long)e->batch);
    if (e->kind == HC_EV_MESSAGE)
        printf(" %zu bytes", e->nbytes);
    printf("\n");
}

void sim_trace_action(const sim_machine *m, int rank, const hc_action *a) {
    (void)m;
    (void)rank;
    switch (a->kind) {
    case HC_AC_SEND:
        printf("        SEND to %d, %zu bytes\n", a->peer, a->nbytes);
        break;
    case HC_AC_RUN:
        printf("        RUN set %u batch %llu%s:", a->set, (unsigned long long)a->batch, a->cached ? " cached" : "");
        for (uint32_t i = 0; i < a->nitems; i++)
            printf(" %.*s(ticket %llu)", (int)a->items[i].agreed->name_len, a->items[i].agreed->name,
                   (unsigned long long)a->items[i].ticket);
        printf("\n");
        break;
    case HC_AC_COMPLETE:
        printf("        COMPLETE ticket %llu %s position %llu value %lld %s\n", (unsigned long long)a->ticket,
               hc_status_name(a->status), (unsigned long long)a->position, (long long)a->value, a->text ? a->text : "");
        break;
    case HC_AC_WAKE_AT:
        if (a->time == UINT64_MAX)
            printf("        WAKE_AT never\n");
        else
            printf("        WAKE_AT %llu\n", (unsigned long long)a->time);
        break;
    case HC_AC_STALLED:
        printf("        STALLED set %u, %u awaited: %s\n", a->set, a->nawaited, a->text);
        break;
    case HC_AC_PREEMPTED:
        printf("        PREEMPTED set %u position %llu\n", a->set, (unsigned long long)a->position);
        break;
    case HC_AC_TUNED:
        printf("        TUNED set %u position %llu threshold %llu\n", a->set, (unsigned long long)a->position,
               (unsigned long long)a->tuning->fusion_threshold);
        break;
    case HC_AC_STOPPED:
        printf("        STOPPED set %u\n", a->set);
        break;
    default:
        printf("        FAILED %s: %s\n", hc_status_name(a->status), a->text ? a->text : "");
    }
}
